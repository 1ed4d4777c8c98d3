"""What a window says of each vertex: busy time, rates and lag, as one number each.

Does not know the graph. Source: ScalingMetricEvaluator, ScalingMetrics of Flink's Kubernetes operator
(docs/spec/autoscaler.md#measures).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from penstock.machines.autoscaler.samples import JobSample, VertexSample
from penstock.machines.autoscaler.settings import Aggregator, WindowSettings
from penstock.model.ids import VertexId

_Timed = tuple[int, VertexSample]


@dataclass(frozen=True, slots=True)
class Measured:
    """One vertex over the window. Rates are per second.

    Attributes:
        busy_ms: ms per second, 0 to 1000 and a little above. None: no finite one.
        in_rate, out_rate: None: not measured.
        lag: records that wait, at the end. 0 of what is no source.
        lag_growth: by how much that grows.
        observed_rate: what a source with much lag has shown that it can do. None: not seen often enough.
    """

    parallelism: int
    busy_ms: float | None
    back_pressured_ms: float
    in_rate: float | None
    out_rate: float | None
    lag: float = 0.0
    lag_growth: float = 0.0
    observed_rate: float | None = None
    partitions: int | None = None
    is_finished: bool = False

    @property
    def busy_rate(self) -> float | None:
        """Records per second at full load, by the busy time. Infinite without records. None: not known."""
        if self.busy_ms is None or self.in_rate is None:
            return None
        if self.in_rate <= 0 or self.busy_ms <= 0:
            return math.inf
        return self.in_rate / (self.busy_ms / 1000)

    def true_rate(self, switch_threshold: float) -> tuple[float | None, bool]:
        """Return the records per second at full load, and whether it is the observed one.

        The observed rate counts where the busy time promises much more. A source is not busy while it waits for what it reads.
        """
        by_busy, observed = self.busy_rate, self.observed_rate
        if observed is None:
            return by_busy, False
        is_promised = by_busy is None or by_busy > (1 + switch_threshold) * observed
        return (observed, True) if is_promised else (by_busy, False)


def measured(
    samples: Sequence[JobSample], vertex_id: VertexId, settings: WindowSettings
) -> Measured | None:
    """Return what the samples say of a vertex. None: the newest one says nothing of it."""
    timed = [
        (sample.time_ms, found)
        for sample in samples
        if (found := sample.vertices.get(vertex_id)) is not None
    ]
    if not timed or vertex_id not in samples[-1].vertices:
        return None
    last = timed[-1][1]
    if last.is_finished:
        return Measured(last.parallelism, None, 0.0, 0.0, 0.0, is_finished=True)
    in_rate = _in_rate(timed)
    is_source = last.pending_records is not None
    return Measured(
        parallelism=last.parallelism,
        busy_ms=_busy_ms(timed, settings.aggregator),
        back_pressured_ms=fmean(sample.back_pressured_ms for _, sample in timed),
        in_rate=in_rate,
        out_rate=_mean_or_rate(
            timed, lambda one: one.records_out_per_second, lambda one: one.records_out
        ),
        lag=last.pending_records or 0.0,
        lag_growth=_rate(timed, lambda one: one.pending_records or 0.0) or 0.0,
        observed_rate=_observed(timed, settings) if is_source else None,
        partitions=last.partitions,
    )


def _in_rate(timed: Sequence[_Timed]) -> float | None:
    return _mean_or_rate(timed, lambda one: one.records_in_per_second, lambda one: one.records_in)


def _busy_ms(timed: Sequence[_Timed], aggregator: Aggregator) -> float | None:
    if aggregator is Aggregator.AVG:
        total = _rate(timed, lambda one: one.busy_ms_total)
        return None if total is None else total / timed[-1][1].parallelism
    is_max = aggregator is Aggregator.MAX
    values = [one.busy_ms_max if is_max else one.busy_ms_min for _, one in timed]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(finite) if finite else None


def _observed(timed: Sequence[_Timed], settings: WindowSettings) -> float | None:
    """Return the mean of what single samples show; None: too few of them do."""
    shown = []
    for index, (_, sample) in enumerate(timed):
        rate = sample.records_in_per_second
        if rate is None and index:
            rate = _rate(timed[index - 1 : index + 1], lambda one: one.records_in)
        if not rate or (sample.pending_records or 0.0) < settings.lag_shows_s * rate:
            continue
        free = 1 - sample.back_pressured_ms / 1000
        if free > 0:
            shown.append(rate / free)
    return fmean(shown) if len(shown) >= settings.min_observations else None


def _mean_or_rate(
    timed: Sequence[_Timed],
    gauge: Callable[[VertexSample], float | None],
    count: Callable[[VertexSample], float | None],
) -> float | None:
    values = [gauge(sample) for _, sample in timed]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(finite) if finite else _rate(timed, count)


def _rate(timed: Sequence[_Timed], of: Callable[[VertexSample], float | None]) -> float | None:
    """Per second, between the first and the last sample that have it."""
    values = [
        (time_ms, value)
        for time_ms, sample in timed
        if (value := of(sample)) is not None and math.isfinite(value)
    ]
    if len(values) < 2 or values[-1][0] <= values[0][0]:
        return None
    (first_ms, first), (last_ms, last) = values[0], values[-1]
    return 1000 * (last - first) / (last_ms - first_ms)
