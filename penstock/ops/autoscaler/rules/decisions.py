"""What the autoscaler has decided and why: plain data for the master, the log, REST and the dashboard.

Source: ScalingSummary, AutoScalerEventHandler of Flink's Kubernetes operator. Differs: each change and each event says its reason with
its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from penstock.engine.model.ids import VertexId
from penstock.ops.autoscaler.rules.evaluation import Evaluation
from penstock.ops.autoscaler.rules.parallelism import Proposal


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
    """`vertex_id`: None if it is about the job."""

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
