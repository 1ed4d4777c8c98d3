"""A modelled job under a curve, with the real autoscaler on it: which rescales it makes, how many slots it holds, what waits."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.model.config import Settings
from penstock.engine.model.ids import VertexId
from penstock.ops.autoscaler.rules.autoscaler import Autoscaler
from penstock.ops.autoscaler.rules.decisions import Decision, EventKind, ScalingEvent
from penstock.ops.autoscaler.rules.samples import (
    DecisionWanted,
    JobMeasured,
    JobRescaled,
    JobRestarted,
)
from penstock.ops.autoscaler.rules.settings import autoscaler_settings_of
from simulation.autoscaler.curves import Curve
from simulation.autoscaler.least import least_slots
from simulation.autoscaler.model import ModelJob

NOISE: Final = 0.03
RESCALE_S: Final = 2.0
SETTLING_S: Final = 1200.0
"""A change of the load takes up to 5 rescales, each after 82 s of measurements, and then 10 min to catch up."""
_LEAST_EVERY_S: Final = 1800.0
"""The least number of slots is looked for at such distances, and lies between them on a straight line."""


@dataclass(frozen=True, slots=True)
class Rescale:
    """`parallelism`: before and after, of the vertices that changed."""

    time_s: float
    parallelism: Mapping[str, tuple[int, int]]


@dataclass(slots=True)
class CurveResult:
    """Attributes:
    slots, lags_s: at each measurement: time, and slots or seconds of load that wait.
    """

    curve: Curve
    seed: int
    rescales: list[Rescale] = field(default_factory=list)
    events: list[ScalingEvent] = field(default_factory=list)
    slots: list[tuple[float, int]] = field(default_factory=list)
    lags_s: list[tuple[float, float]] = field(default_factory=list)

    @property
    def mean_slots(self) -> float:
        """Over the times when the job must have settled; of a curve without them over all."""
        values = [count for time_s, count in self.slots if self._is_settled(time_s)]
        return sum(values) / len(values)

    @property
    def least_slots(self) -> float:
        """The mean of the least number over the same times."""
        times = [time_s for time_s, _ in self.slots if self._is_settled(time_s)]
        return sum(_least_at(self.curve, time_s) for time_s in times) / len(times)

    @property
    def worst_lag_s(self) -> float:
        """In the whole run."""
        return max(lag for _, lag in self.lags_s)

    @property
    def settled_lag_s(self) -> float:
        """When the job has had its time after each change of the load."""
        changes = self.curve.changes_s
        return max(
            lag
            for time_s, lag in self.lags_s
            if not any(begin <= time_s < begin + SETTLING_S for begin in changes)
        )

    def kinds(self) -> set[EventKind]:
        return {event.kind for event in self.events}

    def reversals(self, within_s: float) -> list[tuple[str, float]]:
        """Return (vertex, time) of each up, down, up of one vertex within a time."""
        found = []
        transitions: dict[str, list[tuple[float, bool]]] = {}
        for rescale in self.rescales:
            for name, (before, after) in rescale.parallelism.items():
                transitions.setdefault(name, []).append((rescale.time_s, after > before))
        for name, of_vertex in transitions.items():
            turns = [
                one
                for index, one in enumerate(of_vertex)
                if not index or one[1] != of_vertex[index - 1][1]
            ]
            for first, last in zip(turns, turns[2:], strict=False):
                if first[1] and last[0] - first[0] < within_s:
                    found.append((name, last[0]))
        return found

    def _is_settled(self, time_s: float) -> bool:
        spans = self.curve.settled_s
        return not spans or any(begin <= time_s < end for begin, end in spans)


def drive(curve: Curve, seed: int, options: Mapping[str, object] | None = None) -> CurveResult:
    """Run a curve. It begins with 1 subtask of each vertex. `options`: of the autoscaler, above its profile."""
    settings = autoscaler_settings_of(Settings(options))
    job = ModelJob(curve.vertices, {vertex.name: 1 for vertex in curve.vertices})
    autoscaler = Autoscaler(settings, job.topology())
    autoscaler.step(JobRestarted(), 0)
    result, noise = CurveResult(curve, seed), random.Random(seed)
    interval_s = settings.interval_ms / 1000
    measured_s = stopped_until_s = 0.0
    ordered_s: float | None = None
    for number in range(int(curve.length_s / curve.step_s)):
        time_s = number * curve.step_s
        load = curve.load(time_s) * noise.gauss(1.0, NOISE)
        if ordered_s is not None and time_s >= stopped_until_s:
            counts = {VertexId(name): count for name, count in job.parallelism.items()}
            rescaled = JobRescaled(counts, _ms(time_s - ordered_s))
            autoscaler.step(rescaled, _ms(time_s))
            ordered_s, measured_s = None, time_s
            job.measure(1.0, noise, 0.0)
        job.step(time_s, curve.step_s, load, is_running=ordered_s is None)
        if ordered_s is not None or time_s + curve.step_s - measured_s < interval_s:
            continue
        now_s = time_s + curve.step_s
        samples = job.measure(now_s - measured_s, noise, NOISE)
        measured_s = now_s
        result.slots.append((now_s, job.slots))
        result.lags_s.append((now_s, job.lag / curve.load(time_s)))
        autoscaler.step(JobMeasured(samples), _ms(now_s))
        for decision in autoscaler.step(DecisionWanted(), _ms(now_s)):
            assert isinstance(decision, Decision), "nothing is refused here"
            result.events.extend(decision.events)
            if decision.orders:
                result.rescales.append(_carried_out(job, decision.orders, now_s))
                ordered_s, stopped_until_s = now_s, now_s + RESCALE_S
    return result


def drive_all(curves: Sequence[Curve], seed: int) -> list[CurveResult]:
    return [drive(curve, seed) for curve in curves]


def _carried_out(job: ModelJob, orders: Mapping[VertexId, int], now_s: float) -> Rescale:
    changed = {str(name): (job.parallelism[name], count) for name, count in orders.items()}
    job.rescale({str(name): count for name, count in orders.items()})
    return Rescale(now_s, changed)


def _least_at(curve: Curve, time_s: float) -> float:
    begin = time_s // _LEAST_EVERY_S * _LEAST_EVERY_S
    share = (time_s - begin) / _LEAST_EVERY_S
    first, last = (
        least_slots(curve.vertices, curve.least_load(at), at)
        for at in (begin, begin + _LEAST_EVERY_S)
    )
    return first + share * (last - first)


def _ms(time_s: float) -> int:
    return round(time_s * 1000)
