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
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias

from penstock.engine.model.elastic import requirements_from_plain, requirements_to_plain
from penstock.engine.model.ids import VertexId
from penstock.ops.cli.remote.logs import add_logs
from penstock.ops.cli.remote.targets import (
    ENDED,
    Target,
    add_command,
    add_job,
    add_place,
    answers,
    clients,
    is_session,
    overviews,
    target,
    taskmanagers_of,
)
from penstock.ops.cli.remote.texts import (
    complain,
    duration,
    indented,
    moment,
    show,
    shown,
    tasks_text,
)
from penstock.ops.remote.client import (
    LateAnswer,
    RemoteError,
    RestClient,
    requirements_with,
    vertex_of,
)

Answer: TypeAlias = tuple[Any, str]
"""As it is printed with --json, and as text."""


def _of_job(
    commands: Any, name: str, answer: Callable[[Target, argparse.Namespace], Answer], text: str
) -> argparse.ArgumentParser:
    """Add a command about one job, which prints this answer. `text`: its help."""

    def run(options: argparse.Namespace) -> int:
        value, shown_text = answer(target(options), options)
        return shown(value, options, shown_text)

    added = add_command(commands, name, run, text)
    add_job(added)
    return added


def rescale(options: argparse.Namespace) -> int:
    """`penstock rescale`. Raises RemoteError: the job does not rescale, and the server says why."""
    one = target(options)
    path = f"{one.path}/resource-requirements"
    details = one.client.get(one.path)
    wanted = wanted_parallelism(details, options.parallelism)
    now = requirements_from_plain(one.client.get(path))
    bounds = requirements_with(details, now, wanted)
    asked = requirements_to_plain({VertexId(one): of for one, of in bounds.items()})
    one.client.change("PUT", path, asked)
    names = {vertex["id"]: vertex["name"] for vertex in details["vertices"]}
    lines = [f"'{names[vertex_id]}' to {_bounds_text(wish)}" for vertex_id, wish in wanted.items()]
    value = {"job": one.job_id, "requirements": asked}
    return shown(
        value, options, f"job {one.job_id} rescales when it has the slots: {', '.join(lines)}"
    )


Bounds: TypeAlias = int | tuple[int, int]
"""Lower and upper bound, or the upper one: the lower one stays, unless it is above."""


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
    if isinstance(bounds, int):
        return min(bounds, int(vertex.get("maxParallelism", bounds)))
    most = int(vertex.get("maxParallelism", bounds[1]))
    return min(bounds[0], most), min(bounds[1], most)


def _bounds(text: str) -> Bounds | None:
    lower, dots, upper = text.rpartition("..")
    numbers = [lower, upper] if dots else [upper]
    if not all(one.isdecimal() and int(one) >= 1 for one in numbers):
        return None
    return (int(lower), int(upper)) if dots else int(upper)


def _bounds_text(bounds: Bounds) -> str:
    return str(bounds) if isinstance(bounds, int) else "..".join(map(str, bounds))


def add_rescale(commands: Any) -> None:
    """Add the command to the command line."""
    text = "change the parallelism of a running job"
    asks = add_command(commands, "rescale", rescale, text)
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


def stacks(one: Target, options: argparse.Namespace) -> Answer:
    """`penstock stacks`. Raises RemoteError: no TaskManager has answered."""
    if options.vertex is not None:
        return _of_vertex(one, options)
    if options.subtask is not None:
        raise RemoteError("--subtask needs a vertex")
    dumps: dict[str, Any] = {}
    failures = []
    for name in taskmanagers_of(one):
        try:
            dump = one.client.get(f"/taskmanagers/{name}/thread-dump")
            dumps[name] = dump["threadInfos"]
        except RemoteError as error:  # It may have ended meanwhile.
            failures.append(f"{name}: {error}")
    if not dumps:
        why = "; ".join(failures) or "it has none now"
        raise RemoteError(f"no TaskManager of job {one.job_id} reports its threads: {why}")
    texts = [
        f"TaskManager {name}\n\n"
        + "".join(f"{thread['stringifiedThreadInfo'].rstrip()}\n\n" for thread in threads)
        for name, threads in dumps.items()
    ]
    return dumps, "\n".join(texts).rstrip()


