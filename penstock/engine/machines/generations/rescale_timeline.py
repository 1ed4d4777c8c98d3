"""Rescales of one job, with ids that are drawn without chance, so that the same events give the same records.

Source: Flink RescaleTimeline, which draws ids (docs/spec/elasticity.md#rescale-history).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from penstock.engine.machines.generations.desired_resources import DesiredResources
from penstock.engine.machines.rescaling.rescale_history import RescaleHistory
from penstock.engine.model.elastic.rescales import RescaleCause, RescaleEnd, Rescales
from penstock.engine.model.ids import JobId, VertexId
from penstock.engine.model.states import JobStatus

_ENDS: Final[Mapping[JobStatus, RescaleEnd]] = {
    JobStatus.FINISHED: RescaleEnd.JOB_FINISHED,
    JobStatus.FAILED: RescaleEnd.JOB_FAILED,
    JobStatus.CANCELED: RescaleEnd.JOB_CANCELED,
}


class RescaleTimeline:
    """`history`: read only."""

    def __init__(self, job_id: JobId, size: int) -> None:
        self.history = RescaleHistory(size)
        self._job_id = job_id
        self._rescales = 0
        self._requirements = 0
        self._last_changes = -1

    @property
    def is_open(self) -> bool:
        """Whether a rescale is under way."""
        return self.history.current is not None

    def take_news(self) -> Rescales | None:
        """All that is known, if it has changed since the last call."""
        if self._last_changes == self.history.changes:
            return None
        self._last_changes = self.history.changes
        return self.history.snapshot()

    def begin(
        self,
        cause: RescaleCause,
        desired: DesiredResources,
        before: Mapping[VertexId, int] | None,
        now_ms: int,
    ) -> None:
        """A rescale begins. `before`: the parallelism of what runs; None: nothing does."""
        self._rescales += 1
        if cause is RescaleCause.UPDATE_REQUIREMENT:
            self._requirements += 1
        ids = self._id("rescale", self._rescales), self._id("requirements", self._requirements)
        shape = None if before is None else desired.shape(before)
        self.history.begin(ids, cause, now_ms, desired.groups, shape)

    def succeed(
        self, desired: DesiredResources, parallelism: Mapping[VertexId, int], now_ms: int
    ) -> None:
        """The next generation begins."""
        self.history.enter("CreatingExecutionGraph", now_ms)
        self.history.decide(desired.shape(parallelism))
        self.history.enter("Executing", now_ms)
        self.history.end(RescaleEnd.SUCCEEDED, now_ms)

    def end_with(self, status: JobStatus, now_ms: int) -> None:
        """The job has ended."""
        end = _ENDS.get(status)
        if end is not None:
            self.history.end(end, now_ms)

    def _id(self, kind: str, number: int) -> str:
        return hashlib.sha256(f"{self._job_id} {kind} {number}".encode()).hexdigest()[:32]
