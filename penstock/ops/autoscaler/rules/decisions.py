"""What the autoscaler has decided and why: plain data for the master, the log, REST and the dashboard.

Source: ScalingSummary, AutoScalerEventHandler of Flink's Kubernetes operator. Differs: each change and each event says its reason with
its numbers.

Reasons in plain words, with the numbers that led to them. Source: none in Flink, whose events name classes of metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from penstock.engine.model.ids import VertexId
from penstock.engine.model.texts.amounts import counted
from penstock.ops.autoscaler.rules.evaluation import Evaluated, Evaluation, Proposal
from penstock.ops.autoscaler.rules.history import FormerRescale
from penstock.ops.autoscaler.rules.settings import CapacitySettings


def of_change(
    name: str, one: Evaluated, proposal: Proposal, after: int, settings: CapacitySettings
) -> str:
    """Return why a vertex gets another parallelism."""
    now = one.parallelism
    verb = "grows" if after > now else "shrinks"
    does = f"{name} {verb} from {now} to {after}: at full load it {_can(one)}"
    wanted = [f"{rate(one.target_rate)} that arrive at {settings.utilization:.0%} utilization"]
    if one.catch_up_rate > 0:
        time = duration(settings.catch_up_s)
        wanted.append(f"{rate(one.catch_up_rate)} to work off what waits within {time}")
    parts = [f"{does}, and should do {rate(one.capacity)}, for {' and '.join(wanted)}"]
    if proposal.parallelism != proposal.wanted and after == proposal.parallelism:
        parts.append(f"; {proposal.wanted} became {after} to spread the load evenly")
    if after not in {proposal.parallelism, now}:
        parts.append(f"; {after} is the most that was asked for while the scale-down waited")
    if not one.is_outside:
        parts.append("; it is within its bounds and goes along with other vertices")
    return "".join(parts)


def of_ineffective(name: str, last: FormerRescale, gain_min: float) -> str:
    """Return which increase has not helped."""
    return (
        f"{name} grew from {last.before} to {last.after} to do {rate(last.expected_rate)} in place "
        f"of {rate(last.rate)}, and does {rate(last.best_rate or 0.0)}: {max(0.0, last.gain):.0%} "
        f"of the gain, where at least {gain_min:.0%} is asked for. Look for skewed keys, or for a "
        "limit outside of the job."
    )


def of_blocked(name: str, wanted: int, streak: Sequence[FormerRescale]) -> str:
    """Return why a vertex does not grow further."""
    newest = streak[0]
    return (
        f"{name} stays at {newest.after} and does not grow to {wanted}: "
        f"{counted(len(streak), 'increase')} in a row, from {streak[-1].before} to {newest.after}, "
        "did not help."
    )


def rate(value: float) -> str:
    """`8,421/s`."""
    return "any rate" if math.isinf(value) else f"{value:,.0f}/s"


def duration(seconds: float) -> str:
    """`10 min`, `90 s`."""
    minutes = seconds / 60
    return f"{minutes:g} min" if minutes >= 2 else f"{seconds:g} s"


def _can(one: Evaluated) -> str:
    if math.isinf(one.true_rate):
        return "has nothing to do"
    how = "has shown" if one.is_observed else "can do"
    return f"{how} {rate(one.true_rate)}"


class EventKind(StrEnum):
    """What a user should know besides changes."""

    INEFFECTIVE = "INEFFECTIVE"
    GROWTH_BLOCKED = "GROWTH_BLOCKED"
    MEMORY_PRESSURE = "MEMORY_PRESSURE"
    CLUSTER_FULL = "CLUSTER_FULL"
    QUOTA_REACHED = "QUOTA_REACHED"
    REFUSED = "REFUSED"


@dataclass(frozen=True, slots=True)
class ScalingEvent:
    """An event of the autoscaler for users. `vertex_id`: None if it is about the job."""

    time_ms: int
    kind: EventKind
    text: str
    vertex_id: VertexId | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One vertex with another parallelism. `is_outside`: it is outside of its bounds itself; else it goes along with others."""

    vertex_id: VertexId
    name: str
    before: int
    after: int
    is_outside: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a decision. `took_ms`: from the decision until the job ran again. `refusal`: why it did not come about; else ""."""

    time_ms: int
    took_ms: int | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """One round with a result.

    Attributes:
        changes: vertices with another parallelism, in topological order. Empty: there are only events.
        is_applied: the master should carry the changes out. False: they are a recommendation.
        held_by: why they are only a recommendation; else "".
        slots_before, slots_after: of the job.
        proposals: of every vertex that was evaluated, changed or not.
        outcome: None while it is not known.
    """

    time_ms: int
    changes: tuple[Change, ...]
    events: tuple[ScalingEvent, ...]
    is_applied: bool
    held_by: str
    slots_before: int
    slots_after: int
    evaluation: Evaluation
    proposals: Mapping[VertexId, Proposal]
    outcome: Outcome | None = None

    @property
    def orders(self) -> dict[VertexId, int]:
        """The parallelism that the master should bring about, of the vertices that change."""
        if not self.is_applied:
            return {}
        return {change.vertex_id: change.after for change in self.changes}

    def with_outcome(self, outcome: Outcome) -> Decision:
        return replace(self, outcome=outcome)


AutoscalerEffect: TypeAlias = Decision | ScalingEvent
"""A decision to carry out and to log, or an event to log."""
