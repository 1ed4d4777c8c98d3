"""Areas about parallelism that is decided, and about slow subtasks."""

from typing import Any

from penstock.machines.adaptive.parallelism import SharingGroup, parallelism_for
from penstock.machines.execution.slow_tasks import ExecutionTime, SlowTaskSettings, find_slow
from penstock.model.elastic.parallelism_bounds import ParallelismBounds
from penstock.model.graph.auto_parallelism import AutoParallelism, decided
from penstock.model.key_groups import MAX_PARALLELISM_LIMIT

_MB = 1 << 20


def adaptive_parallelism(given: dict[str, Any]) -> dict[str, Any]:
    groups = [
        SharingGroup(
            group["name"],
            {
                vertex["name"]: ParallelismBounds(vertex["lower"], vertex["upper"])
                for vertex in group["vertices"]
            },
        )
        for group in given["groups"]
    ]
    found = parallelism_for(groups, given["free_slots"])
    if found is None:
        return {"schedulable": False, "slots_per_group": None, "parallelism": None}
    return {
        "schedulable": True,
        "slots_per_group": found.slots_of_group,
        "parallelism": found.of_vertex,
    }


def adaptive_batch_parallelism(given: dict[str, Any]) -> dict[str, Any]:
    auto = AutoParallelism(
        min_parallelism=given["min"],
        max_parallelism=given["max"],
        bytes_per_subtask=int(given["volume_per_task_mb"] * _MB),
        source_parallelism=given["max"],
    )
    read_bytes = int(given["total_non_broadcast_mb"] * _MB)
    return {"parallelism": decided(auto, read_bytes, MAX_PARALLELISM_LIMIT)}


def slow_task_detection(given: dict[str, Any]) -> dict[str, Any]:
    settings = SlowTaskSettings(given["ratio"], given["multiplier"], given["lower_bound_ms"])
    finished = [ExecutionTime(time_ms) for time_ms in given["finished_times_ms"]]
    running = {name: ExecutionTime(time) for name, time in given["running_times_ms"].items()}
    return {"slow": find_slow(given["parallelism"], finished, running, settings)}
