"""The master of one job over all its generations: events in, effects out, as a JobMaster.

A generation is a JobMaster, whose graph never changes. This master replaces it by the next one when the job gets
another parallelism: after a handover, or at a restart. A job that nobody rescales has one generation, and this master
does nothing but pass events on. Source: Flink AdaptiveScheduler (docs/spec/elasticity.md); differs: a change that is
wished for repeats nothing, because the former generation hands over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.machines.books.job_settings import JobSettings
from penstock.machines.job.job_master import JobMaster
from penstock.model.completed_checkpoint import CompletedCheckpoint
from penstock.model.graph.job_graph import JobGraph
from penstock.model.graph.rescaling import parallelism_of, rescaled
from penstock.model.ids import VertexId
from penstock.model.messages import JobEffect, JobEvent, RescaleJob
from penstock.model.states import JobStatus


class AdaptiveMaster:
    """`generation`: the JobMaster that runs the job now. `submitted`: the graph as the program has it."""

    def __init__(
        self,
        job_graph: JobGraph,
        settings: JobSettings,
        now_ms: int,
        completed: Sequence[CompletedCheckpoint] = (),
    ) -> None:
        """Raises: as JobMaster."""
        self.generation = JobMaster(job_graph, settings, now_ms, completed)
        self.submitted = job_graph
        self._settings = settings
        self._now_ms = now_ms
        self._target: Mapping[VertexId, int] | None = None

    def step(self, event: JobEvent) -> list[JobEffect]:
        """Take one event; returns the effects to carry out, in order."""
        self._now_ms = getattr(event, "now_ms", self._now_ms)
        if isinstance(event, RescaleJob):
            effects = self._on_rescale(event)
        else:
            effects = self.generation.step(event)
        return effects + self._go_on()

    def _on_rescale(self, event: RescaleJob) -> list[JobEffect]:
        if self.generation.status.is_terminal:
            return []
        self._target = {vertex_id: upper for vertex_id, _, upper in event.bounds}
        succession = self.generation.succession
        succession.leave_restarts()
        slots = _slots_for(rescaled(self.submitted, self._target))
        return self.generation.change("RescaleJob", lambda: succession.want_slots(slots))

    def _go_on(self) -> list[JobEffect]:
        """Do what follows: the next generation begins, or this one is to hand over."""
        effects: list[JobEffect] = []
        succession = self.generation.succession
        if succession.is_over:
            effects += self._begin_next()
        succession.handover.take_failure()
        if self._is_due:
            effects += self.generation.change("Rescale", succession.hand_over)
        return effects

    @property
    def _is_due(self) -> bool:
        if self._target is None or self.generation.status is not JobStatus.RUNNING:
            return False
        if parallelism_of(self.generation.job_graph) == dict(self._target):
            self._target = None
            return False
        succession = self.generation.succession
        wanted = _slots_for(rescaled(self.submitted, self._target))
        return len(succession.slots) >= wanted and succession.can_hand_over

    def _begin_next(self) -> list[JobEffect]:
        former = self.generation
        job_graph = former.job_graph
        if self._target is not None:
            job_graph = rescaled(self.submitted, self._target)
        left = former.succession.inheritance()
        self.generation = JobMaster(job_graph, self._settings, self._now_ms, left=left)
        succession = self.generation.succession
        succession.leave_restarts()

        def take_over() -> None:
            succession.take_over(left.graph)

        return self.generation.change("NextGeneration", take_over)


def _slots_for(job_graph: JobGraph) -> int:
    """Return how many slots a graph needs: in each sharing group those of its widest vertex."""
    widest: dict[str, int] = {}
    for vertex in job_graph.vertices.values():
        group = vertex.slot_sharing_group
        widest[group] = max(widest.get(group, 0), vertex.parallelism)
    return sum(widest.values())
