"""What each vertex can do, what it should be able to do, and between which bounds it is left alone.

Rates of the sources are carried through the graph. Does not decide. Source: ScalingMetricEvaluator, AutoScalerUtils of Flink's Kubernetes
operator (docs/spec/autoscaler.md#evaluation). Differs: `limited`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.machines.autoscaler.measures import Measured, measured
from penstock.machines.autoscaler.samples import JobSample, Topology
from penstock.machines.autoscaler.settings import CapacitySettings, WindowSettings
from penstock.model.ids import VertexId


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
    """Return the rate that serves the target at a utilization, beside catching up.

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

    More than the slowest of them can do never reaches the vertices before it, nor those behind these. So they are asked for that only, and
    for nothing to catch up with. The blocked ones keep their figures.
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
