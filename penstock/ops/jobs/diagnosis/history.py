"""Since when things are as they are: who limits a job, and where its watermarks stand."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.model.ids import VertexId
from penstock.ops.jobs.diagnosis.limits import limiting
from penstock.ops.jobs.diagnosis.shares import Shares, shares_of
from penstock.ops.jobs.diagnosis.stragglers import AllRecords, Records, records_of
from penstock.ops.jobs.diagnosis.watermarks import NO_WATERMARK_MS, Stand, lowest_watermark
from penstock.ops.jobs.snapshots import JobSnapshot, VertexSnapshot

_WINDOW_MS: Final = 10_000
"""Speeds are of the last seconds."""
_STEP_MS: Final = 250
_MINUTE_MS: Final = 60_000
_RECORDS_STEP_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Since:
    """By vertex. `limits`: epoch milliseconds, of those that limit the job now. `watermarks`: where they stand. `shares`: as they were at
    the last look; those of other vertices are not known yet. `records`: what their subtasks had got a minute ago; of a younger vertex there
    are none.
    """

    limits: Mapping[VertexId, int] = field(default_factory=dict)
    watermarks: Mapping[VertexId, Stand] = field(default_factory=dict)
    shares: Mapping[VertexId, Shares] = field(default_factory=dict)
    records: AllRecords = field(default_factory=dict)

    def not_after(self, now_ms: int) -> Since:
        """Return this for a snapshot of that time: the last look may have been at a later one."""
        limits = {vertex_id: min(at_ms, now_ms) for vertex_id, at_ms in self.limits.items()}
        stands = {
            vertex_id: replace(stand, since_ms=min(stand.since_ms, now_ms))
            for vertex_id, stand in self.watermarks.items()
        }
        return replace(self, limits=limits, watermarks=stands)


class _Received:
    """What the subtasks of one vertex have got. `_steps`: (epoch ms, records of each) of the last minute."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, Records]] = deque()

    def look(self, vertex: VertexSnapshot, now_ms: int) -> None:
        if not self._steps or now_ms - self._steps[-1][0] >= _RECORDS_STEP_MS:
            self._steps.append((now_ms, records_of(vertex)))

    def formerly(self, now_ms: int) -> Records | None:
        """Return what they had got a minute ago; None: that is not known."""
        steps = self._steps
        while len(steps) > 1 and now_ms - steps[1][0] >= _MINUTE_MS:
            steps.popleft()
        return steps[0][1] if steps and now_ms - steps[0][0] >= _MINUTE_MS else None


class _Watermark:
    """The lowest watermark of one vertex. `_steps`: (epoch ms, watermark) of the last seconds."""

    def __init__(self, lowest_ms: int, now_ms: int) -> None:
        self._lowest_ms = lowest_ms
        self._since_ms = now_ms
        self._steps: deque[tuple[int, int]] = deque()

    def look(self, lowest_ms: int, now_ms: int) -> None:
        if lowest_ms != self._lowest_ms:
            self._lowest_ms, self._since_ms = lowest_ms, now_ms
        steps = self._steps
        while steps and now_ms - steps[0][0] > _WINDOW_MS:
            steps.popleft()
        is_due = not steps or now_ms - steps[-1][0] >= _STEP_MS
        if is_due and self._lowest_ms > NO_WATERMARK_MS:
            steps.append((now_ms, self._lowest_ms))

    def stand(self) -> Stand:
        speed = 0.0
        if len(self._steps) > 1:
            (began_ms, first_ms), (ended_ms, last_ms) = self._steps[0], self._steps[-1]
            speed = (last_ms - first_ms) / (ended_ms - began_ms)
        return Stand(self._lowest_ms, self._since_ms, speed)


class VerdictHistory:
    """Since when a job has its troubles, from its snapshots in order. A vertex without news costs nothing."""

    def __init__(self) -> None:
        self._limits: dict[VertexId, int] = {}
        self._watermarks: dict[VertexId, _Watermark] = {}
        self._seen: dict[VertexId, VertexSnapshot] = {}
        self._shares: dict[VertexId, Shares] = {}
        self._received: dict[VertexId, _Received] = defaultdict(_Received)
        self._now_ms = 0

    def look(self, job: JobSnapshot) -> None:
        """Look at the job as it is now."""
        self._now_ms = job.now_ms
        for vertex in job.vertices:
            if self._seen.get(vertex.facts.vertex_id) is not vertex:
                self._seen[vertex.facts.vertex_id] = vertex
                self._look_at(vertex, job.now_ms)
        limits = limiting(job, self._shares, self._limits)
        for vertex_id in limits:
            self._limits.setdefault(vertex_id, job.now_ms)
        for vertex_id in self._limits.keys() - limits:
            del self._limits[vertex_id]

    def _look_at(self, vertex: VertexSnapshot, now_ms: int) -> None:
        vertex_id = vertex.facts.vertex_id
        self._shares[vertex_id] = shares_of(vertex)
        self._received[vertex_id].look(vertex, now_ms)
        lowest = lowest_watermark(vertex)
        if lowest is None:
            self._watermarks.pop(vertex_id, None)
        else:
            known = self._watermarks.setdefault(vertex_id, _Watermark(lowest, now_ms))
            known.look(lowest, now_ms)

    @property
    def since(self) -> Since:
        stands = {vertex_id: one.stand() for vertex_id, one in self._watermarks.items()}
        formerly = {
            vertex_id: records
            for vertex_id, one in self._received.items()
            if (records := one.formerly(self._now_ms)) is not None
        }
        return Since(dict(self._limits), stands, dict(self._shares), formerly)