def _of_vertex(one: Target, options: argparse.Namespace) -> Answer:
    vertex = vertex_of(one.client.get(one.path), options.vertex)
    graph = _sampled(one, vertex, options)
    root = graph["data"]
    samples = root["value"]
    what = "" if options.subtask is None else f"subtask {options.subtask} of "
    state = {"full": "", "on-cpu": " on a processor", "off-cpu": " that waited"}[options.state]
    age = duration(max(0, one.client.get(one.path)["now"] - graph["endTimestamp"]))
    head = f"{what}'{vertex['name']}': {samples} samples{state}, the last one {age} ago"
    return graph, "\n".join([head, *_tree(root, samples)])


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
    added = _of_job(
        commands, "stacks", stacks, "show what the threads of a job's TaskManagers do; with a "
        "vertex, where its tasks spend their time",
    )  # fmt: skip
    added.add_argument(
        "vertex", nargs="?", help="a vertex: its name, a part of it, or its id; sampled for 5 s"
    )
    added.add_argument("--subtask", metavar="N", type=int, help="one subtask, counted from 0")
    added.add_argument(
        "--state", choices=STATES, default="full",
        help="which samples of a vertex: on a processor, waiting, or all (full)",
    )  # fmt: skip


_AT_A_TIME: Final = 50
"""How many names a request has, because servers bound the length of an address."""
_NONE: Final = -(2**63)
"""A watermark that there is not yet."""
_LAST: Final = 2**63 - 1
"""The last watermark. JSON's numbers are floats, of which the next one is 2**63."""
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
        none = str(_NONE)
        return [
            f"{one['id']:<{width}}  {'-' if one['value'] == none else one['value']}"
            for one in values
        ]
    kinds = [kind for kind in _KINDS if kind in values[0]]
    rows = [["", *kinds]]
    rows += [[one["id"], *(_number(one.get(kind)) for kind in kinds)] for one in values]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([
            name.ljust(width),
            *(cell.rjust(each) for cell, each in zip(cells, widths[1:], strict=True)),
        ])
        for name, *cells in rows
    ]


def _number(value: float | str | None) -> str:
    """`value`: a text if it is no finite number."""
    if value is None or isinstance(value, str) or value <= _NONE:
        return "-"
    if value == int(value):
        return f"{min(int(value), _LAST):,}"
    return f"{value:,.3f}"


def add_metrics(commands: Any) -> None:
    """Add the command to the command line."""
    text = "show metrics of a job, a vertex, its subtasks, a TaskManager or the driver"
    added = add_command(commands, "metrics", metrics, text)
    added.add_argument("--vertex", help="a vertex: its name, a part of it, or its id")
    added.add_argument(
        "--subtask", metavar="N", help="a subtask, counted from 0, or several, for example 1,3-5"
    )
    added.add_argument("--taskmanager", metavar="ID", help="a TaskManager, for example tm-1-7e7cae")
    added.add_argument("--driver", action="store_true", help="the driver's own process")
    added.add_argument(
        "--get", metavar="NAME,...", action="append", default=[],
        help="only these; a name may have * in it",
    )  # fmt: skip
    added.add_argument(
        "--agg", metavar="KIND,...", help="which of min, max, avg, sum and skew over the subtasks"
    )
    add_job(added)


_CANCEL_POLL_S: Final = 0.2
_MOST_OF_MACHINE: Final = 1000


def story(one: Target, options: argparse.Namespace) -> Answer:
    """`penstock story`."""
    query: dict[str, object] = {}
    if options.part is not None:
        name, subtask = _parts(options.part)
        query["vertexid"] = vertex_of(one.client.get(one.path), name)["id"]
        query["subtaskindex"] = subtask
    if options.machine:
        query["machine"] = _MOST_OF_MACHINE
    answer = one.client.get(f"{one.path}/story", **query)
    lines = [f"({answer['forgotten']} events before are forgotten)"] if answer["forgotten"] else []
    lines += [f"{moment(event['timestamp'])}  {event['text']}" for event in answer["events"]]
    if options.machine:
        lines += ["", "what the machine of the job did:"]
        lines += [f"  {line}" for line in answer["machine"]]
    return answer, "\n".join(lines)


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
    added = _of_job(commands, "story", story, "show what happened to a job, in order")
    added.add_argument(
        "part", nargs="?", metavar="VERTEX/SUBTASK",
        help="a vertex, or one of its subtasks counted from 0: the states of its attempts, too",
    )  # fmt: skip
    added.add_argument(
        "--machine", action="store_true",
        help="also each change of state with the event of the job's machine that caused it",
    )  # fmt: skip


