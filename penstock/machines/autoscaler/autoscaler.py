"""The autoscaler of one job: told of measurements and of rescales, it decides on the parallelism of each vertex.

Knows no clock, no records and no slots: it is told the times and what was measured, and the master brings its decisions about. A decision
gives upper bounds: the upper bound of a vertex is its order, the lower one min(order, former lower bound). Source: the autoscaler of Flink's
Kubernetes operator (docs/spec/autoscaler.md). Differs: nothing shrinks while a backlog is worked off, what was decided is not decided
again while it is under way, a refusal counts as a fresh start of the window, and where a vertex is not allowed to grow any more, the others
do not grow beyond it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from penstock.machines.autoscaler import reasons
from penstock.machines.autoscaler.decisions import (
    AutoscalerEffect,
    Change,
    Decision,
    EventKind,
    Outcome,
    ScalingEvent,
)
from penstock.machines.autoscaler.delayed import DelayedScaleDowns
from penstock.machines.autoscaler.evaluation import Evaluated, Evaluation, evaluate, limited
from penstock.machines.autoscaler.events import (
    AutoscalerEvent,
    DecisionWanted,
    JobMeasured,
    JobRescaled,
    JobRestarted,
    RescaleRefused,
)
from penstock.machines.autoscaler.gates import Held, held_by
from penstock.machines.autoscaler.history import FormerRescale, ScalingHistory
from penstock.machines.autoscaler.parallelism import Proposal, propose
from penstock.machines.autoscaler.samples import (
    ClusterRoom,
    JobSample,
    Topology,
)
from penstock.machines.autoscaler.settings import AutoscalerSettings
from penstock.machines.autoscaler.window import MetricsWindow
from penstock.model.ids import VertexId

DECISIONS_KEPT: Final = 100


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
        self._told_ms: dict[tuple[object, ...], int] = {}

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The newest decisions, recommendations and events, oldest first."""
        return tuple(self._decisions)

    def step(self, event: AutoscalerEvent, now_ms: int) -> Sequence[AutoscalerEffect]:
        """Take one event. Returns: the decision if one was wanted and there is anything new, or an event that tells of a refusal."""
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
        """Returns: nothing if it was told not long ago, or no decision is under way."""
        if self._pending is None:
            return ()
        self._window.restart(now_ms)
        self._history.take_back(self._pending.time_ms)
        self._finish(Outcome(now_ms, refusal=event.why))
        events: list[ScalingEvent] = []
        text = f"a rescale did not come about: {event.why}."
        self._tell(events, now_ms, EventKind.REFUSED, text)
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
            held = held_by(now_ms, samples, slots, room, settings.gates)
        return self._conclude(work, held, slots)

    def restart_s(self, now_ms: int) -> float:
        """Return the seconds that a rescale is expected to take: the longest one measured, else the option's."""
        settings = self.settings.capacity
        begin_ms = now_ms - self.settings.history_age_ms
        took = [took_ms for time_ms, took_ms in self._restarts if time_ms >= begin_ms]
        if not settings.is_restart_tracked or not took:
            return settings.restart_s
        return min(settings.restart_limit_s, max(took) / 1000)

    def shrinks_since_ms(self, vertex_id: VertexId) -> int | None:
        """Return since when a vertex has too many subtasks and waits to shrink; None: it has not."""
        return self._delayed.waits_since(vertex_id)

    def _judge(self, work: _Round, one: Evaluated) -> None:
        """Propose a parallelism for a vertex, and note the change unless something holds it up."""
        proposal = self._propose(one)
        work.proposals[one.vertex_id] = proposal
        after = self._allowed(work, one, proposal.parallelism)
        if after is None:
            return
        name = self.topology.name(one.vertex_id)
        reason = reasons.of_change(name, one, proposal, after, self.settings.capacity)
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
        self._tell_effect(work, one, wanted)
        return None if self._is_blocked(one) else wanted

    def _is_blocked(self, one: Evaluated) -> bool:
        """Whether a vertex wants to grow, and growing has not helped."""
        gates = self.settings.gates
        streak = self._history.ineffective(one.vertex_id, one.parallelism, gates.effect_min)
        if not gates.is_effect_required or len(streak) <= gates.ineffective_tolerated:
            return False
        return self._propose(one).parallelism > one.parallelism

    def _tell_effect(self, work: _Round, one: Evaluated, wanted: int) -> None:
        """Tell that growing has not helped a vertex that wants to grow more, and whether it is blocked."""
        gates, vertex_id = self.settings.gates, one.vertex_id
        streak = self._history.ineffective(vertex_id, one.parallelism, gates.effect_min)
        if not streak:
            return
        name = self.topology.name(vertex_id)
        text = reasons.of_ineffective(name, streak[0], gates.effect_min)
        self._tell(work.events, work.now_ms, EventKind.INEFFECTIVE, text, vertex_id)
        if self._is_blocked(one):
            text = reasons.of_blocked(name, wanted, streak)
            self._tell(work.events, work.now_ms, EventKind.GROWTH_BLOCKED, text, vertex_id)

    def _conclude(self, work: _Round, held: Held | None, slots: tuple[int, int]) -> Decision | None:
        orders = {change.vertex_id: change.after for change in work.changes}
        if held is not None and held.kind is not None:
            self._tell(work.events, work.now_ms, held.kind, f"nothing is rescaled: {held.why}.")
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

    def _tell(
        self,
        events: list[ScalingEvent],
        now_ms: int,
        kind: EventKind,
        text: str,
        vertex_id: VertexId | None = None,
    ) -> None:
        """Add an event, unless it was told not long ago. A new increase that does not help is another event."""
        about = self._history.of(vertex_id)[-1].time_ms if vertex_id else None
        key = (kind, vertex_id, about)
        told_ms = self._told_ms.get(key)
        if told_ms is not None and now_ms < told_ms + self.settings.event_interval_ms:
            return
        oldest_ms = now_ms - self.settings.event_interval_ms
        self._told_ms = {one: at for one, at in self._told_ms.items() if at > oldest_ms}
        self._told_ms[key] = now_ms
        events.append(ScalingEvent(now_ms, kind, text, vertex_id))
