"""Where the subtasks of all jobs are: TaskManagers, their slots, and who shares each slot. Flink has no such path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final, TypeAlias

from penstock.engine.model.deployment import SparkTask
from penstock.engine.model.ids import AllocationId
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.states import ExecutionState
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.jobs.snapshots import (
    AttemptSnapshot,
    JobSnapshot,
    TaskManagerSnapshot,
    VertexSnapshot,
)
from penstock.ops.jobs.views.attempts import Json, place_of
from penstock.ops.jobs.views.rows import Steps
from penstock.ops.jobs.views.taskmanagers import Tenant, present, process, tenants_of

MOST_SLOTS: Final = 2_000
"""With more slots than these, the answer has hosts in the place of slots."""
MOST_SUBTASKS: Final = 2_000
"""The most subtasks in all slots together. Of a slot with more than its share of them the busiest are shown."""
_DIGITS: Final = 3
_Used: TypeAlias = tuple[TaskManagerSnapshot, Mapping[AllocationId, Sequence[Tenant]]]


def slot_map(jobs: Sequence[JobSnapshot], now_ms: int, spark_ui: str | None) -> Steps[Json]:
    """`/slots`: a step for each job. `spark_ui` None: Spark shows no pages."""
    total = sum(one.registered.slots for job in jobs for one in present(job))
    is_folded = total > MOST_SLOTS
    most = max(1, MOST_SUBTASKS // max(1, total))
    boxes: list[Json] = []
    hosts: defaultdict[str, list[_Used]] = defaultdict(list)
    wanted: list[Json] = []
    used = 0
    late: list[str] = []
    for job in jobs:
        there = present(job)
        tenants = tenants_of(job) if there else {}
        wanted += _wanted(job)
        for one in there:
            slots = tenants.get(one.resource_id, {})
            used += len(slots)
            about = process(job, one, now_ms, len(slots))
            if about["late"]:
                late.append(about["id"])
            if is_folded:
                hosts[one.registered.host].append((one, slots))
            else:
                found = [_slot(key, slots[key], most) for key in sorted(slots)]
                boxes.append({**about, "spark": _spark(one, spark_ui), "slots": found})
        yield
    answer = {
        "now": now_ms,
        "folded": is_folded,
        "total": total,
        "shown": 0 if is_folded else total,
        "free": max(0, total - used),
        "missing": sum(one["missing"] for one in wanted),
        "wanted": wanted,
        "late": late,
        "spark-ui": spark_ui,
        "taskmanagers": boxes,
        "hosts": [_host(name, ones) for name, ones in hosts.items()],
    }
    return answer  # ruff: ignore[return-in-generator]


def _slot(allocation_id: AllocationId, tenants: Sequence[Tenant], most: int) -> Json:
    chosen = sorted(tenants, key=lambda one: -_busy(one[2]))[:most]
    return {
        "id": allocation_id,
        "slot-sharing-group": tenants[0][0].facts.slot_sharing_group,
        "total": len(tenants),
        "shown": len(chosen),
        "subtasks": [_subtask(*one) for one in chosen],
    }


def _host(name: str, ones: Sequence[_Used]) -> Json:
    """What stands in the place of single slots."""
    total = sum(one.registered.slots for one, _ in ones)
    tenants = [tenant for _, slots in ones for one in slots.values() for tenant in one]
    busy = [io.recent.busy_ms_per_s / 1000 for _, _, io in tenants if io is not None]
    return {
        "host": name,
        "taskmanagers": len(ones),
        "slots-total": total,
        "slots-free": max(0, total - sum(len(slots) for _, slots in ones)),
        "subtasks": len(tenants),
        "busy": {"median": round(median(busy), _DIGITS), "max": round(max(busy), _DIGITS)}
        if busy
        else None,
    }


def _subtask(vertex: VertexSnapshot, attempt: AttemptSnapshot, io: TaskIo | None) -> Json:
    return {
        **place_of(vertex, attempt.subtask),
        "attempt": attempt.attempt,
        "state": str(attempt.state),
        "busy": None if io is None else round(io.recent.busy_ms_per_s / 1000, _DIGITS),
    }


def _busy(io: TaskIo | None) -> float:
    return -1.0 if io is None else io.recent.busy_ms_per_s


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
