"""What each vertex can do, what it should be able to do, and between which bounds it is left alone.

Rates of the sources are carried through the graph. Does not decide. Source: ScalingMetricEvaluator, AutoScalerUtils of Flink's Kubernetes
operator (docs/spec/autoscaler.md#evaluation). Differs: `limited`.

From what a vertex should be able to do to its number of subtasks.

Does not know gates. Source: JobVertexScaler, ParallelismAlignmentMode of Flink's Kubernetes operator
(docs/spec/autoscaler.md#parallelism, #alignment). Differs: what an alignment may add is limited, and sources may be held to their
partitions, as the settings say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from penstock.engine.model.ids import VertexId
from penstock.ops.autoscaler.rules.samples import JobSample, Topology, VertexSample
from penstock.ops.autoscaler.rules.settings import (
    Aggregator,
    AlignmentMode,
    CapacitySettings,
    StepSettings,
    WindowSettings,
)

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
    """Return what the samples say of a vertex. None: the newest one lacks the vertex."""
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


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One vertex. Rates are records per second.

    Attributes:
        true_rate: what it could do at full load; infinite if it has nothing to do.
        is_observed: `true_rate` is what a source has shown, not what its busy time promises.
        target_rate: what arrives, without what waits.
        catch_up_rate: what works off the lag in time.
        capacity: what it should be able to do.
        up_bound, down_bound: with a true rate between them it is left alone.
    """

    vertex_id: VertexId
    measured: Measured
    true_rate: float
    is_observed: bool
    target_rate: float
    catch_up_rate: float
    capacity: float
    up_bound: float
    down_bound: float

    @property
    def parallelism(self) -> int:
        return self.measured.parallelism

    @property
    def is_outside(self) -> bool:
        return self.true_rate < self.up_bound or self.true_rate > self.down_bound

    def expected_rate(self, parallelism: int) -> float:
        """Return what it should do at full load with another parallelism."""
        return self.true_rate / self.parallelism * parallelism


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All vertices at one time, but those of which too little is known.

    `is_backlog`: some source has so much waiting that the job only works it off. `restart_s`: the time of a rescale that was counted on.
    """

    time_ms: int
    vertices: Mapping[VertexId, Evaluated]
    is_backlog: bool
    restart_s: float


def capacity(
    target_rate: float,
    catch_up_rate: float,
    utilization: float,
    settings: CapacitySettings,
    restart_s: float = 0.0,
) -> float:
    """Return the rate that serves the target at a utilization, in addition to catching up.

    Args: restart_s: seconds without work that are to be made good within the catch-up time; 0: none.
    Returns: whole records per second, half rounded up; infinite at utilization 0.
    """
    share = min(1.0, max(0.0, utilization))
    if share == 0:
        return math.inf
    missed = target_rate * restart_s / settings.catch_up_s if settings.catch_up_s > 0 else 0.0
    return math.floor(catch_up_rate + missed + target_rate / share + 0.5)


def evaluate(
    samples: Sequence[JobSample],
    topology: Topology,
    window: WindowSettings,
    settings: CapacitySettings,
    restart_s: float,
) -> Evaluation:
    """Return the evaluation of a full window."""
    found = {
        vertex_id: one
        for vertex_id in topology.vertices
        if (one := measured(samples, vertex_id, window)) is not None
    }
    backlog = any(
        _lag_s(one) > settings.backlog_s
        for vertex_id, one in found.items()
        if topology.is_source(vertex_id)
    )
    evaluated = {}
    for vertex_id, wanted in wanted_rates(found, topology, settings).items():
        one = found[vertex_id]
        true_rate, is_observed = one.true_rate(window.switch_threshold)
        if true_rate is None or one.is_finished:
            continue
        unbounded = Evaluated(vertex_id, one, true_rate, is_observed, *wanted, 0.0, 0.0, 0.0)
        evaluated[vertex_id] = _bounded(unbounded, settings, restart_s, is_backlog=backlog)
    return Evaluation(samples[-1].time_ms, evaluated, backlog, restart_s)


def limited(
    evaluation: Evaluation,
    blocked: Collection[VertexId],
    topology: Topology,
    settings: CapacitySettings,
) -> Evaluation:
    """Return the evaluation of a job in which some vertices cannot grow.

    The vertices before the slowest of them, and those downstream of these, never get more than it can do. So they are asked for
    that only, and for nothing to catch up with. The blocked ones keep their figures.
    """
    asked = dict(evaluation.vertices)
    for vertex_id in blocked:
        one = evaluation.vertices[vertex_id]
        share = min(1.0, one.true_rate / one.target_rate) if one.target_rate > 0 else 1.0
        for other in topology.sharing_flow_with(vertex_id).difference(blocked) & asked.keys():
            full = evaluation.vertices[other].target_rate
            target = min(asked[other].target_rate, full * share)
            less = replace(asked[other], target_rate=target, catch_up_rate=0.0)
            asked[other] = _bounded(
                less, settings, evaluation.restart_s, is_backlog=evaluation.is_backlog
            )
    return replace(evaluation, vertices=asked)


def _bounded(
    one: Evaluated, settings: CapacitySettings, restart_s: float, *, is_backlog: bool
) -> Evaluated:
    """Return it with capacity and bounds for its target and catch-up rate."""
    rates = one.target_rate, one.catch_up_rate
    most = 1.0 if is_backlog else settings.utilization_max
    least = 0.0 if is_backlog else settings.utilization_min
    return replace(
        one,
        capacity=capacity(*rates, settings.utilization, settings, restart_s),
        up_bound=capacity(*rates, most, settings),
        down_bound=capacity(*rates, least, settings, restart_s),
    )


def wanted_rates(
    found: Mapping[VertexId, Measured], topology: Topology, settings: CapacitySettings
) -> dict[VertexId, tuple[float, float]]:
    """Return target and catch-up rate of each vertex, in topological order; without those below an unknown one."""
    wanted: dict[VertexId, tuple[float, float]] = {}
    for vertex_id in topology.vertices:
        one = found.get(vertex_id)
        if one is None or one.in_rate is None:
            continue
        inputs = topology.inputs(vertex_id)
        if not inputs:
            target = max(0.0, one.in_rate + one.lag_growth)
            wanted[vertex_id] = (
                target,
                one.lag / settings.catch_up_s if settings.catch_up_s else 0.0,
            )
        elif all(source in wanted for source in inputs):
            ratios = {source: _ratio(source, vertex_id, found, topology) for source in inputs}
            wanted[vertex_id] = (
                sum(wanted[source][0] * ratio for source, ratio in ratios.items()),
                sum(wanted[source][1] * ratio for source, ratio in ratios.items()),
            )
    return wanted


def _ratio(
    source: VertexId, target: VertexId, found: Mapping[VertexId, Measured], topology: Topology
) -> float:
    """Records that one record of `source` sends to `target`."""
    in_rate = found[source].in_rate or 0.0
    return _edge_rate(source, target, found, topology) / in_rate if in_rate > 0 else 0.0


def _edge_rate(
    source: VertexId, target: VertexId, found: Mapping[VertexId, Measured], topology: Topology
) -> float:
    """Records per second from one vertex to another. Only vertices count theirs, so what came over other edges is taken off."""
    others = [one for one in topology.inputs(target) if one != source]
    arriving = found[target].in_rate or 0.0
    if not others:
        return arriving
    rates = [found[one].out_rate for one in others if len(topology.outputs(one)) == 1]
    if len(rates) == len(others) and None not in rates:
        return max(0.0, arriving - sum(rate or 0.0 for rate in rates))
    return found[source].out_rate or 0.0


def _lag_s(one: Measured) -> float:
    """Seconds in which a source reads as much as waits."""
    if one.lag <= 0:
        return 0.0
    return one.lag / one.in_rate if one.in_rate else math.inf


_ROUNDING: Final = 1e-9
"""3.0000000000000004 subtasks are 3."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed parallelism of one vertex.

    `factor`: of the parallelism, within the limits of a step. `wanted`: before it is aligned. `parallelism`: what is proposed.
    """

    factor: float
    wanted: int
    parallelism: int
    scalability: float = 1.0


def propose(
    one: Evaluated, topology: Topology, settings: StepSettings, scalability: float = 1.0
) -> Proposal:
    """Return the parallelism that gives a vertex its capacity. `scalability`: share of its rate that a further subtask brings."""
    now = one.parallelism
    raw = one.capacity / one.true_rate / scalability
    factor = min(1 + settings.up_max, max(1 - settings.down_max, raw))
    most = topology.vertices[one.vertex_id].max_parallelism
    upper = min(most, max(now, settings.max_parallelism))
    partitions = one.measured.partitions
    if partitions and settings.is_at_most_partitions:
        upper = min(upper, partitions)
    lower = min(now, settings.min_parallelism, upper)
    wanted = min(upper, max(lower, math.ceil(factor * now - _ROUNDING), 1))
    shares = partitions
    if not shares and topology.is_keyed(one.vertex_id):
        shares = most
    if not shares:
        return Proposal(factor, wanted, wanted, scalability)
    limit = min(shares, upper) if wanted > now else now
    return Proposal(factor, wanted, align(wanted, shares, limit, settings), scalability)


def align(wanted: int, shares: int, limit: int, settings: StepSettings) -> int:
    """Return the first parallelism from `wanted` on that spreads the shares better; else `wanted`.

    Args:
        shares: partitions or key groups that are dealt out to the subtasks.
        limit: the largest parallelism that may be returned.
    """
    if settings.alignment is AlignmentMode.OFF:
        return wanted
    is_balanced = settings.alignment is AlignmentMode.BALANCED
    for one in range(wanted, limit + 1):
        is_better = is_balanced and shares // one < shares // wanted
        if shares % one == 0 or is_better:
            is_cheap = one == wanted or (one - wanted) / wanted < settings.max_added
            return one if is_cheap else wanted
    return wanted