def list_jobs(options: argparse.Namespace) -> int:
    """`penstock list`: running jobs, with `-a` all."""
    if options.show_token:
        for client in clients(options):
            show(f"{client.address} {client.token or ''}")
        return 0
    asked, silent = answers(options, lambda one: (overviews(one), is_session(one)))
    found = [Target(client, job) for client, (jobs, _) in asked for job in jobs]
    found = [one for one in found if options.all or one.is_running]
    addresses = {client.address for client, (_, is_one) in asked if is_one}
    jobs = [
        {"address": at, "session": at in addresses, **one.overview}
        for one in found
        for at in (one.client.address,)
    ]
    lines = [
        f"{moment(one.overview['start-time'])}  {one.job_id}  {one.overview['state']:<10} "
        f"{one.overview['name']}  ({one.client.address})"
        for one in found
    ]
    kind = "jobs" if options.all else "running jobs"
    lines += [] if lines else [f"no {kind}"]
    lines += [f"session at {address} takes jobs" for address in sorted(addresses)]
    shown(jobs, options, "\n".join(lines))
    for sentence in silent:
        complain(sentence)
    return 1 if silent else 0


def info(one: Target, _: argparse.Namespace) -> Answer:
    """`penstock info`: a job with its last failure and its vertices."""
    details = one.client.get(one.path)
    state, began = details["state"], moment(details["start-time"])
    since = details["timestamps"][state] or details["start-time"]
    is_ended = state in ENDED
    held = "" if is_ended else f", for {duration(details['now'] - since)}"
    took = f", ran {duration(details['duration'])}" if is_ended else ""
    lines = [
        f"job {details['name']!r} ({details['jid']})",
        f"status {state}, since {moment(since)}{held}; started {began}{took}",
    ]
    failures = one.client.get(f"{one.path}/exceptions", maxExceptions=1)
    for entry in failures["exceptionHistory"]["entries"]:
        cause = str(entry["stacktrace"]).partition("\n")[0]
        lines.append(f"last failure {moment(entry['timestamp'])}: {cause}")
    with suppress(RemoteError):  # A history server has no metrics.
        lines += [_totals(one, details)] if is_ended else []
    read: dict[str, int] = {}
    # Flink has no such path, and counts what a source reads as nothing.
    with suppress(RemoteError):
        nodes = one.client.get(f"{one.path}/graph")["nodes"]
        read = {node["id"]: node["total"]["records-in"] for node in nodes}
    for vertex in details["vertices"]:
        metrics = vertex["metrics"]
        records_in = read.get(vertex["id"], metrics["read-records"])
        lines.append(
            f"  {vertex['name']}: {tasks_text(vertex)}; records in {records_in:,}, "
            f"out {metrics['write-records']:,}"
        )
    return details, "\n".join(lines)


def _totals(one: Target, details: Mapping[str, Any]) -> str:
    """Return what all sources have emitted and all sinks were given, also where they are chained to each other."""
    paths = [
        f"{one.path}/vertices/{vertex['id']}/subtasks/metrics" for vertex in details["vertices"]
    ]
    read, written = (
        sum(_summed(one.client, path, wanted) for path in paths)
        for wanted in ("Source__*.numRecordsOut", "Sink__*.numRecordsIn")
    )
    return f"in total: {read:,} records from its sources, {written:,} into its sinks"


def _summed(client: RestClient, path: str, wanted: str) -> int:
    names = _chosen([str(known["id"]) for known in client.get(path)], [wanted])
    values = client.get(path, get=",".join(names), agg="sum") if names else ()
    return sum(int(value["sum"]) for value in values)


def verdict(one: Target, _: argparse.Namespace) -> Answer:
    """`penstock verdict`: what is wrong with a job."""
    answer = one.client.get(f"{one.path}/bottleneck")
    return answer, "\n".join(answer["sentences"])


def cancel(options: argparse.Namespace) -> int:
    """`penstock cancel`: waits until the job has ended, unless `--no-wait` is given."""
    one = target(options)
    one.client.change("PATCH", one.path, mode="cancel")
    status = "CANCELLING" if options.no_wait else _await_end(one)
    value = {"job": one.job_id, "status": status}
    shown(value, options, f"job {one.job_id}: {status}")
    return 0 if status in {"CANCELED", "CANCELLING"} else 1


def stop(one: Target, options: argparse.Namespace) -> Answer:
    """`penstock stop`: with a savepoint."""
    body = {"targetDirectory": options.directory, "drain": options.drain}
    result = _result(one, "stop", body, "savepoints")
    return result, f"stopped; savepoint: {result['location']}"


