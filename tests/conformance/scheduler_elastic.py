"""Areas about parallelism that is decided."""

from typing import Any

from penstock.engine.machines.rescaling.slot_allocator import SharingGroup, parallelism_for
from penstock.engine.model.elastic import ParallelismBounds
from penstock.engine.model.graph.auto_parallelism import AutoParallelism, decided
from penstock.engine.model.key_groups import MAX_PARALLELISM_LIMIT

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
