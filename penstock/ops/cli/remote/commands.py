"""The commands: each asks a driver and prints what it says. Returns of all: the exit code, 0 if what was asked for is so.

Source: Flink CliFrontend; differs: a job may be named by the beginning of its id, and needs no name if only one runs.

`penstock rescale`: asks for another parallelism of a running job, which changes when it has the slots; this only asks.

Source: Flink's `/jobs/:jobid/resource-requirements`, which takes the requirements of all vertices at once.

`penstock stacks`: what the threads of a job's TaskManagers do, or where the tasks of a vertex spend their time.

Source: Flink's paths of thread dumps and flame graphs. Differs: a flame graph is shown as text, the heaviest frames first.

`penstock metrics`: metrics of a job, a vertex, its subtasks, a TaskManager or the driver, by Flink's names.

Source: Flink's paths of metrics. Differs: values come without their names being known before, and names may have `*`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias

from penstock.ops.cli.remote.logs import add_logs, logs
from penstock.ops.cli.remote.targets import (
    ENDED,
    Target,
    add_job,
    add_place,
    clients,
    is_session,
    target,
    targets,
    taskmanagers_of,
)
from penstock.ops.cli.remote.texts import complain, duration, indented, moment, shown
from penstock.ops.remote.client import RemoteError, RestClient, vertex_of


def rescale(options: argparse.Namespace) -> int:
    """`penstock rescale`. Raises RemoteError: the job does not rescale, and the server says why."""
    one = target(options)
    path = f"{one.path}/resource-requirements"
    details = one.client.get(one.path)
    wanted = wanted_parallelism(details, options.parallelism)
    asked = requirements(one.client.get(path), wanted)
    one.client.change("PUT", path, asked)
    names = {vertex["id"]: vertex["name"] for vertex in details["vertices"]}
    lines = [f"'{names[vertex_id]}' to {_told(bounds)}" for vertex_id, bounds in wanted.items()]
    told = {"job": one.job_id, "requirements": asked}
    return shown(told, options, f"job {one.job_id} rescales: {', '.join(lines)}")


Bounds: TypeAlias = tuple[int | None, int]
"""Lower and upper bound. The lower one None: it stays, unless it is above the upper one."""


def wanted_parallelism(details: Mapping[str, Any], wishes: Sequence[str]) -> dict[str, Bounds]:
    """Return the wanted parallelism by the vertex's id. `wishes`: `NUMBER` or `LOWER..UPPER` for all vertices, and `VERTEX=` with one of these;
    later ones win.

    Raises RemoteError: no number, or no such vertex.
    """
    found: dict[str, Bounds] = {}
    for wish in wishes:
        name, sign, text = wish.rpartition("=")
        bounds = _bounds(text)
        if bounds is None or (sign and not name):
            raise RemoteError(
                "expected a parallelism of 1 or more, as 4 or as 2..8, or VERTEX=PARALLELISM, "
                f"got {wish!r}"
            )
        if sign:
            found[vertex_of(details, name)["id"]] = bounds
        else:
            found |= {one["id"]: _within(bounds, one) for one in details["vertices"]}
    return found


def _within(bounds: Bounds, vertex: Mapping[str, Any]) -> Bounds:
    """Return what the vertex can have of a wish for all vertices."""
    lower, upper = bounds
    most = vertex.get("maxParallelism", upper)
    return None if lower is None else min(lower, most), min(upper, most)


def _bounds(text: str) -> Bounds | None:
    lower, dots, upper = text.rpartition("..")
    numbers = [lower, upper] if dots else [upper]
    if not all(one.isdecimal() and int(one) >= 1 for one in numbers):
        return None
    return int(lower) if dots else None, int(upper)


def _told(bounds: Bounds) -> str:
    lower, upper = bounds
    return f"{upper}" if lower is None else f"{lower}..{upper}"


def requirements(known: Mapping[str, Any], wanted: Mapping[str, Bounds]) -> dict[str, Any]:
    """Return the requirements of all vertices. A vertex that is not named keeps what it has."""
    asked = {}
    for vertex_id, requirement in known.items():
        bounds = requirement["parallelism"]
        wish, upper = wanted.get(vertex_id, (bounds["lowerBound"], bounds["upperBound"]))
        lower = min(bounds["lowerBound"], upper) if wish is None else wish
        asked[vertex_id] = {"parallelism": {"lowerBound": lower, "upperBound": upper}}
    return asked


def add_rescale(commands: Any) -> None:
    """Add the command to the command line."""
    asks = commands.add_parser("rescale", help="change the parallelism of a running job")
    asks.add_argument("job", help="id of the job, its beginning, or its name")
    asks.add_argument(
        "parallelism", nargs="+", metavar="N|VERTEX=N",
        help="the parallelism of all vertices, or of one; N is a number, or a range as 2..8",
    )  # fmt: skip
    add_place(asks)


STATES: Final = {"on-cpu": "on_cpu", "off-cpu": "off_cpu", "full": "full"}
_ENDED: Final = -1
_DISABLED: Final = -2
_POLL_S: Final = 0.2
_PATIENCE_S: Final = 60.0
_LEAST_SHARE: Final = 0.01


def stacks(options: argparse.Namespace) -> int:
    """`penstock stacks`. Returns 1 if no TaskManager has answered."""
    one = target(options)
    if options.vertex is not None:
        return _of_vertex(one, options)
    if options.subtask is not None:
        raise RemoteError("--subtask needs a vertex")
    dumps: dict[str, Any] = {}
    failures = []
    for name in taskmanagers_of(one):
        try:
            told = one.client.get(f"/taskmanagers/{name}/thread-dump")
            dumps[name] = told["threadInfos"]
        except RemoteError as error:  # It may have ended meanwhile.
            failures.append(f"{name}: {error}")
    if not dumps:
        why = "; ".join(failures) or "it has none now"
        raise RemoteError(f"no TaskManager of job {one.job_id} tells its threads: {why}")
    texts = [
        f"TaskManager {name}\n\n"
        + "".join(f"{thread['stringifiedThreadInfo'].rstrip()}\n\n" for thread in threads)
        for name, threads in dumps.items()
    ]
    return shown(dumps, options, "\n".join(texts).rstrip())


def _of_vertex(one: Target, options: argparse.Namespace) -> int:
    vertex = vertex_of(one.client.get(one.path), options.vertex)
    graph = _sampled(one, vertex, options)
    root = graph["data"]
    samples = root["value"]
    what = "" if options.subtask is None else f"subtask {options.subtask} of "
    state = {"full": "", "on-cpu": " on a processor", "off-cpu": " that waited"}[options.state]
    head = f"{what}'{vertex['name']}': {samples} samples{state}"
    return shown(graph, options, "\n".join([head, *_tree(root, samples)]))


def _sampled(one: Target, vertex: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Wait for the samples, which the first request starts. Raises RemoteError: the tasks have ended, or it takes too long."""
    path = f"{one.path}/vertices/{vertex['id']}/flamegraph"
    query = {"type": STATES[options.state], "subtaskindex": options.subtask}
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        graph: dict[str, Any] = one.client.get(path, **query)
        if graph.get("data") is not None:
            return graph
        if graph["endTimestamp"] == _ENDED:
            raise RemoteError(f"no task of '{vertex['name']}' is running, so it has no stacks")
        if graph["endTimestamp"] == _DISABLED:
            raise RemoteError("the job has rest.flamegraph.enabled: false, so nothing is sampled")
        if time.monotonic() > deadline:
            raise RemoteError(
                f"there are no samples of '{vertex['name']}' after {_PATIENCE_S:.0f} s. The "
                "TaskManagers may be too busy to answer; ask again"
            )
        time.sleep(_POLL_S)


