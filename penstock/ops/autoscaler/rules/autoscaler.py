"""The autoscaler of one job: from measurements and rescales it decides on the parallelism of each vertex.

Knows no clock, no records and no slots: events bring times and measurements, and the master carries its decisions out. A decision
gives upper bounds: the upper bound of a vertex is its order, the lower one min(order, former lower bound). Source: the autoscaler of Flink's
Kubernetes operator (docs/spec/autoscaler.md). Differs: nothing shrinks while a backlog is worked off, what was decided is not decided
again while it is under way, a refusal counts as a fresh start of the window, and where a vertex is not allowed to grow any more, the others
do not grow beyond it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final, assert_never

from penstock.engine.model.ids import VertexId
from penstock.engine.model.options.autoscaler import AutoscalerOptions
from penstock.engine.model.texts.amounts import counted
from penstock.ops.autoscaler.rules import decisions
from penstock.ops.autoscaler.rules.decisions import (
    AutoscalerEffect,
    Change,
    Decision,
    EventKind,
    Outcome,
    ScalingEvent,
)
from penstock.ops.autoscaler.rules.evaluation import (
    Evaluated,
    Evaluation,
    Proposal,
    evaluate,
    limited,
    propose,
)
from penstock.ops.autoscaler.rules.history import FormerRescale, ScalingHistory
from penstock.ops.autoscaler.rules.samples import (
    AutoscalerEvent,
    ClusterRoom,
    DecisionWanted,
    JobMeasured,
    JobRescaled,
    JobRestarted,
    JobSample,
    RescaleRefused,
    Topology,
)
from penstock.ops.autoscaler.rules.settings import AutoscalerSettings, GateSettings, WindowSettings

# ---------------------------------------------------------------------- gates
# What holds changes up as a whole: memory, the room of the cluster, quotas.
#
# Pure. Source: ScalingExecutor, ResourceCheck of Flink's Kubernetes operator
# (docs/spec/autoscaler.md#gates).


@dataclass(frozen=True, slots=True)
class Held:
    """Why changes are not carried out. `kind`: of the event that reports it; None: no event does."""

    why: str
    kind: EventKind | None = None


def held_by(
    samples: Sequence[JobSample],
    slots: tuple[int, int],
    room: ClusterRoom,
    settings: GateSettings,
) -> Held | None:
    """Return what holds changes up; None: nothing does.

    Args: slots: of the job, before and after.
    """
    return (
        _memory(samples, settings)
        or _switch(settings)
        or _room(slots, room)
        or _quota(slots, room, settings)
    )


def _memory(samples: Sequence[JobSample], settings: GateSettings) -> Held | None:
    kinds = (
        ("garbage collection takes", "gc_pressure", settings.gc_pressure_max),
        ("memory in use is", "heap_usage", settings.heap_usage_max),
    )
    for what, name, most in kinds:
        values = [getattr(sample.memory, name) for sample in samples]
        known = [value for value in values if value is not None]
        if known and fmean(known) > most:
            why = f"{what} {fmean(known):.0%}, above {most:.0%}"
            return Held(why, EventKind.MEMORY_PRESSURE)
    return None


def _switch(settings: GateSettings) -> Held | None:
    if settings.is_scaling:
        return None
    return Held(f"'{AutoscalerOptions.SCALING_ENABLED.key}' is false")


def _room(slots: tuple[int, int], room: ClusterRoom) -> Held | None:
    before, after = slots
    if room.slots_max is None or after <= max(before, room.slots_max):
        return None
    why = f"{counted(after, 'slot')} are needed, and the cluster has {room.slots_max} for this job"
    return Held(why, EventKind.CLUSTER_FULL)


def _quota(slots: tuple[int, int], room: ClusterRoom, settings: GateSettings) -> Held | None:
    before, after = slots
    if after <= before:
        return None
    cpus = after * room.cpus_per_slot
    if settings.quota_cpu is not None and cpus > settings.quota_cpu:
        key = AutoscalerOptions.QUOTA_CPU.key
        why = f"{cpus:g} cores are needed, and '{key}' is {settings.quota_cpu:g}"
        return Held(why, EventKind.QUOTA_REACHED)
    memory = after * room.memory_per_slot
    if settings.quota_memory is not None and memory > settings.quota_memory:
        key = AutoscalerOptions.QUOTA_MEMORY.key
        why = f"{memory} bytes of memory are needed, and '{key}' is {settings.quota_memory}"
        return Held(why, EventKind.QUOTA_REACHED)
    return None


# ---------------------------------------------------------------------- autoscaler


DECISIONS_KEPT: Final = 100


SAMPLES_MIN = 2


class MetricsWindow:
    """The samples that count: those of the last minutes, since the job last started and settled.

    Empty after each start of the job. Samples of the first `stabilization_ms` do not count. Source:
    ScalingMetricCollector of Flink's Kubernetes operator (docs/spec/autoscaler.md#window).
    """

    def __init__(self, settings: WindowSettings) -> None:
        self._settings = settings
        self._samples: deque[JobSample] = deque()
        self._running_since_ms: int | None = None
        self._is_old_enough = False

    @property
    def samples(self) -> tuple[JobSample, ...]:
        return tuple(self._samples)

    @property
    def is_full(self) -> bool:
        """Whether it reaches far enough back, with at least two samples."""
        return self._is_old_enough and len(self._samples) >= SAMPLES_MIN

    def restart(self, now_ms: int) -> None:
        """Forget all samples: the job runs since now."""
        self._samples.clear()
        self._is_old_enough = False
        self._running_since_ms = now_ms

    def add(self, sample: JobSample) -> None:
        """Add a sample. A job that was never said to have started runs since its first sample."""
        if self._running_since_ms is None:
            self._running_since_ms = sample.time_ms
        if sample.time_ms < self._running_since_ms + self._settings.stabilization_ms:
            return
        self._samples.append(sample)
        begin_ms = sample.time_ms - self._settings.window_ms
        # Asked before old samples are dropped: else a window would never be full whose samples come at uneven times.
        self._is_old_enough = self._samples[0].time_ms <= begin_ms
        while self._samples[0].time_ms < begin_ms:
            self._samples.popleft()


class DelayedScaleDowns:
    """Scale-downs that wait: a vertex shrinks when this was asked for long enough, to the largest parallelism asked for.

    Per vertex: the time of the first demand, and all demands since. `interval_ms`: how long it waits; 0: not at all.
    Source: DelayedScaleDown of Flink's Kubernetes operator (docs/spec/autoscaler.md#delayed-scale-down).
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._first_ms: dict[VertexId, int] = {}
        self._asked: dict[VertexId, list[tuple[int, int]]] = {}

    def ask(self, vertex_id: VertexId, now_ms: int, parallelism: int) -> int | None:
        """Record a target. Return the parallelism to shrink to; None: not yet."""
        first_ms = self._first_ms.setdefault(vertex_id, now_ms)
        begin_ms = now_ms - self._interval_ms
        asked = [one for one in self._asked.get(vertex_id, ()) if one[0] >= begin_ms]
        asked.append((now_ms, parallelism))
        # Only what is larger than all that came later can become the largest.
        later, kept = 0, []
        for one in reversed(asked):
            if one[1] > later:
                later = one[1]
                kept.append(one)
        self._asked[vertex_id] = kept[::-1]
        return later if first_ms <= begin_ms else None

    def forget(self, vertex_id: VertexId) -> None:
        self._first_ms.pop(vertex_id, None)
        self._asked.pop(vertex_id, None)

    def forget_all(self) -> None:
        self._first_ms.clear()
        self._asked.clear()


