"""`penstock rescale`: asks for another parallelism of a running job, which changes when it has the slots; this only asks.

Source: Flink's `/jobs/:jobid/resource-requirements`, which takes the requirements of all vertices at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from penstock.ops.cli.remote.targets import add_place, target
from penstock.ops.cli.remote.texts import shown
from penstock.ops.remote.client import RemoteError
from penstock.ops.remote.vertices import vertex_of


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
