"""Results that outlive their tasks: where they are, and when they are released.

Source: Flink JobMasterPartitionTracker. `regions.py` decides when a result is no longer needed.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.engine.machines.execution.execution_graph import (
    ExecutionGraph,
    ExecutionVertex,
    ResultPartition,
)
from penstock.engine.machines.execution.regions import PartitionRelease
from penstock.engine.machines.story import EventLog
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import ReleasePartitions
from penstock.engine.model.states import ExecutionState


class JobResults:
    """The results of one job."""

    def __init__(
        self, graph: ExecutionGraph, policy: PartitionRelease, event_log: EventLog
    ) -> None:
        self._graph = graph
        self._policy = policy
        self._event_log = event_log

    def places(self) -> set[ResourceId]:
        """Return the TaskManagers with results that are still to be read; they must stay even without slots in use."""
        found: set[ResourceId] = set()
        for vertex in self._graph.vertices:
            location = vertex.execution.location
            if vertex.state is not ExecutionState.FINISHED or location is None:
                continue
            if any(partition.is_wanted for partition in vertex.partitions):
                found.add(location.resource_id)
        return found

    def on_finished(self, vertex: ExecutionVertex) -> None:
        """A vertex has finished: release results that no other vertex will read."""
        for partition in self._policy.on_finished(vertex):
            self.release(partition.producer, (partition,))

    def on_reset(self, vertex: ExecutionVertex) -> None:
        """A vertex starts again and will make its results again."""
        self.release(vertex, vertex.partitions)
        if vertex.state is ExecutionState.FINISHED:
            self._policy.on_unfinished(vertex)

    def release(self, vertex: ExecutionVertex, partitions: Iterable[ResultPartition]) -> None:
        """Release a vertex's results that outlive their task; the others end with the task."""
        location = vertex.execution.location
        kept = tuple(
            (partition.partition_id, vertex.execution.attempt_id)
            for partition in partitions
            if partition.is_available
            and partition.result_type.is_released_by_scheduler
            and vertex.state is ExecutionState.FINISHED
        )
        if kept and location is not None:
            self._event_log.emit(ReleasePartitions(location.resource_id, kept))
            for partition_id, _ in kept:
                self._graph.partitions[partition_id].is_available = False
