"""`penstock rescale`: asks for another parallelism of a running job. The job's scheduler decides; this only asks.

Source: Flink's `/jobs/:jobid/resource-requirements`, which takes the requirements of all vertices at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.hosting.remote.client import RemoteError
from penstock.ui.remote.targets import add_place, target, vertex_of
from penstock.ui.remote.texts import shown


def rescale(options: argparse.Namespace) -> int:
    """`penstock rescale`. Raises RemoteError: the job does not rescale, and the server says why."""
    one = target(options)
    path = f"{one.path}/resource-requirements"
    details = one.client.get(one.path)
    wanted = wanted_parallelism(details, options.parallelism)
    asked = requirements(one.client.get(path), wanted)
    one.client.change("PUT", path, asked)
    names = {vertex["id"]: vertex["name"] for vertex in details["vertices"]}
    lines = [f"'{names[vertex_id]}' to {number}" for vertex_id, number in wanted.items()]
    told = {"job": one.job_id, "requirements": asked}
    return shown(told, options, f"job {one.job_id} rescales: {', '.join(lines)}")


def wanted_parallelism(details: Mapping[str, Any], wishes: Sequence[str]) -> dict[str, int]:
    """Return the wanted parallelism by the vertex's id. `wishes`: numbers for all vertices, and `VERTEX=NUMBER`; later ones win.

    Raises RemoteError: no number, or no such vertex.
    """
    found: dict[str, int] = {}
    for wish in wishes:
        name, sign, number = wish.rpartition("=")
        if not number.isdecimal() or int(number) < 1 or (sign and not name):
            raise RemoteError(
                f"expected a parallelism of 1 or more, or VERTEX=PARALLELISM, got {wish!r}"
            )
        meant = [vertex_of(details, name)] if sign else details["vertices"]
        found.update({vertex["id"]: int(number) for vertex in meant})
    return found


def requirements(known: Mapping[str, Any], wanted: Mapping[str, int]) -> dict[str, Any]:
    """Return the requirements of all vertices. The lower bound stays, unless it is above what is wanted."""
    asked = {}
    for vertex_id, requirement in known.items():
        bounds = requirement["parallelism"]
        upper = wanted.get(vertex_id, bounds["upperBound"])
        lower = min(bounds["lowerBound"], upper)
        asked[vertex_id] = {"parallelism": {"lowerBound": lower, "upperBound": upper}}
    return asked


def add_rescale(commands: Any) -> None:
    """Add the command to the command line."""
    asks = commands.add_parser(
        "rescale", help="ask for another parallelism of a running job; its scheduler may refuse"
    )
    asks.add_argument("job", help="id of the job, its beginning, or its name")
    asks.add_argument(
        "parallelism", nargs="+", metavar="N|VERTEX=N",
        help="the parallelism of all vertices, or of one",
    )  # fmt: skip
    add_place(asks)
