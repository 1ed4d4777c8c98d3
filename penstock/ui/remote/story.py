"""`penstock story`: what happened to a job, in order. Source: none in Flink, whose dashboard shows parts of it on several pages."""

from __future__ import annotations

import argparse
from typing import Any, Final

from penstock.hosting.remote.client import RemoteError
from penstock.hosting.remote.vertices import vertex_of
from penstock.ui.remote.targets import add_job, target
from penstock.ui.remote.texts import moment, shown

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
