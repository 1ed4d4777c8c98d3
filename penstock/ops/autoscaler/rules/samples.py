"""Input of the autoscaler: the vertices of a job and their edges, and what was measured of them.

Plain data. Knows no formula. Source: ScalingMetricCollector, JobTopology of Flink's Kubernetes operator
(docs/spec/autoscaler.md#measurements). Differs: slot sharing groups are known, so slots are counted, not estimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Final, TypeAlias

from penstock.engine.model.errors import GraphError
from penstock.engine.model.ids import VertexId
from penstock.ops.jobs.snapshots import VertexFacts

_HASH: Final = "HASH"


@dataclass(frozen=True, slots=True)
class VertexSample:
    """One measurement of a vertex. None: not measured.

    Attributes:
        parallelism: subtasks that run.
        busy_ms_max, busy_ms_min: busy ms per second of the busiest and of the least busy subtask. NaN is as None.
        busy_ms_total: ms that all subtasks together have been busy since they began, for the aggregator AVG.
        back_pressured_ms: ms per second, 0 to 1000: of the subtask that is back-pressured most.
        records_in, records_out: counts since the job began, of all subtasks.
        records_in_per_second, records_out_per_second: rates of all subtasks together. Without them the counts serve.
        pending_records: of a source: records that wait to be read, over all splits.
        partitions: of a source: splits that it can read at the same time.
        is_finished: all its records are read; it is left out.
    """

    parallelism: int
    busy_ms_max: float | None = None
    busy_ms_min: float | None = None
    busy_ms_total: float | None = None
    back_pressured_ms: float = 0.0
    records_in: float | None = None
    records_out: float | None = None
    records_in_per_second: float | None = None
    records_out_per_second: float | None = None
    pending_records: float | None = None
    partitions: int | None = None
    is_finished: bool = False


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Shares from 0 to 1, of the TaskManager where they are largest: time in garbage collection, memory in use."""

    gc_pressure: float | None = None
    heap_usage: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterRoom:
    """What the job may have of the cluster.

    Attributes:
        slots_max: slots for this job, those that it has included. None: no limit is known.
        cpus_per_slot: cores, for `quota.cpu`.
        memory_per_slot: bytes, for `quota.memory`. 0: not known, and that quota does not count.
    """

    slots_max: int | None = None
    cpus_per_slot: float = 1.0
    memory_per_slot: int = 0


@dataclass(frozen=True, slots=True)
class JobSample:
    """All that was measured at one time. `time_ms`: of any clock that does not go back."""

    time_ms: int
    vertices: Mapping[VertexId, VertexSample]
    memory: MemorySample = MemorySample()


class Topology:
    """The vertices of a job in topological order, with their edges.

    Raises: GraphError: an edge of an unknown vertex, or a circle.
    """

    def __init__(self, vertices: Iterable[VertexFacts]) -> None:
        given = {vertex.vertex_id: vertex for vertex in vertices}
        self._inputs: dict[VertexId, list[VertexId]] = {}
        self._outputs: dict[VertexId, list[VertexId]] = {vertex_id: [] for vertex_id in given}
        for target, vertex in given.items():
            # Two edges between the same vertices are one: rates are counted by vertex.
            self._inputs[target] = list(dict.fromkeys(one.source for one in vertex.inputs))
            for source in self._inputs[target]:
                if source not in given:
                    known = ", ".join(given) or "none"
                    raise GraphError(
                        f"an edge {source} -> {target} names the vertex {source}, which is "
                        f"none of the job's: {known}. Give the autoscaler every vertex."
                    )
                self._outputs[source].append(target)
        try:
            order = TopologicalSorter(self._inputs).static_order()
            self.vertices = {vertex_id: given[vertex_id] for vertex_id in order}
        except CycleError as error:
            raise GraphError(
                f"the edges of a job make a circle: {', '.join(error.args[1])}. "
                "The autoscaler takes graphs without circles."
            ) from None

    def inputs(self, vertex_id: VertexId) -> list[VertexId]:
        return self._inputs[vertex_id]

    def outputs(self, vertex_id: VertexId) -> list[VertexId]:
        return self._outputs[vertex_id]

    def sharing_flow_with(self, vertex_id: VertexId) -> set[VertexId]:
        """Return the vertices that a slow vertex slows down: those before it, and what else these send to."""
        before = self._reached({vertex_id}, self._inputs)
        return self._reached(before, self._outputs) - {vertex_id}

    def is_source(self, vertex_id: VertexId) -> bool:
        return not self._inputs[vertex_id]

    def is_keyed(self, vertex_id: VertexId) -> bool:
        """Whether some input gives each key to one subtask."""
        return any(one.ship_strategy == _HASH for one in self.vertices[vertex_id].inputs)

    def name(self, vertex_id: VertexId) -> str:
        return self.vertices[vertex_id].name

    def slots(self, parallelism: Mapping[VertexId, int]) -> int:
        """Return the slots of a job: of each slot sharing group the largest parallelism."""
        groups: dict[str, int] = {}
        for vertex_id, count in parallelism.items():
            group = self.vertices[vertex_id].slot_sharing_group
            groups[group] = max(groups.get(group, 0), count)
        return sum(groups.values())

    @staticmethod
    def _reached(
        begin: set[VertexId], neighbours: Mapping[VertexId, list[VertexId]]
    ) -> set[VertexId]:
        found, ready = set(begin), list(begin)
        while ready:
            fresh = set(neighbours[ready.pop()]) - found
            found |= fresh
            ready += fresh
        return found


@dataclass(frozen=True, slots=True)
class JobMeasured:
    """A measurement of the running job; one is wanted every `AutoscalerSettings.interval_ms`."""

    samples: Mapping[VertexId, VertexSample]
    memory: MemorySample = field(default_factory=MemorySample)


@dataclass(frozen=True, slots=True)
class JobRestarted:
    """The job runs since now: after its first start, and after failures."""


@dataclass(frozen=True, slots=True)
class JobRescaled:
    """The job runs since now with another parallelism.

    `parallelism`: of all vertices; it may be less than what was asked for. `took_ms`: from the decision until the job ran again.
    """

    parallelism: Mapping[VertexId, int]
    took_ms: int


@dataclass(frozen=True, slots=True)
class RescaleRefused:
    """The last decision will not come about, say because the cluster gives no slots."""

    why: str


@dataclass(frozen=True, slots=True)
class DecisionWanted:
    """Decide what is to change. `room`: what the cluster has for this job; by default as much as it wants."""

    room: ClusterRoom = field(default_factory=ClusterRoom)


AutoscalerEvent: TypeAlias = (
    JobMeasured | JobRestarted | JobRescaled | RescaleRefused | DecisionWanted
)
