"""How TaskManagers are: what their processes use, since when they are silent, and why those that are gone are gone. Flink has no such path.

Shares are from 0 to 1, sizes are bytes, times are epoch ms. What has not been reported is None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, TypeAlias

from penstock.engine.model.ids import AllocationId, ResourceId, taskmanager_name
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.jobs.snapshots import JobSnapshot, TaskManagerSnapshot
from penstock.ops.jobs.views.attempts import Json

OF_A_PAGE: Final = 100
"""TaskManagers that are told together."""
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
"""What is told of a process, and the metric that says it."""
ORDERS: Final = ("id", "host", "cpu", "resident", "heard", "slots-free", "tasks")
"""What TaskManagers can be sorted by. Those that are late come first where nothing is chosen."""
_DIGITS: Final = 3
_MS: Final = 1000.0
Values: TypeAlias = Callable[[str], Mapping[str, str]]
"""The metrics of a TaskManager, by its name."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """`page`: from 0. `name`: only this TaskManager, also if it is gone; "": all."""

    sort: str = ""
    is_descending: bool = False
    page: int = 0
    name: str = ""


class Health:
    """`/taskmanagers/health`. Told of one job after the other, so that its caller can do something else between them."""

    def __init__(self, now_ms: int, chosen: Chosen, values: Values) -> None:
        self._now_ms = now_ms
        self._chosen = chosen
        self._values = values
        self._there: list[Json] = []
        self._gone: list[Json] = []

    def add(self, job: JobSnapshot) -> None:
        """Add the TaskManagers of a job."""
        used = _tasks_of(job)
        for one in job.taskmanagers:
            name = taskmanager_name(job.job_id, one.resource_id)
            if self._chosen.name in {"", name}:
                is_there = one.lost is None and not job.status.is_terminal
                if is_there:
                    self._there.append(self._present(job, one, name, used))
                elif one.lost is not None or self._chosen.name:
                    self._gone.append(_gone(job, one, name))

    def told(self) -> Json:
        """Return the answer."""
        rows = self._sorted()
        pages = max(1, math.ceil(len(rows) / OF_A_PAGE))
        page = min(self._chosen.page, pages - 1)
        shown = rows[page * OF_A_PAGE : (page + 1) * OF_A_PAGE]
        newest = sorted(self._gone, key=itemgetter("heard"), reverse=True)[:MOST_LOST]
        return {
            "now": self._now_ms,
            "total": len(rows),
            "late": sum(one["late"] for one in rows),
            "slots-total": sum(one["slots-total"] for one in rows),
            "slots-free": sum(one["slots-free"] for one in rows),
            "page": page,
            "pages": pages,
            "taskmanagers": [self._with_figures(one) for one in shown],
            "lost-total": len(self._gone),
            "lost": newest,
        }

    def _sorted(self) -> Sequence[Json]:
        """Unknown figures come last, in both directions."""
        rows = sorted(self._there, key=lambda one: (not one["late"], one["id"]))
        sort = self._chosen.sort
        if not sort:
            return rows
        if sort in FIGURES:
            rows = [self._with_figures(one) for one in rows]
        known = [one for one in rows if one[sort] is not None]
        known.sort(key=itemgetter(sort), reverse=self._chosen.is_descending)
        return [*known, *(one for one in rows if one[sort] is None)]

    def _with_figures(self, row: Json) -> Json:
        return row if "cpu" in row else {**row, **figures_of(self._values(row["id"]))}

    def _present(
        self,
        job: JobSnapshot,
        one: TaskManagerSnapshot,
        name: str,
        used: Mapping[ResourceId, Counter[AllocationId]],
    ) -> Json:
        registered = one.registered
        tasks = used.get(one.resource_id, Counter[AllocationId]())
        return {
            **_head(job, one, name),
            "data-port": registered.data_port,
            "pid": registered.pid,
            "cores": registered.cores,
            "late": self._now_ms - one.heard_ms >= job.facts.late_after_ms,
            "slots-total": registered.slots,
            "slots-free": max(0, registered.slots - len(tasks)),
            "tasks": tasks.total(),
        }


def figures_of(values: Mapping[str, str]) -> Json:
    """Return what a process has reported of itself, by the names of this answer."""
    found = {name: _number(values.get(metric)) for name, metric in FIGURES.items()}
    if found["garbage"] is not None:
        found["garbage"] = round(found["garbage"] / _MS, _DIGITS)
    return found


def _number(text: str | None) -> float | None:
    """A figure that is negative is one that the system does not tell."""
    try:
        value = math.nan if text is None else float(text)
    except ValueError:
        return None
    if math.isnan(value) or value < 0:
        return None
    return int(value) if value.is_integer() else round(value, _DIGITS)


def _head(job: JobSnapshot, one: TaskManagerSnapshot, name: str) -> Json:
    return {
        "id": name,
        "job-id": job.job_id,
        "job-name": job.facts.name,
        "host": one.registered.host,
        "since": one.registered_ms,
        "heard": one.heard_ms,
    }


def _gone(job: JobSnapshot, one: TaskManagerSnapshot, name: str) -> Json:
    reason = f"its job has ended: {job.status}" if one.lost is None else one.lost
    return {**_head(job, one, name), "reason": without_credentials(reason)}


def _tasks_of(job: JobSnapshot) -> dict[ResourceId, Counter[AllocationId]]:
    found: dict[ResourceId, Counter[AllocationId]] = {}
    for resource_id, slot in _places(job):
        found.setdefault(resource_id, Counter())[slot] += 1
    return found


def _places(job: JobSnapshot) -> Iterator[tuple[ResourceId, AllocationId]]:
    for vertex in job.vertices:
        for attempt in vertex.attempts:
            location, slot = attempt.location, attempt.allocation_id
            if location is not None and slot is not None and not attempt.state.is_terminal:
                yield location.resource_id, slot