def _tree(root: dict[str, Any], samples: int) -> Iterator[str]:
    """Lines of a tree, the outermost frame first. A line is indented where stacks part, not for each frame."""
    left = [(child, 0) for child in reversed(root["children"])]
    while left:
        node, depth = left.pop()
        share = node["value"] / samples if samples else 0.0
        if share < _LEAST_SHARE:
            continue
        yield f"{share:>5.0%}  {'  ' * depth}{node['name']}"
        children = node["children"]
        # A frame that is sometimes the innermost one parts from those below it, too.
        parts = len(children) > 1 or (children and children[0]["value"] < node["value"])
        left += [(child, depth + bool(parts)) for child in reversed(children)]


def add_stacks(commands: Any) -> None:
    """Add the command to the command line."""
    tells = commands.add_parser(
        "stacks",
        help="show what the threads of a job's TaskManagers do; with a vertex, where its tasks "
        "spend their time",
    )
    add_job(tells)
    tells.add_argument(
        "vertex", nargs="?", help="a vertex: its name, a part of it, or its id; sampled for 5 s"
    )
    tells.add_argument("--subtask", metavar="N", type=int, help="one subtask, counted from 0")
    tells.add_argument(
        "--state", choices=STATES, default="full",
        help="which samples of a vertex: on a processor, waiting, or all (full)",
    )  # fmt: skip


_AT_A_TIME: Final = 50
"""How many names a request has, because servers bound the length of an address."""
_NONE: Final = -(2**63)
"""A watermark that there is not yet."""
_KINDS: Final = ("min", "max", "avg", "sum", "skew")


@dataclass(frozen=True, slots=True)
class _Place:
    """Whose metrics. `what`: for the user. `query`: which of several, where values are aggregated."""

    what: str
    path: str
    query: dict[str, str]
    is_aggregated: bool


