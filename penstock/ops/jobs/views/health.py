"""How TaskManagers are: what their processes use, since when they are silent, and why those that are gone are gone. Flink has no such path.

Shares are from 0 to 1, sizes are bytes, times are epoch ms. What has not been reported is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, TypeAlias

from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.jobs.snapshots import JobSnapshot
from penstock.ops.jobs.views.attempts import Json
from penstock.ops.jobs.views.taskmanagers import head, process, tenants_of

OF_A_PAGE: Final = 100
"""How many TaskManagers one answer has."""
MOST_LOST: Final = 50
"""The newest of those that were lost."""
FIGURES: Final = {
    "cpu": "Status.JVM.CPU.Load",
    "resident": "Status.JVM.Memory.Heap.Used",
    "memory-max": "Status.JVM.Memory.Heap.Max",
    "arrow": "Status.Arrow.Memory.Used",
    "buffers-free": "Status.Shuffle.Netty.AvailableMemorySegments",
    "buffers-total": "Status.Shuffle.Netty.TotalMemorySegments",
    "garbage": "Status.JVM.GarbageCollector.All.TimeMsPerSecond",
    "collections": "Status.JVM.GarbageCollector.All.Count",
    "threads": "Status.JVM.Threads.Count",
    "files-open": "Status.JVM.FileDescriptor.Open",
    "files-max": "Status.JVM.FileDescriptor.Max",
}
"""The figures of a process, and the metric of each."""
ORDERS: Final = ("id", "host", "cpu", "resident", "heard", "slots-free", "tasks")
"""What TaskManagers can be sorted by. Those that are late come first where nothing is chosen."""
_DIGITS: Final = 3
_MS: Final = 1000.0
Values: TypeAlias = Callable[[str], Mapping[str, str]]
"""The metrics of a TaskManager, by its name."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The TaskManagers that a request asks for.

    `page`: from 0. `name`: only this TaskManager, also if it is gone; "": all.
    """

    sort: str = ""
    is_descending: bool = False
    page: int = 0
    name: str = ""


def health(jobs: Iterable[JobSnapshot], now_ms: int, chosen: Chosen, values: Values) -> Json:
    """`/taskmanagers/health`."""
    there: list[Json] = []
    gone: list[Json] = []
    for job in jobs:
        tenants = tenants_of(job)
        for one in job.taskmanagers:
            about = {**head(job, one), "job-name": job.facts.name}
            if chosen.name not in {"", about["id"]}:
                continue
            if one.lost is None and not job.status.is_terminal:
                slots = tenants.get(one.resource_id, {})
                there.append({
                    **about,
                    **process(job, one, now_ms, len(slots)),
                    "cores": one.registered.cores,
                    "tasks": sum(map(len, slots.values())),
                })
            elif one.lost is not None or chosen.name:
                reason = f"its job has ended: {job.status}" if one.lost is None else one.lost
                gone.append({**about, "reason": without_credentials(reason)})
    rows = _sorted(there, chosen, values)
    pages = max(1, math.ceil(len(rows) / OF_A_PAGE))
    page = min(chosen.page, pages - 1)
    shown = rows[page * OF_A_PAGE : (page + 1) * OF_A_PAGE]
    return {
        "now": now_ms,
        "total": len(rows),
        "late": sum(one["late"] for one in rows),
        "slots-total": sum(one["slots-total"] for one in rows),
        "slots-free": sum(one["slots-free"] for one in rows),
        "page": page,
        "pages": pages,
        "taskmanagers": [_with_figures(one, values) for one in shown],
        "lost-total": len(gone),
        "lost": sorted(gone, key=itemgetter("heard"), reverse=True)[:MOST_LOST],
    }


def _sorted(there: Sequence[Json], chosen: Chosen, values: Values) -> Sequence[Json]:
    """Unknown figures come last, in both directions."""
    rows, sort = sorted(there, key=lambda one: (not one["late"], one["id"])), chosen.sort
    if not sort:
        return rows
    if sort in FIGURES:
        rows = [_with_figures(one, values) for one in rows]
    known = [one for one in rows if one[sort] is not None]
    known.sort(key=itemgetter(sort), reverse=chosen.is_descending)
    return [*known, *(one for one in rows if one[sort] is None)]


def _with_figures(row: Json, values: Values) -> Json:
    return row if "cpu" in row else {**row, **figures_of(values(row["id"]))}


def figures_of(values: Mapping[str, str]) -> Json:
    """Return what a process has reported of itself, by the names of this answer."""
    found = {name: _number(values.get(metric)) for name, metric in FIGURES.items()}
    if found["garbage"] is not None:
        found["garbage"] = round(found["garbage"] / _MS, _DIGITS)
    return found


def _number(text: str | None) -> float | None:
    """Read a figure. A negative one is one that the system does not report."""
    try:
        value = math.nan if text is None else float(text)
    except ValueError:
        return None
    if math.isnan(value) or value < 0:
        return None
    return int(value) if value.is_integer() else round(value, _DIGITS)
