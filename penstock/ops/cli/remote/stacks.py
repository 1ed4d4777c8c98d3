"""`penstock stacks`: what the threads of a job's TaskManagers do, or where the tasks of a vertex spend their time.

Source: Flink's paths of thread dumps and flame graphs. Differs: a flame graph is shown as text, the heaviest frames first.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any, Final

from penstock.ops.cli.remote.targets import Target, add_job, target, taskmanagers_of
from penstock.ops.cli.remote.texts import shown
from penstock.ops.remote.client import RemoteError
from penstock.ops.remote.vertices import vertex_of

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
