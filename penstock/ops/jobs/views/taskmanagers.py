"""Answers about TaskManagers. Source: Flink TaskManagersHandler, TaskManagerDetailsHandler.

Every job has TaskManagers of its own. Figures of the JVM are 0 or -1: no JVM runs tasks here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from penstock.engine.model.ids import AllocationId, ResourceId, taskmanager_name
from penstock.engine.model.slot_size import MEMORY, SlotSize, cores_of, extended_of
from penstock.ops.jobs.snapshots import DriverSnapshot, JobSnapshot, TaskManagerSnapshot
from penstock.ops.jobs.views.attempts import Json

_NO_JVM: Final = -1


def all_of(driver: DriverSnapshot) -> Json:
    """`/taskmanagers`: those that are there."""
    used = {job.job_id: _tasks_of(job) for job in driver.jobs}
    infos = [_info(job, one, used[job.job_id]) for job, one in present(driver)]
    return {"taskmanagers": infos}


def details(driver: DriverSnapshot, name: str, metrics: Json) -> Json | None:
    """`/taskmanagers/:taskmanagerid`; None: it is not there. `metrics`: of its process, by Flink's names."""
    for job, one in present(driver):
        if taskmanager_name(job.job_id, one.resource_id) == name:
            used = _tasks_of(job)
            slots = [
                {
                    "jobId": job.job_id,
                    "resource": _profile(one.registered.size),
                    "assignedTasks": tasks,
                }
                for tasks in used[one.resource_id].values()
            ]
            return {**_info(job, one, used), "allocatedSlots": slots, "metrics": metrics}
    return None


def present(driver: DriverSnapshot) -> Iterator[tuple[JobSnapshot, TaskManagerSnapshot]]:
    """All TaskManagers that are there, each with its job."""
    for job in driver.jobs:
        if not job.status.is_terminal:
            for one in job.taskmanagers:
                if one.lost is None:
                    yield job, one


def slots_of(job: JobSnapshot) -> tuple[int, int, int]:
    """Return how many TaskManagers and slots a job has, and how many of these slots have no task."""
    there = [one for one in job.taskmanagers if one.lost is None]
    total = sum(one.registered.slots for one in there)
    tasks = _tasks_of(job)
    used = sum(len(tasks[one.resource_id]) for one in there)
    return len(there), total, max(0, total - used)


def _tasks_of(job: JobSnapshot) -> Mapping[ResourceId, Counter[AllocationId]]:
    """How many tasks each slot of each TaskManager has: one pass over all subtasks."""
    found: defaultdict[ResourceId, Counter[AllocationId]] = defaultdict(Counter)
    for vertex in job.vertices:
        for attempt in vertex.attempts:
            location, slot = attempt.location, attempt.allocation_id
            if location is not None and slot is not None and not attempt.state.is_terminal:
                found[location.resource_id][slot] += 1
    return found


def _info(
    job: JobSnapshot, one: TaskManagerSnapshot, tasks: Mapping[ResourceId, Counter[AllocationId]]
) -> Json:
    registered = one.registered
    used = tasks[one.resource_id]
    free = max(0, registered.slots - len(used))
    return {
        "id": taskmanager_name(job.job_id, one.resource_id),
        "path": f"{registered.host}:{registered.data_port}",
        "dataPort": registered.data_port,
        "jmxPort": _NO_JVM,
        "timeSinceLastHeartbeat": one.heard_ms,
        "slotsNumber": registered.slots,
        "freeSlots": free,
        "assignedTasks": sum(used.values()),
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
