"""Former rescales of each vertex: whether they have helped, and what a further subtask brings.

Knows no clock. Source: ScalingHistoryUtils, JobVertexScaler.detectIneffectiveScaleUp, observed scalability of Flink's Kubernetes operator
(docs/spec/autoscaler.md#effect, #scalability). Differs: the best rate since an increase shows its effect, not the present one, because a
vertex may get slower later for other reasons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.engine.model.ids import VertexId


@dataclass(frozen=True, slots=True)
class FormerRescale:
    """Rates are records per second that the vertex can do at full load.

    `rate`: before. `expected_rate`: that it should do after. `best_rate`: the best that it has done since; None: not measured yet.
    """

    time_ms: int
    before: int
    after: int
    rate: float
    expected_rate: float
    best_rate: float | None = None

    @property
    def gain(self) -> float:
        """The share of the expected gain that came: 1 for the whole gain, and if the share is unknown."""
        hoped = self.expected_rate - self.rate
        if self.best_rate is None or not math.isfinite(hoped) or hoped <= 0:
            return 1.0
        return (self.best_rate - self.rate) / hoped


class ScalingHistory:
    """The newest rescales of each vertex, oldest first. `count`: of one vertex. `age_ms`: how long they count."""

    def __init__(self, count: int, age_ms: int) -> None:
        self._count = count
        self._age_ms = age_ms
        self._rescales: dict[VertexId, list[FormerRescale]] = {}

    def of(self, vertex_id: VertexId) -> Sequence[FormerRescale]:
        return tuple(self._rescales.get(vertex_id, ()))

    def add(self, vertex_id: VertexId, rescale: FormerRescale) -> None:
        kept = self._rescales.setdefault(vertex_id, [])
        kept.append(rescale)
        del kept[: -self._count]

    def forget_old(self, now_ms: int) -> None:
        for vertex_id, kept in self._rescales.items():
            fresh = [one for one in kept if one.time_ms >= now_ms - self._age_ms]
            self._rescales[vertex_id] = fresh

    def take_back(self, time_ms: int) -> None:
        """Forget what was decided at a time: it has not come about."""
        for vertex_id, kept in self._rescales.items():
            self._rescales[vertex_id] = [one for one in kept if one.time_ms != time_ms]

    def correct(self, time_ms: int, parallelism: Mapping[VertexId, int]) -> None:
        """Note the parallelism that a decision has led to, which may be less than it asked for."""
        for vertex_id, kept in self._rescales.items():
            actual = parallelism.get(vertex_id)
            for index, one in enumerate(kept):
                if one.time_ms == time_ms and actual is not None and actual != one.after:
                    expected = one.rate / one.before * actual
                    kept[index] = replace(one, after=actual, expected_rate=expected)

    def note(self, vertex_id: VertexId, parallelism: int, rate: float) -> None:
        """Note what a vertex can do now. It is the effect of its last rescale, if that led to its present parallelism."""
        kept = self._rescales.get(vertex_id)
        if kept and kept[-1].after == parallelism:
            last = kept[-1]
            kept[-1] = replace(last, best_rate=max(rate, last.best_rate or 0.0))

    def ineffective(
        self, vertex_id: VertexId, parallelism: int, gain_min: float
    ) -> list[FormerRescale]:
        """Return the last increases in a row, up to the present parallelism, that have not helped; newest first.

        Args: gain_min: the share of the expected gain below which an increase counts as ineffective.
        """
        found: list[FormerRescale] = []
        for one in reversed(self._rescales.get(vertex_id, [])):
            is_increase_to_here = one.after == parallelism and one.before < one.after
            if not is_increase_to_here or one.gain >= gain_min:
                break
            found.append(one)
            parallelism = one.before
        return found

    def scalability(self, vertex_id: VertexId, observations: int, least: float) -> float:
        """Return the share of a subtask's rate that a further one brings; 1 if too little is known.

        Least squares over former parallelisms and rates, from the rate of a subtask at the smallest one. Two decimals, rounded up.
        """
        pairs = [
            (one.before, one.rate)
            for one in self._rescales.get(vertex_id, [])
            if math.isfinite(one.rate)
        ]
        if len(pairs) < observations:
            return 1.0
        smallest, its_rate = min(pairs)
        base = its_rate / smallest
        squares = sum(count * count for count, _ in pairs)
        if base <= 0:
            return 1.0
        share = sum(count * rate for count, rate in pairs) / (base * squares)
        return math.ceil(min(1.0, max(least, share)) * 100 - 1e-9) / 100
