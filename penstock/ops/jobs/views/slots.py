"""Where the subtasks of all jobs are: TaskManagers, their slots, and who shares each slot. Flink has no such path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final, TypeAlias

from penstock.engine.model.deployment import SparkTask
from penstock.engine.model.ids import AllocationId, ResourceId, taskmanager_name
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.states import ExecutionState
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.jobs.snapshots import (
    AttemptSnapshot,
    JobSnapshot,
    TaskManagerSnapshot,
    VertexSnapshot,
)
from penstock.ops.jobs.views.attempts import Json

MOST_SLOTS: Final = 2_000
"""With more slots than these, hosts are told in the place of slots."""
MOST_SUBTASKS: Final = 2_000
"""In all slots together. Of a slot with more than its part of them the busiest are told."""
_DIGITS: Final = 3
_Tenant: TypeAlias = tuple[VertexSnapshot, AttemptSnapshot, TaskIo | None]
_Tenants: TypeAlias = Mapping[ResourceId, Mapping[AllocationId, Sequence[_Tenant]]]


def present(job: JobSnapshot) -> list[TaskManagerSnapshot]:
    """Return the TaskManagers of a job that are there."""
    if job.status.is_terminal:
        return []
    return [one for one in job.taskmanagers if one.lost is None]


def slots_of(jobs: Sequence[JobSnapshot]) -> int:
    """Return how many slots all jobs have."""
    return sum(one.registered.slots for job in jobs for one in present(job))


class SlotMap:
    """`/slots`. Told of one job after the other, so that its caller can do something else between them. `spark_ui` None: Spark shows no pages."""

    def __init__(self, jobs: Sequence[JobSnapshot], now_ms: int, spark_ui: str | None) -> None:
        self._total = slots_of(jobs)
        self._is_folded = self._total > MOST_SLOTS
        self._of_slot = max(1, MOST_SUBTASKS // max(1, self._total))
        self._now_ms = now_ms
        self._spark_ui = spark_ui
        self._used = 0
        self._boxes: list[Json] = []
        self._hosts: dict[str, _Host] = {}
        self._late: list[str] = []
        self._wanted: list[Json] = []

    def add(self, job: JobSnapshot) -> None:
        """Add the TaskManagers of a job."""
        there = present(job)
        tenants = _tenants_of(job) if there else {}
        self._wanted += _wanted(job)
        for one in there:
            slots = tenants.get(one.resource_id, {})
            self._used += len(slots)
            name = taskmanager_name(job.job_id, one.resource_id)
            if self._is_late(job, one):
                self._late.append(name)
            if self._is_folded:
                host = self._hosts.setdefault(one.registered.host, _Host(one.registered.host))
                host.add(one, slots)
            else:
                self._boxes.append(self._box(job, one, name, slots))

    def told(self) -> Json:
        """Return the answer."""
        missing = sum(one["missing"] for one in self._wanted)
        return {
            "now": self._now_ms,
            "folded": self._is_folded,
            "total": self._total,
            "shown": 0 if self._is_folded else self._total,
            "free": max(0, self._total - self._used),
            "missing": missing,
            "wanted": self._wanted,
            "late": self._late,
            "spark-ui": self._spark_ui,
            "taskmanagers": self._boxes,
            "hosts": [one.told() for one in self._hosts.values()],
        }

    def _is_late(self, job: JobSnapshot, one: TaskManagerSnapshot) -> bool:
        return self._now_ms - one.heard_ms >= job.facts.late_after_ms

    def _box(
        self,
        job: JobSnapshot,
        one: TaskManagerSnapshot,
        name: str,
        slots: Mapping[AllocationId, Sequence[_Tenant]],
    ) -> Json:
        registered = one.registered
        free = max(0, registered.slots - len(slots))
        return {
            "id": name,
            "job-id": job.job_id,
            "host": registered.host,
            "data-port": registered.data_port,
            "pid": registered.pid,
            "since": one.registered_ms,
            "heard": one.heard_ms,
            "late": self._is_late(job, one),
            "spark": _spark(one, self._spark_ui),
            "slots-total": registered.slots,
            "slots-free": free,
            "slots": [self._slot(key, slots[key]) for key in sorted(slots)],
        }

    def _slot(self, allocation_id: AllocationId, tenants: Sequence[_Tenant]) -> Json:
        chosen = sorted(tenants, key=lambda one: -_busy(one[2]))[: self._of_slot]
        return {
            "id": allocation_id,
            "slot-sharing-group": tenants[0][0].facts.slot_sharing_group,
            "total": len(tenants),
            "shown": len(chosen),
            "subtasks": [_subtask(*one) for one in chosen],
        }


class _Host:
    """What stands in the place of single slots."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._taskmanagers = 0
        self._slots = 0
        self._used = 0
        self._subtasks = 0
        self._busy: list[float] = []

    def add(
        self, one: TaskManagerSnapshot, slots: Mapping[AllocationId, Sequence[_Tenant]]
    ) -> None:
        self._taskmanagers += 1
        self._slots += one.registered.slots
        self._used += len(slots)
        for tenants in slots.values():
            self._subtasks += len(tenants)
            self._busy += [io.busy_ms_per_s / 1000 for _, _, io in tenants if io is not None]

    def told(self) -> Json:
        busy = self._busy
        return {
            "host": self._name,
            "taskmanagers": self._taskmanagers,
            "slots-total": self._slots,
            "slots-free": max(0, self._slots - self._used),
            "subtasks": self._subtasks,
            "busy": {"median": round(median(busy), _DIGITS), "max": round(max(busy), _DIGITS)}
            if busy
            else None,
        }