def take_savepoint(one: Target, options: argparse.Namespace) -> Answer:
    """`penstock savepoint JOB [DIR]`."""
    body = {"target-directory": options.directory, "cancel-job": False}
    result = _result(one, "savepoints", body, "savepoints")
    return result, f"savepoint: {result['location']}"


def checkpoint(one: Target, _: argparse.Namespace) -> Answer:
    """`penstock checkpoint JOB`."""
    result = _result(one, "checkpoints", {"checkpointType": "CONFIGURED"}, "checkpoints")
    return result, f"checkpoint {result['checkpointId']} is complete"


def _result(one: Target, way: str, body: dict[str, Any], kind: str) -> dict[str, Any]:
    """Start an operation, and wait for its result."""
    found = one.client.operation(f"{one.path}/{way}", body, f"{one.path}/{kind}/{{}}")
    return {"job": one.job_id, **found}


def exceptions(one: Target, options: argparse.Namespace) -> Answer:
    """`penstock exceptions`: newest first."""
    answer = one.client.get(f"{one.path}/exceptions", maxExceptions=options.most)
    lines = [
        f"{moment(entry['timestamp'])}  {entry.get('taskName', 'the job as a whole')}\n"
        f"{indented(entry['stacktrace'])}"
        for entry in answer["exceptionHistory"]["entries"]
    ]
    return answer, "\n\n".join(lines) or "no failures"


def checkpoints(one: Target, _: argparse.Namespace) -> Answer:
    """`penstock checkpoints`: counts and the newest ones."""
    answer = one.client.get(f"{one.path}/checkpoints")
    lines = [", ".join(f"{name} {count}" for name, count in answer["counts"].items())]
    for entry in answer["history"]:
        what = "savepoint" if entry["is_savepoint"] else "checkpoint"
        lines.append(
            f"  {moment(entry['trigger_timestamp'])}  {what} {entry['id']}  {entry['status']}  "
            f"{duration(entry['end_to_end_duration'])}  {entry['state_size']:,} bytes  "
            f"{entry.get('external_path') or entry.get('failure_message') or ''}"
        )
    return answer, "\n".join(lines)


def _await_end(one: Target) -> str:
    """Wait until the job has ended, and return its last status. A driver that is gone has ended with its job. Raises LateAnswer."""
    while True:
        try:
            status = str(one.client.get(f"{one.path}/status")["status"])
        except LateAnswer:
            raise
        except RemoteError:
            return "CANCELED"
        if status in ENDED:
            return status
        time.sleep(_CANCEL_POLL_S)


def add_take(actions: Any) -> None:
    """Add `penstock savepoint take`."""
    takes = _of_job(actions, "take", take_savepoint, "take a savepoint of a running job")
    takes.add_argument("directory", nargs="?", help="where it goes; without it, the configured one")


def add_commands(commands: Any) -> None:
    """Add the commands to the command line."""
    text = "list the running jobs of this user's drivers"
    lists = add_command(commands, "list", list_jobs, text)
    lists.add_argument("-a", "--all", action="store_true", help="also those that have ended")
    lists.add_argument(
        "--show-token", action="store_true", help="show the addresses and tokens of the drivers"
    )
    add_place(lists)
    _of_job(commands, "info", info, "show a job with its last failure and its vertices")
    text = "say what is wrong with a job, with names and since when"
    _of_job(commands, "verdict", verdict, text)
    _of_job(commands, "checkpoint", checkpoint, "take a checkpoint of a job now")
    _of_job(commands, "checkpoints", checkpoints, "show the checkpoints of a job")
    cancels = add_command(commands, "cancel", cancel, "cancel a job, and wait for its end")
    cancels.add_argument("--no-wait", action="store_true", help="do not wait for its end")
    add_job(cancels)
    stops = _of_job(commands, "stop", stop, "stop a job with a savepoint")
    stops.add_argument("-p", "--directory", metavar="DIR", help="where the savepoint goes")
    stops.add_argument(
        "-d", "--drain", action="store_true", help="emit the last watermark before; not to go on"
    )
    text = "show the failures of a job, newest first"
    fails = _of_job(commands, "exceptions", exceptions, text)
    fails.add_argument("-n", "--most", type=int, default=20, help="how many (20)")
    for add in (add_story, add_logs, add_metrics, add_stacks, add_rescale):
        add(commands)
