"""The metrics of the splits of a source: watermarks, and shares of time. Source: Flink SourceSplitMetricGroup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from penstock.model.metrics import Groups, Measured, MetricType, Value
from penstock.observation.metrics.meter import SpentTime
from penstock.runtime.watermarks.split_times import SplitSpent

Figures = Callable[[], Mapping[str, tuple[int, SplitSpent]]]
_SECOND_MS = 1000


class SplitMetrics:
    """Those of one source operator. `update` is called every 5 s."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._spent: dict[str, SplitSpent] = {}
        self._shares: dict[str, tuple[SpentTime, SpentTime]] = {}

    def update(self) -> None:
        """Move the shares of time on. Splits that are gone are forgotten."""
        self._spent = {split: spent for split, (_, spent) in self._figures().items()}
        known, self._shares = self._shares, {}
        for split in self._spent:
            self._shares[split] = shares = known.get(split) or self._new_shares(split)
            for one in shares:
                one.update()

    def measured(self) -> Iterator[Measured]:
        for split, (watermark_ms, spent) in self._figures().items():
            groups: Groups = (("split", split), ("watermark", None))
            for name, value in self._values(split, watermark_ms, spent):
                yield Measured(name, MetricType.GAUGE, value, groups)

    def _new_shares(self, split: str) -> tuple[SpentTime, SpentTime]:
        def paused_ms() -> int:
            return self._spent[split].paused_ms

        def idle_ms() -> int:
            return self._spent[split].idle_ms

        return SpentTime(paused_ms), SpentTime(idle_ms)

    def _values(
        self, split: str, watermark_ms: int, spent: SplitSpent
    ) -> Iterator[tuple[str, Value]]:
        shares = self._shares.get(split)
        paused, idle = (0, 0) if shares is None else (one.ms_per_s for one in shares)
        yield "currentWatermark", watermark_ms
        yield "activeTimeMsPerSecond", max(0, _SECOND_MS - paused - idle)
        yield "pausedTimeMsPerSecond", paused
        yield "idleTimeMsPerSecond", idle
        yield "accumulatedActiveTimeMs", spent.active_ms
        yield "accumulatedPausedTimeMs", spent.paused_ms
        yield "accumulatedIdleTimeMs", spent.idle_ms