def metrics(options: argparse.Namespace) -> int:
    """`penstock metrics`. Returns 1 if a metric that is named is not there."""
    one = target(options)
    place = _place(one, options)
    wanted = [name.strip() for text in options.get for name in text.split(",") if name.strip()]
    known = [str(found["id"]) for found in one.client.get(place.path, **place.query)]
    names = _chosen(known, wanted)
    values = _values(one.client, place, names, options.agg)
    missing = [name for name in wanted if not any(fnmatchcase(one, name) for one in known)]
    for name in missing:
        complain(f"{place.what} has no metric {name!r}")
    none = "" if known else f"{place.what} has no metrics yet"
    shown(values, options, "\n".join(_lines(values)) or none)
    return 1 if missing else 0


def _place(one: Target, options: argparse.Namespace) -> _Place:
    """Raises RemoteError: no such vertex, or options that do not fit each other."""
    whose = [options.vertex, options.taskmanager, options.driver or None]
    if sum(name is not None for name in whose) > 1:
        raise RemoteError("--vertex, --taskmanager and --driver exclude each other")
    if options.subtask is not None and options.vertex is None:
        raise RemoteError("--subtask needs --vertex")
    is_asked = options.agg is not None
    if options.driver:
        _refuse_agg(options)
        return _Place("the driver", "/jobmanager/metrics", {}, is_aggregated=False)
    if options.taskmanager is not None:
        _refuse_agg(options)
        name = options.taskmanager
        return _Place(
            f"TaskManager {name}", f"/taskmanagers/{name}/metrics", {}, is_aggregated=False
        )
    if options.vertex is None:
        path = "/jobs/metrics" if is_asked else f"{one.path}/metrics"
        query = {"jobs": one.job_id} if is_asked else {}
        return _Place(f"job {one.job_id}", path, query, is_aggregated=is_asked)
    vertex = vertex_of(one.client.get(one.path), options.vertex)
    path = f"{one.path}/vertices/{vertex['id']}/subtasks"
    what = f"vertex '{vertex['name']}'"
    if options.subtask is not None and options.subtask.isdecimal() and not is_asked:
        what = f"subtask {options.subtask} of {what}"
        return _Place(what, f"{path}/{options.subtask}/metrics", {}, is_aggregated=False)
    query = {} if options.subtask is None else {"subtasks": options.subtask}
    return _Place(what, f"{path}/metrics", query, is_aggregated=True)


def _refuse_agg(options: argparse.Namespace) -> None:
    if options.agg is not None:
        raise RemoteError("--agg is for a job and for the subtasks of a vertex")


def _chosen(known: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the names that are wanted, in the order of the wishes; without wishes all."""
    if not wanted:
        return sorted(known)
    found = [name for wish in wanted for name in sorted(known) if fnmatchcase(name, wish)]
    return list(dict.fromkeys(found))


def _values(
    client: RestClient, place: _Place, names: Sequence[str], agg: str | None
) -> list[dict[str, Any]]:
    query: dict[str, str] = dict(place.query)
    if place.is_aggregated and agg is not None:
        query["agg"] = agg
    found: list[dict[str, Any]] = []
    for first in range(0, len(names), _AT_A_TIME):
        asked = ",".join(names[first : first + _AT_A_TIME])
        found += client.get(place.path, get=asked, **query)
    order = {name: place for place, name in enumerate(names)}
    return sorted(found, key=lambda one: order.get(one["id"], len(order)))


def _lines(values: Sequence[dict[str, Any]]) -> list[str]:
    width = max((len(one["id"]) for one in values), default=0)
    if not values or "value" in values[0]:
        return [f"{one['id']:<{width}}  {one['value']}" for one in values]
    kinds = [kind for kind in _KINDS if kind in values[0]]
    head = f"{'':<{width}}" + "".join(f"{kind:>16}" for kind in kinds)
    rows = [
        f"{one['id']:<{width}}" + "".join(f"{_number(one.get(kind)):>16}" for kind in kinds)
        for one in values
    ]
    return [head, *rows]


def _number(value: float | str | None) -> str:
    """`value`: a text if it is no finite number."""
    if value is None or isinstance(value, str) or value <= _NONE:
        return "-"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


def add_metrics(commands: Any) -> None:
    """Add the command to the command line."""
    tells = commands.add_parser(
        "metrics",
        help="show metrics of a job, a vertex, its subtasks, a TaskManager or the driver",
    )
    tells.add_argument("--vertex", help="a vertex: its name, a part of it, or its id")
    tells.add_argument(
        "--subtask", metavar="N", help="a subtask, counted from 0, or several, for example 1,3-5"
    )
    tells.add_argument("--taskmanager", metavar="ID", help="a TaskManager, for example tm-1-7e7cae")
    tells.add_argument("--driver", action="store_true", help="the driver's own process")
    tells.add_argument(
        "--get", metavar="NAME,...", action="append", default=[],
        help="only these; a name may have * in it",
    )  # fmt: skip
    tells.add_argument(
        "--agg", metavar="KIND,...", help="which of min, max, avg, sum and skew over the subtasks"
    )
    add_job(tells)


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
