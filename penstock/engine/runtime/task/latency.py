"""LatencyStats: histograms of how long records waited in queues on their way from a source to an operator.

The chain gives it LatencyMarkers. It does not know a clock. Source: Flink LatencyStats, DescriptiveStatisticsHistogram
(docs/spec/tasks.md#latency-markers); differs: the last 128 values are kept in one array.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np

from penstock.engine.model.messages import LatencySummary
from penstock.engine.runtime.elements import Int64s, LatencyMarker

HISTORY_SIZE: Final = 128


class Granularity(StrEnum):
    """How many histograms an operator's subtask keeps: one, one for each source, or one for each subtask of a source."""

    SINGLE = "single"
    OPERATOR = "operator"
    SUBTASK = "subtask"


Pair: TypeAlias = tuple[str, int]
"""(source operator id, its subtask); '' and -1 where the granularity does not distinguish them."""


@dataclass(slots=True)
class Histogram:
    """Keeps the last values, by default HISTORY_SIZE, and the number of all values."""

    values: Int64s
    count: int = 0

    @staticmethod
    def empty(size: int = HISTORY_SIZE) -> Histogram:
        return Histogram(np.zeros(size, np.int64))

    def add(self, value: int) -> None:
        self.values[self.count % len(self.values)] = value
        self.count += 1

    def kept(self) -> Int64s:
        """The values that are kept, in no particular order."""
        return self.values[: min(self.count, len(self.values))]


@dataclass(frozen=True, slots=True)
class LatencySettings:
    """`history`: how many values each histogram keeps."""

    granularity: Granularity = Granularity.OPERATOR
    history: int = HISTORY_SIZE


class LatencyStats:
    """All histograms of one operator in one subtask."""

    def __init__(
        self, granularity: Granularity = Granularity.OPERATOR, history: int = HISTORY_SIZE
    ) -> None:
        self._granularity = granularity
        self._history = history
        self.histograms: dict[Pair, Histogram] = {}

    def report(self, marker: LatencyMarker, now_ms: int) -> None:
        """Record a marker. If this clock shows an earlier time than the source's clock, the latency
        counts as 0.
        """
        pair = self._pair(marker)
        histogram = self.histograms.get(pair) or Histogram.empty(self._history)
        histogram.add(max(0, now_ms - marker.marked_at_ms))
        # Added only now, because the heartbeat's thread reads the dict.
        self.histograms[pair] = histogram

    def summaries(self, operator_id: str) -> tuple[LatencySummary, ...]:
        """One summary for each source and subtask, sorted by these."""
        return tuple(
            _summary(pair, operator_id, histogram)
            for pair, histogram in sorted(self.histograms.items())
        )

    def _pair(self, marker: LatencyMarker) -> Pair:
        if self._granularity is Granularity.SINGLE:
            return "", -1
        if self._granularity is Granularity.OPERATOR:
            return marker.operator_id, -1
        return marker.operator_id, marker.subtask


def _summary(pair: Pair, operator_id: str, histogram: Histogram) -> LatencySummary:
    kept = histogram.kept()
    # Flink's rule for quantiles is not numpy's default.
    p50, p95, p99 = np.percentile(kept, (50, 95, 99), method="weibull").tolist()
    return LatencySummary(
        source_id=pair[0], source_subtask=pair[1], operator_id=operator_id, count=histogram.count,
        min_ms=int(kept.min()), max_ms=int(kept.max()), mean_ms=float(kept.mean()),
        p50_ms=p50, p95_ms=p95, p99_ms=p99,
    )  # fmt: skip
