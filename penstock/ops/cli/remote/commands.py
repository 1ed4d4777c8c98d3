"""The commands: each asks a driver and prints what it says. Returns of all: the exit code, 0 if what was asked for is so.

Source: Flink CliFrontend; differs: a job may be named by the beginning of its id, and needs no name if only one runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.ops.cli.remote.logs import add_logs, logs
from penstock.ops.cli.remote.metrics import add_metrics, metrics
from penstock.ops.cli.remote.rescale import add_rescale, rescale
from penstock.ops.cli.remote.stacks import add_stacks, stacks
from penstock.ops.cli.remote.targets import (
    ENDED,
    Target,
    add_job,
    add_place,
    clients,
    is_session,
    target,
    targets,
)
from penstock.ops.cli.remote.texts import duration, indented, moment, shown
from penstock.ops.remote.client import RemoteError
from penstock.ops.remote.vertices import vertex_of

_CANCEL_POLL_S: Final = 0.2


_MOST_OF_MACHINE: Final = 1000


def story(options: argparse.Namespace) -> int:
    """`penstock story`."""
    one = target(options)
    query: dict[str, object] = {}
    if options.part is not None:
        name, subtask = _parts(options.part)
        query["vertexid"] = vertex_of(one.client.get(one.path), name)["id"]
        query["subtaskindex"] = subtask
    if options.machine:
        query["machine"] = _MOST_OF_MACHINE
    told = one.client.get(f"{one.path}/story", **query)
    lines = [f"({told['forgotten']} events before are forgotten)"] if told["forgotten"] else []
    lines += [f"{moment(event['timestamp'])}  {event['text']}" for event in told["events"]]
    if options.machine:
        lines += [
            "",
            "what the machine of the job did:",
            *(f"  {line}" for line in told["machine"]),
        ]
    return shown(told, options, "\n".join(lines))


def _parts(text: str) -> tuple[str, int | None]:
    """Return vertex and subtask of `VERTEX` or `VERTEX/SUBTASK`. Raises RemoteError: the vertex is missing."""
    name, sign, number = text.rpartition("/")
    if sign and number.isdecimal():
        if not name:
            raise RemoteError(f"expected VERTEX/SUBTASK, got {text!r}")
        return name, int(number)
    return text, None


def add_story(commands: Any) -> None:
    """Add the command to the command line."""
    tells = commands.add_parser("story", help="show what happened to a job, in order")
    add_job(tells)
    tells.add_argument(
        "part", nargs="?", metavar="VERTEX/SUBTASK",
        help="a vertex, or one of its subtasks counted from 0: the states of its attempts, too",
    )  # fmt: skip
    tells.add_argument(
        "--machine", action="store_true",
        help="also each change of state with the event of the job's machine that caused it",
    )  # fmt: skip


def list_jobs(options: argparse.Namespace) -> int:
    """`penstock list`: running jobs, with `-a` all."""
    if options.show_token:
        for client in clients(options):
            print(f"{client.address} {client.token or ''}")
        return 0
    sessions = [one for one in clients(options) if is_session(one)]
    found = [one for one in targets(options) if options.all or one.overview["state"] not in ENDED]
    addresses = {one.address for one in sessions}
    told = [
        {
            "address": one.client.address,
            "session": one.client.address in addresses,
            **one.overview,
        }
        for one in found
    ]
    lines = [
        f"{moment(one.overview['start-time'])}  {one.job_id}  {one.overview['state']:<10} "
        f"{one.overview['name']}  ({one.client.address})"
        for one in found
    ]
    kind = "jobs" if options.all else "running jobs"
    lines += [] if lines else [f"no {kind}"]
    lines += [f"session at {address} takes jobs" for address in sorted(addresses)]
    return shown(told, options, "\n".join(lines))


def info(options: argparse.Namespace) -> int:
    """`penstock info`: a job with its vertices."""
    one = target(options)
    details = one.client.get(one.path)
    since, lasted = moment(details["start-time"]), duration(details["duration"])
    lines = [
        f"job {details['name']!r} ({details['jid']})",
        f"status {details['state']}, since {since}, for {lasted}",
    ]
    for vertex in details["vertices"]:
        states = ", ".join(f"{count} {state}" for state, count in vertex["tasks"].items() if count)
        metrics = vertex["metrics"]
        lines.append(
            f"  {vertex['name']}: {states}; records in {metrics['read-records']:,}, "
            f"out {metrics['write-records']:,}"
        )
    return shown(details, options, "\n".join(lines))


def verdict(options: argparse.Namespace) -> int:
    """`penstock verdict`: what is wrong with a job."""
    one = target(options)
    told = one.client.get(f"{one.path}/bottleneck")
    return shown(told, options, "\n".join(told["sentences"]))


def cancel(options: argparse.Namespace) -> int:
    """`penstock cancel`: waits until the job has ended, unless it is told not to."""
    one = target(options)
    one.client.change("PATCH", one.path, mode="cancel")
    status = "CANCELLING" if options.no_wait else _await_end(one)
    told = {"job": one.job_id, "status": status}
    shown(told, options, f"job {one.job_id}: {status}")
    return 0 if status in {"CANCELED", "CANCELLING"} else 1


def stop(options: argparse.Namespace) -> int:
    """`penstock stop`: with a savepoint."""
    one = target(options)
    body = {"targetDirectory": options.directory, "drain": options.drain}
    result = one.client.operation(f"{one.path}/stop", body, f"{one.path}/savepoints/{{}}")
    return shown(
        {"job": one.job_id, **result}, options, f"stopped; savepoint: {result['location']}"
    )


def take_savepoint(options: argparse.Namespace) -> int:
    """`penstock savepoint JOB [DIR]`."""
    one = target(options)
    body = {"target-directory": options.directory, "cancel-job": False}
    result = one.client.operation(f"{one.path}/savepoints", body, f"{one.path}/savepoints/{{}}")
    return shown({"job": one.job_id, **result}, options, f"savepoint: {result['location']}")


def checkpoint(options: argparse.Namespace) -> int:
    """`penstock checkpoint JOB`."""
    one = target(options)
    body = {"checkpointType": "CONFIGURED"}
    result = one.client.operation(f"{one.path}/checkpoints", body, f"{one.path}/checkpoints/{{}}")
    text = f"checkpoint {result['checkpointId']} is complete"
    return shown({"job": one.job_id, **result}, options, text)


def exceptions(options: argparse.Namespace) -> int:
    """`penstock exceptions`: newest first."""
    one = target(options)
    told = one.client.get(f"{one.path}/exceptions", maxExceptions=options.most)
    entries = told["exceptionHistory"]["entries"]
    lines = [
        f"{moment(entry['timestamp'])}  {entry.get('taskName', 'the job as a whole')}\n"
        f"{indented(entry['stacktrace'])}"
        for entry in entries
    ]
    return shown(told, options, "\n\n".join(lines) or "no failures")


def checkpoints(options: argparse.Namespace) -> int:
    """`penstock checkpoints`: counts and the newest ones."""
    one = target(options)
    told = one.client.get(f"{one.path}/checkpoints")
    counts = told["counts"]
    lines = [", ".join(f"{name} {count}" for name, count in counts.items())]
    for entry in told["history"]:
        what = "savepoint" if entry["is_savepoint"] else "checkpoint"
        lines.append(
            f"  {moment(entry['trigger_timestamp'])}  {what} {entry['id']}  {entry['status']}  "
            f"{duration(entry['end_to_end_duration'])}  {entry['state_size']:,} bytes  "
            f"{entry.get('external_path') or entry.get('failure_message') or ''}"
        )
    return shown(told, options, "\n".join(lines))


def _await_end(one: Target) -> str:
    """Wait until the job has ended, and return its last status. A driver that is gone has ended with its job."""
    while True:
        try:
            status = str(one.client.get(f"{one.path}/status")["status"])
        except RemoteError:
            return "CANCELED"
        if status in ENDED:
            return status
        time.sleep(_CANCEL_POLL_S)


def add_take(actions: Any) -> None:
    """Add `penstock savepoint take`."""
    takes = actions.add_parser("take", help="take a savepoint of a running job")
    takes.add_argument("job", help="id of the job, its beginning, or its name")
    takes.add_argument("directory", nargs="?", help="where it goes; without it, the configured one")
    add_place(takes)


def add_commands(commands: Any) -> None:
    """Add the commands to the command line."""
    lists = commands.add_parser("list", help="list the running jobs of this user's drivers")
    lists.add_argument("-a", "--all", action="store_true", help="also those that have ended")
    lists.add_argument(
        "--show-token", action="store_true", help="show the addresses and tokens of the drivers"
    )
    add_place(lists)
    for name, text in _OF_A_JOB.items():
        add_job(commands.add_parser(name, help=text))
    cancels = commands.add_parser("cancel", help="cancel a job, and wait for its end")
    cancels.add_argument("--no-wait", action="store_true", help="do not wait for its end")
    add_job(cancels)
    stops = commands.add_parser("stop", help="stop a job with a savepoint")
    stops.add_argument("-p", "--directory", metavar="DIR", help="where the savepoint goes")
    stops.add_argument(
        "-d", "--drain", action="store_true", help="emit the last watermark before; not to go on"
    )
    add_job(stops)
    fails = commands.add_parser("exceptions", help="show the failures of a job, newest first")
    fails.add_argument("-n", "--most", type=int, default=20, help="how many (20)")
    add_job(fails)
    for add in (add_story, add_logs, add_metrics, add_stacks, add_rescale):
        add(commands)


_OF_A_JOB: Final = {
    "info": "show a job with its vertices",
    "verdict": "say what is wrong with a job, with names and since when",
    "checkpoint": "take a checkpoint of a job now",
    "checkpoints": "show the checkpoints of a job",
}

COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "list": list_jobs,
    "info": info,
    "verdict": verdict,
    "cancel": cancel,
    "stop": stop,
    "checkpoint": checkpoint,
    "checkpoints": checkpoints,
    "exceptions": exceptions,
    "story": story,
    "logs": logs,
    "metrics": metrics,
    "stacks": stacks,
    "rescale": rescale,
}
"""What runs each command."""
