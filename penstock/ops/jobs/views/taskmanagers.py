"""Answers about TaskManagers. Source: Flink TaskManagersHandler, TaskManagerDetailsHandler.

Every job has TaskManagers of its own. Figures of the JVM are 0 or -1: no JVM runs tasks here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from penstock.engine.model.ids import AllocationId, ResourceId, taskmanager_name
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.slot_size import MEMORY, SlotSize, cores_of, extended_of
from penstock.ops.jobs.snapshots import (
    AttemptSnapshot,
    DriverSnapshot,
    JobSnapshot,
    TaskManagerSnapshot,
    VertexSnapshot,
)
from penstock.ops.jobs.views.attempts import Json

_NO_JVM: Final = -1


Tenant: TypeAlias = tuple[VertexSnapshot, AttemptSnapshot, TaskIo | None]
Tenants: TypeAlias = Mapping[ResourceId, Mapping[AllocationId, Sequence[Tenant]]]
"""Who is in each slot of each TaskManager."""


def all_of(driver: DriverSnapshot) -> Json:
    """`/taskmanagers`: those that are there."""
    infos = []
    for job in driver.jobs:
        tenants = tenants_of(job)
        infos += [_info(job, one, tenants.get(one.resource_id, {})) for one in present(job)]
    return {"taskmanagers": infos}


def details(driver: DriverSnapshot, name: str, metrics: Json) -> Json | None:
    """`/taskmanagers/:taskmanagerid`; None: it is not there. `metrics`: of its process, by Flink's names."""
    for job in driver.jobs:
        for one in present(job):
            if taskmanager_name(job.job_id, one.resource_id) == name:
                used = tenants_of(job).get(one.resource_id, {})
                resource = _profile(one.registered.size)
                slots = [
                    {"jobId": job.job_id, "resource": resource, "assignedTasks": len(tenants)}
                    for tenants in used.values()
                ]
                return {**_info(job, one, used), "allocatedSlots": slots, "metrics": metrics}
    return None


def present(job: JobSnapshot) -> list[TaskManagerSnapshot]:
    """Return the TaskManagers of a job that are there."""
    if job.status.is_terminal:
        return []
    return [one for one in job.taskmanagers if one.lost is None]


def slots_of(job: JobSnapshot) -> tuple[int, int, int]:
    """Return how many TaskManagers and slots a job has, and how many of these slots have no task."""
    there, tenants = present(job), tenants_of(job)
    total = sum(one.registered.slots for one in there)
    used = sum(len(tenants.get(one.resource_id, ())) for one in there)
    return len(there), total, max(0, total - used)


def tenants_of(job: JobSnapshot) -> Tenants:
    """Return who is in each slot: one pass over all subtasks."""
    found: defaultdict[ResourceId, defaultdict[AllocationId, list[Tenant]]]
    found = defaultdict(lambda: defaultdict(list))
    for vertex in job.vertices:
        for attempt, io in zip(vertex.attempts, vertex.ios, strict=True):
            location, slot = attempt.location, attempt.allocation_id
            if location is not None and slot is not None and not attempt.state.is_terminal:
                found[location.resource_id][slot].append((vertex, attempt, io))
    return found


def head(job: JobSnapshot, one: TaskManagerSnapshot) -> Json:
    """Return what the pages of the dashboard begin with, of a TaskManager that may be gone."""
    return {
        "id": taskmanager_name(job.job_id, one.resource_id),
        "job-id": job.job_id,
        "host": one.registered.host,
        "since": one.registered_ms,
        "heard": one.heard_ms,
    }


def process(job: JobSnapshot, one: TaskManagerSnapshot, now_ms: int, used: int) -> Json:
    """Return the same of one that is there, with its process and its slots. `used`: slots with tasks."""
    registered = one.registered
    return {
        **head(job, one),
        "data-port": registered.data_port,
        "pid": registered.pid,
        "late": now_ms - one.heard_ms >= job.facts.late_after_ms,
        "slots-total": registered.slots,
        "slots-free": max(0, registered.slots - used),
    }