def _tenants_of(job: JobSnapshot) -> _Tenants:
    """Who is in each slot: one pass over all subtasks."""
    found: defaultdict[ResourceId, defaultdict[AllocationId, list[_Tenant]]]
    found = defaultdict(lambda: defaultdict(list))
    for vertex in job.vertices:
        for attempt, io in zip(vertex.attempts, vertex.ios, strict=True):
            location, slot = attempt.location, attempt.allocation_id
            if location is not None and slot is not None and not attempt.state.is_terminal:
                found[location.resource_id][slot].append((vertex, attempt, io))
    return found


def _subtask(vertex: VertexSnapshot, attempt: AttemptSnapshot, io: TaskIo | None) -> Json:
    return {
        "vertex-id": vertex.facts.vertex_id,
        "vertex-name": vertex.facts.name,
        "subtask": attempt.subtask,
        "attempt": attempt.attempt,
        "state": str(attempt.state),
        "busy": None if io is None else round(io.busy_ms_per_s / 1000, _DIGITS),
    }


def _busy(io: TaskIo | None) -> float:
    return -1.0 if io is None else io.busy_ms_per_s


def _wanted(job: JobSnapshot) -> Iterator[Json]:
    """What a job said last of slots that it lacks. It holds while subtasks wait for one."""
    missing = job.missing_slots
    waiting = sum(
        one.state is ExecutionState.SCHEDULED for vertex in job.vertices for one in vertex.attempts
    )
    if job.status.is_terminal or not waiting:
        return
    yield {
        "job-id": job.job_id,
        "subtasks": waiting,
        "missing": 0 if missing is None else max(0, missing.wanted - missing.available),
        "reason": None if missing is None else without_credentials(missing.reason),
    }


def _spark(one: TaskManagerSnapshot, spark_ui: str | None) -> Json | None:
    """The task of Spark in which a TaskManager lives, and where Spark shows it."""
    task = one.registered.spark_task
    if task is None:
        return None
    return {
        "executor": task.executor,
        "stage": task.stage,
        "partition": task.partition,
        "task-attempt": task.attempt,
        **_pages(task, spark_ui),
    }


def _pages(task: SparkTask, spark_ui: str | None) -> Json:
    """Spark has a page with the threads of each executor, and one that lists all executors."""
    if spark_ui is None:
        return {"executor-page": None, "stage-page": None}
    executors = f"{spark_ui}/executors/"
    threads = f"{executors}threadDump/?executorId={task.executor}"
    return {
        "executor-page": executors if task.executor is None else threads,
        "stage-page": f"{spark_ui}/stages/stage/?id={task.stage}&attempt=0",
    }