@dataclass(slots=True)
class _Round:
    """One decision, while it is made."""

    now_ms: int
    evaluation: Evaluation
    proposals: dict[VertexId, Proposal] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    events: list[ScalingEvent] = field(default_factory=list)


class Autoscaler:
    """Decides for one job. Whether it is asked at all is up to the host (`settings.is_enabled`). Only `step` changes it."""

    def __init__(self, settings: AutoscalerSettings, topology: Topology) -> None:
        self.settings = settings
        self.topology = topology
        self.latest: Evaluation | None = None
        """The newest evaluation, whether or not it led to a decision."""
        self._window = MetricsWindow(settings.window)
        self._delayed = DelayedScaleDowns(settings.gates.scale_down_ms)
        self._history = ScalingHistory(settings.history_count, settings.history_age_ms)
        self._decisions: deque[Decision] = deque(maxlen=DECISIONS_KEPT)
        self._restarts: deque[tuple[int, int]] = deque(maxlen=settings.history_count)
        self._pending: Decision | None = None
        self._recommended: dict[VertexId, int] = {}
        self._reported_ms: dict[tuple[object, ...], int] = {}

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The newest decisions, recommendations and events, oldest first."""
        return tuple(self._decisions)

    def step(self, event: AutoscalerEvent, now_ms: int) -> Sequence[AutoscalerEffect]:
        """Take one event. Returns: the decision, if one was wanted and anything is new, or an event about a refusal."""
        match event:
            case JobMeasured():
                self._window.add(JobSample(now_ms, event.samples, event.memory))
            case JobRestarted():
                self._window.restart(now_ms)
                self._pending = None
            case JobRescaled():
                self._on_rescaled(event, now_ms)
            case RescaleRefused():
                return self._on_refused(event, now_ms)
            case DecisionWanted():
                decision = self._decide(now_ms, event.room)
                return () if decision is None else (decision,)
            case _:
                assert_never(event)
        return ()

    def _on_rescaled(self, event: JobRescaled, now_ms: int) -> None:
        self._window.restart(now_ms)
        self._delayed.forget_all()
        self._restarts.append((now_ms, event.took_ms))
        if self._pending is not None:
            self._history.correct(self._pending.time_ms, event.parallelism)
            self._finish(Outcome(now_ms, event.took_ms))

    def _on_refused(self, event: RescaleRefused, now_ms: int) -> Sequence[ScalingEvent]:
        """Returns: nothing if it was reported not long ago, or no decision is under way."""
        if self._pending is None:
            return ()
        self._window.restart(now_ms)
        self._history.take_back(self._pending.time_ms)
        self._finish(Outcome(now_ms, refusal=event.why))
        events: list[ScalingEvent] = []
        text = f"a rescale did not come about: {event.why}."
        self._report(events, now_ms, EventKind.REFUSED, text)
        return events

    def _decide(self, now_ms: int, room: ClusterRoom) -> Decision | None:
        """Return what is to change, or what a user should know; None: nothing new."""
        if not self._window.is_full:
            return None
        self._history.forget_old(now_ms)
        samples, settings = self._window.samples, self.settings
        evaluation = evaluate(
            samples, self.topology, settings.window, settings.capacity, self.restart_s(now_ms)
        )
        for one in evaluation.vertices.values():
            self._history.note(one.vertex_id, one.parallelism, one.true_rate)
        blocked = [one.vertex_id for one in evaluation.vertices.values() if self._is_blocked(one)]
        evaluation = limited(evaluation, blocked, self.topology, settings.capacity)
        self.latest = evaluation
        work = _Round(now_ms, evaluation)
        for one in evaluation.vertices.values():
            if one.vertex_id not in settings.gates.excluded_vertices:
                self._judge(work, one)
        if not any(change.is_outside for change in work.changes):
            work.changes.clear()
        slots = self._slots(work)
        held = None
        if work.changes:
            held = held_by(samples, slots, room, settings.gates)
        return self._conclude(work, held, slots)

    def restart_s(self, now_ms: int) -> float:
        """Return the seconds that a rescale is expected to take: the longest one measured, else the option's."""
        settings = self.settings.capacity
        begin_ms = now_ms - self.settings.history_age_ms
        took = [took_ms for time_ms, took_ms in self._restarts if time_ms >= begin_ms]
        if not settings.is_restart_tracked or not took:
            return settings.restart_s
        return min(settings.restart_limit_s, max(took) / 1000)

    def _judge(self, work: _Round, one: Evaluated) -> None:
        """Propose a parallelism for a vertex, and note the change unless something holds it up."""
        proposal = self._propose(one)
        work.proposals[one.vertex_id] = proposal
        after = self._allowed(work, one, proposal.parallelism)
        if after is None:
            return
        name = self.topology.name(one.vertex_id)
        reason = decisions.of_change(name, one, proposal, after, self.settings.capacity)
        work.changes.append(
            Change(one.vertex_id, name, one.parallelism, after, one.is_outside, reason)
        )

    def _propose(self, one: Evaluated) -> Proposal:
        step = self.settings.step
        share = 1.0
        if step.is_scalability_observed:
            share = self._history.scalability(
                one.vertex_id, step.scalability_observations, step.scalability_min
            )
        return propose(one, self.topology, step, share)

    def _allowed(self, work: _Round, one: Evaluated, wanted: int) -> int | None:
        """Return the parallelism that a vertex may get now; None: it keeps its own."""
        if wanted < one.parallelism:
            due = self._delayed.ask(one.vertex_id, work.now_ms, wanted)
            is_held = work.evaluation.is_backlog or due is None or due >= one.parallelism
            return None if is_held else due
        self._delayed.forget(one.vertex_id)
        if wanted == one.parallelism:
            return None
        self._report_effect(work, one, wanted)
        return None if self._is_blocked(one) else wanted

    def _is_blocked(self, one: Evaluated) -> bool:
        """Whether a vertex wants to grow, and growing has not helped."""
        gates = self.settings.gates
        streak = self._history.ineffective(one.vertex_id, one.parallelism, gates.effect_min)
        if not gates.is_effect_required or len(streak) <= gates.ineffective_tolerated:
            return False
        return self._propose(one).parallelism > one.parallelism

    def _report_effect(self, work: _Round, one: Evaluated, wanted: int) -> None:
        """Report that growing has not helped a vertex that wants to grow more, and whether it is blocked."""
        gates, vertex_id = self.settings.gates, one.vertex_id
        streak = self._history.ineffective(vertex_id, one.parallelism, gates.effect_min)
        if not streak:
            return
        name = self.topology.name(vertex_id)
        text = decisions.of_ineffective(name, streak[0], gates.effect_min)
        self._report(work.events, work.now_ms, EventKind.INEFFECTIVE, text, vertex_id)
        if self._is_blocked(one):
            text = decisions.of_blocked(name, wanted, streak)
            self._report(work.events, work.now_ms, EventKind.GROWTH_BLOCKED, text, vertex_id)

    def _conclude(self, work: _Round, held: Held | None, slots: tuple[int, int]) -> Decision | None:
        orders = {change.vertex_id: change.after for change in work.changes}
        if held is not None and held.kind is not None:
            self._report(work.events, work.now_ms, held.kind, f"nothing is rescaled: {held.why}.")
        is_new = self._is_new(orders, is_applied=held is None)
        if not is_new and not work.events:
            return None
        changes = tuple(work.changes) if is_new else ()
        decision = Decision(
            work.now_ms,
            changes,
            tuple(work.events),
            is_applied=held is None and bool(changes),
            held_by=held.why if held and changes else "",
            slots_before=slots[0],
            slots_after=slots[1] if changes else slots[0],
            evaluation=work.evaluation,
            proposals=work.proposals,
        )
        self._decisions.append(decision)
        if decision.is_applied:
            self._apply(decision)
        return decision

    def _is_new(self, orders: dict[VertexId, int], *, is_applied: bool) -> bool:
        """Whether the changes differ from those that are under way, or were recommended last."""
        if is_applied:
            self._recommended = {}
            return bool(orders) and (self._pending is None or self._pending.orders != orders)
        is_new = orders != self._recommended
        self._recommended = orders
        return bool(orders) and is_new

    def _apply(self, decision: Decision) -> None:
        if self._pending is not None:
            self._history.take_back(self._pending.time_ms)
        self._pending = decision
        self._delayed.forget_all()
        for change in decision.changes:
            one = decision.evaluation.vertices[change.vertex_id]
            expected = one.expected_rate(change.after)
            self._history.add(
                change.vertex_id,
                FormerRescale(
                    decision.time_ms, change.before, change.after, one.true_rate, expected
                ),
            )

    def _slots(self, work: _Round) -> tuple[int, int]:
        newest = self._window.samples[-1].vertices
        before = {vertex_id: newest[vertex_id].parallelism for vertex_id in newest}
        after = before | {change.vertex_id: change.after for change in work.changes}
        return self.topology.slots(before), self.topology.slots(after)

    def _finish(self, outcome: Outcome) -> None:
        """Note what became of the decision that is under way."""
        for index, decision in enumerate(self._decisions):
            if decision is self._pending:
                self._decisions[index] = decision.with_outcome(outcome)
        self._pending = None

    def _report(
        self,
        events: list[ScalingEvent],
        now_ms: int,
        kind: EventKind,
        text: str,
        vertex_id: VertexId | None = None,
    ) -> None:
        """Add an event, unless it was reported not long ago. A new increase that does not help is another event."""
        about = self._history.of(vertex_id)[-1].time_ms if vertex_id else None
        key = (kind, vertex_id, about)
        reported_ms = self._reported_ms.get(key)
        if reported_ms is not None and now_ms < reported_ms + self.settings.event_interval_ms:
            return
        oldest_ms = now_ms - self.settings.event_interval_ms
        self._reported_ms = {one: at for one, at in self._reported_ms.items() if at > oldest_ms}
        self._reported_ms[key] = now_ms
        events.append(ScalingEvent(now_ms, kind, text, vertex_id))