def _info(
    job: JobSnapshot, one: TaskManagerSnapshot, used: Mapping[AllocationId, Sequence[Tenant]]
) -> Json:
    registered = one.registered
    free = max(0, registered.slots - len(used))
    return {
        "id": taskmanager_name(job.job_id, one.resource_id),
        "path": f"{registered.host}:{registered.data_port}",
        "dataPort": registered.data_port,
        "jmxPort": _NO_JVM,
        "timeSinceLastHeartbeat": one.heard_ms,
        "slotsNumber": registered.slots,
        "freeSlots": free,
        "assignedTasks": sum(map(len, used.values())),
        "totalResource": _profile(registered.size, registered.slots),
        "freeResource": _profile(registered.size, free),
        "hardware": {
            "cpuCores": registered.cores,
            "physicalMemory": 0,
            "freeMemory": 0,
            "managedMemory": 0,
        },
        "memoryConfiguration": dict.fromkeys(_MEMORY, 0),
        "blocked": False,
    }


_MEMORY: Final = (
    "frameworkHeap", "taskHeap", "frameworkOffHeap",
    "taskOffHeap", "networkMemory", "managedMemory", "jvmMetaspace",
    "jvmOverhead", "totalFlinkMemory", "totalProcessMemory",
)  # fmt: skip


def _profile(size: SlotSize, slots: int = 1) -> Json:
    amounts = dict(size)
    heap, off_heap, managed = (int(amounts.get(name, 0.0) * slots) for name in MEMORY)
    return {
        "cpuCores": (cores_of(size) or 1.0) * slots,
        "taskHeapMemory": heap,
        "taskOffHeapMemory": off_heap,
        "managedMemory": managed,
        "networkMemory": 0,
        "extendedResources": {name: one * slots for name, one in extended_of(size).items()},
    }


_FIGURES: Final = {
    "heapUsed": "Memory.Heap.Used",
    "heapCommitted": "Memory.Heap.Committed",
    "heapMax": "Memory.Heap.Max",
    "nonHeapUsed": "Memory.NonHeap.Used",
    "nonHeapCommitted": "Memory.NonHeap.Committed",
    "nonHeapMax": "Memory.NonHeap.Max",
    "directCount": "Memory.Direct.Count",
    "directUsed": "Memory.Direct.MemoryUsed",
    "directMax": "Memory.Direct.TotalCapacity",
    "mappedCount": "Memory.Mapped.Count",
    "mappedUsed": "Memory.Mapped.MemoryUsed",
    "mappedMax": "Memory.Mapped.TotalCapacity",
}
_SHUFFLE_FIGURES: Final = {
    "nettyShuffleMemorySegmentsAvailable": "AvailableMemorySegments",
    "nettyShuffleMemorySegmentsUsed": "UsedMemorySegments",
    "nettyShuffleMemorySegmentsTotal": "TotalMemorySegments",
    "nettyShuffleMemoryAvailable": "AvailableMemory",
    "nettyShuffleMemoryUsed": "UsedMemory",
    "nettyShuffleMemoryTotal": "TotalMemory",
}
_PROCESS: Final = "Status.JVM."
_SHUFFLE: Final = "Status.Shuffle.Netty."
_COLLECTOR: Final = "Status.JVM.GarbageCollector."


def metrics_of(values: Mapping[str, str]) -> Json:
    """The block `metrics` of a TaskManager. `values`: the metrics of its process, by id; 0 for what it has not reported."""
    names = {
        **{field: _PROCESS + name for field, name in _FIGURES.items()},
        **{field: _SHUFFLE + name for field, name in _SHUFFLE_FIGURES.items()},
    }
    collectors = sorted({
        name.removeprefix(_COLLECTOR).rpartition(".")[0]
        for name in values
        if name.startswith(_COLLECTOR)
    })
    return {
        **{field: _whole(values, name) for field, name in names.items()},
        "garbageCollectors": [
            {
                "name": one,
                "count": _whole(values, f"{_COLLECTOR}{one}.Count"),
                "time": _whole(values, f"{_COLLECTOR}{one}.Time"),
            }
            for one in collectors
        ],
    }


def _whole(values: Mapping[str, str], name: str) -> int:
    try:
        return int(float(values.get(name, "0")))
    except ValueError:
        return 0
