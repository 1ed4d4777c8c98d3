"""`penstock metrics`: metrics of a job, a vertex, its subtasks, a TaskManager or the driver, by Flink's names.

Source: Flink's paths of metrics. Differs: values come without their names being known before, and names may have `*`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from penstock.ops.cli.remote.targets import Target, add_job, target
from penstock.ops.cli.remote.texts import complain, shown
from penstock.ops.remote.client import RemoteError, RestClient
from penstock.ops.remote.vertices import vertex_of

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
