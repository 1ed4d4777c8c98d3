"""What the autoscaler is told of a job: from what its tasks reported last to one sample of each vertex.

Source: ScalingMetricCollector of Flink's Kubernetes operator (docs/spec/autoscaler.md#measurements). Differs: nothing is
fetched, because TaskManagers report by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from penstock.machines.autoscaler.samples import (
    ClusterRoom,
    MemorySample,
    ScaledEdge,
    ScaledVertex,
    Topology,
    VertexSample,
)
from penstock.model.ids import VertexId, taskmanager_name
from penstock.model.messages import RegisterTaskManager, TaskIo
from penstock.model.states import ExecutionState
from penstock.observation.jobs.snapshots import JobSnapshot, VertexFacts, VertexSnapshot
from penstock.observation.verdict.figures import GARBAGE, MOST, USED


class Figures(Protocol):
    """What the job's tasks and processes have reported as metrics (`StoredFigures`)."""

    def pending_records(self, vertex: VertexSnapshot) -> int:
        """Return how many records wait to be read by a source; 0 where it does not know."""

    def partitions(self, vertex: VertexSnapshot) -> int | None: ...
    def process(self, tm_id: str) -> Mapping[str, float]: ...


_HASH: Final = "HASH"
_RUNS: Final = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


def topology_of(vertices: Iterable[VertexFacts]) -> Topology:
    """Return the vertices of a job with their edges."""
    known = tuple(vertices)
    return Topology(
        [
            ScaledVertex(one.vertex_id, one.name, one.max_parallelism, one.slot_sharing_group)
            for one in known
        ],
        [
            ScaledEdge(edge.source, one.vertex_id, edge.ship_strategy == _HASH)
            for one in known
            for edge in one.inputs
        ],
    )


def samples_of(job: JobSnapshot, figures: Figures) -> dict[VertexId, VertexSample]:
    """Return a sample of each vertex, except of those of which some subtask has not reported yet."""
    found = {}
    for vertex in job.vertices:
        sample = _sample(vertex, figures)
        if sample is not None:
            found[vertex.facts.vertex_id] = sample
    return found


def memory_of(job: JobSnapshot, figures: Figures) -> MemorySample:
    """Return the largest shares of all TaskManagers that are there; None where none has reported."""
    told = [figures.process(name) for name, _ in _processes(job)]
    garbage = [one[GARBAGE] / 1000 for one in told if GARBAGE in one]
    used = [one[USED] / one[MOST] for one in told if USED in one and one.get(MOST, 0) > 0]
    return MemorySample(max(garbage, default=None), max(used, default=None))


def room_of(job: JobSnapshot, figures: Figures, slots_max: int | None) -> ClusterRoom:
    """Return what the job may have. A slot takes what the slots of the TaskManager take that takes most for each of its slots."""
    cores, memory = [1.0], [0.0]
    for name, registered in _processes(job):
        cores.append(registered.cores / registered.slots)
        memory.append(figures.process(name).get(USED, 0.0) / registered.slots)
    return ClusterRoom(slots_max, max(cores[1:], default=1.0), int(max(memory)))


def _processes(job: JobSnapshot) -> list[tuple[str, RegisterTaskManager]]:
    there = [one for one in job.taskmanagers if one.lost is None and one.registered.slots > 0]
    return [(taskmanager_name(job.job_id, one.resource_id), one.registered) for one in there]


def running_since_ms(job: JobSnapshot) -> int | None:
    """Return since when all subtasks of the job run, epoch ms; None: some do not run."""
    attempts = [attempt for vertex in job.vertices for attempt in vertex.attempts]
    if not attempts or any(attempt.state not in _RUNS for attempt in attempts):
        return None
    began = [
        at_ms
        for attempt in attempts
        for state, at_ms in attempt.since
        if state is ExecutionState.RUNNING
    ]
    return max(began, default=None)


def _sample(vertex: VertexSnapshot, figures: Figures) -> VertexSample | None:
    states = {attempt.state for attempt in vertex.attempts}
    if states == {ExecutionState.FINISHED}:
        return VertexSample(vertex.facts.parallelism, is_finished=True)
    ios = [io for io in vertex.ios if io is not None]
    if not ios or len(ios) < len(vertex.attempts):
        return None
    is_source = not vertex.facts.inputs
    records_out = sum(io.records_out for io in ios)
    return VertexSample(
        parallelism=vertex.facts.parallelism,
        busy_ms_max=max(io.busy_ms_per_s for io in ios),
        busy_ms_min=min(io.busy_ms_per_s for io in ios),
        busy_ms_total=sum(io.busy_ms for io in ios),
        back_pressured_ms=max(io.backpressured_ms_per_s for io in ios),
        records_in=_records_in(ios, records_out, is_source=is_source),
        records_out=records_out,
        pending_records=figures.pending_records(vertex) if is_source else None,
        partitions=figures.partitions(vertex) if is_source else None,
    )


def _records_in(ios: list[TaskIo], records_out: int, *, is_source: bool) -> int:
    """Of a source that makes its records, and so reads none, what its task sends stands for what it reads.

    With a filter or a flat map in its chain that is another number, and nothing better is known.
    """
    found = sum(io.records_in for io in ios)
    return records_out if is_source and not found else found
