"""What the metrics of a job's subtasks say of its splits and watermarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.engine.metrics.scopes import query_id
from penstock.ops.jobs.snapshots import VertexSnapshot
from penstock.ops.metrics.entities import SubtaskScope, TaskManagerScope
from penstock.ops.metrics.store import MetricStore

_WATERMARK: Final = "currentWatermark"
_SPLIT: Final = "split"
_OFFSET: Final = "currentOffset"
_PARTITION: Final = "partition"
USED: Final = "Status.JVM.Memory.Heap.Used"
MOST: Final = "Status.JVM.Memory.Heap.Max"
GARBAGE: Final = "Status.JVM.GarbageCollector.All.TimeMsPerSecond"
PROCESS: Final = (USED, MOST, GARBAGE)


class StoredFigures:
    """`watermarks.Figures` of one job, read from a store. Valid while the store is lent."""

    def __init__(self, store: MetricStore, job_id: str) -> None:
        self._store = store
        self._job_id = job_id

    def splits(self, vertex: VertexSnapshot, subtask: int) -> Mapping[str, int]:
        """See `Figures`."""
        if vertex.facts.inputs:
            return {}
        found = {}
        for one in self._store.measured(self._scope(vertex, subtask)):
            if one.name == _WATERMARK and one.groups and one.groups[0][0] == _SPLIT:
                split = one.groups[0][1]
                if split is not None and isinstance(one.value, int):
                    found[split] = one.value
        return found

    def watermark_out(self, vertex: VertexSnapshot, subtask: int) -> int | None:
        """See `Figures`. Of the last operator of the chain."""
        if not vertex.facts.operators:
            return None
        name = query_id((), "currentOutputWatermark", vertex.facts.operators[-1].name)
        value = self._store.value(self._scope(vertex, subtask), name)
        return value if isinstance(value, int) else None

    def pending_records(self, vertex: VertexSnapshot) -> int:
        """See `Figures`."""
        if vertex.facts.inputs or not vertex.facts.operators:
            return 0
        name = query_id((), "pendingRecords", vertex.facts.operators[0].name)
        values = (
            self._store.value(self._scope(vertex, one.subtask), name) for one in vertex.attempts
        )
        return sum(value for value in values if isinstance(value, int))

    def partitions(self, vertex: VertexSnapshot) -> int | None:
        """Return how many partitions a source reads, by the metrics of Flink's Kafka source; None: its connector does not tell."""
        if vertex.facts.inputs:
            return None
        found = {
            one.groups
            for attempt in vertex.attempts
            for one in self._store.measured(self._scope(vertex, attempt.subtask))
            if one.name == _OFFSET and one.groups and one.groups[-1][0] == _PARTITION
        }
        return len(found) or None

    def process(self, tm_id: str) -> Mapping[str, float]:
        """Return what a TaskManager's process has told, by the ids in `PROCESS`; what it has not told is left out."""
        scope = TaskManagerScope(tm_id)
        values = {one: self._store.value(scope, one) for one in PROCESS}
        return {one: value for one, value in values.items() if isinstance(value, int | float)}

    def _scope(self, vertex: VertexSnapshot, subtask: int) -> SubtaskScope:
        return SubtaskScope(self._job_id, vertex.facts.vertex_id, subtask)
