"""The rescales of a job: why each began, what it wanted and got, and how it ended. Bounded.

Knows no clock and draws no id: both come in. Records never change; a new one takes the place of the one under way.
Source: Flink RescaleTimeline, Rescale, DefaultRescaleTimeline (docs/spec/elasticity.md#rescale-history).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from penstock.machines.adaptive.parallelism import SharingGroup, VertexParallelism
from penstock.model.ids import VertexId


class RescaleCause(StrEnum):
    """Why a rescale begins."""

    INITIAL_SCHEDULE = "INITIAL_SCHEDULE"
    UPDATE_REQUIREMENT = "UPDATE_REQUIREMENT"
    NEW_RESOURCE_AVAILABLE = "NEW_RESOURCE_AVAILABLE"
    RECOVERABLE_FAILOVER = "RECOVERABLE_FAILOVER"


class RescaleOutcome(StrEnum):
    """How a rescale ends."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    IGNORED = "IGNORED"


class RescaleEnd(StrEnum):
    """Why a rescale ends."""

    SUCCEEDED = "SUCCEEDED"
    EXCEPTION_OCCURRED = "EXCEPTION_OCCURRED"
    RESOURCE_REQUIREMENTS_UPDATED = "RESOURCE_REQUIREMENTS_UPDATED"
    NO_RESOURCES_OR_PARALLELISMS_CHANGE = "NO_RESOURCES_OR_PARALLELISMS_CHANGE"
    JOB_FAILOVER_RESTARTING = "JOB_FAILOVER_RESTARTING"
    JOB_FINISHED = "JOB_FINISHED"
    JOB_FAILED = "JOB_FAILED"
    JOB_CANCELED = "JOB_CANCELED"

    @property
    def outcome(self) -> RescaleOutcome:
        return _OUTCOMES.get(self, RescaleOutcome.IGNORED)


_OUTCOMES = {
    RescaleEnd.SUCCEEDED: RescaleOutcome.COMPLETED,
    RescaleEnd.EXCEPTION_OCCURRED: RescaleOutcome.FAILED,
}


@dataclass(frozen=True, slots=True)
class Change:
    """Of the parallelism of a vertex, or of the slots of a sharing group.

    `desired`, `sufficient`: the upper and the lower bound. `before` None: nothing ran. `after` None: not decided.
    """

    desired: int
    sufficient: int
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class StateSpan:
    """A state of the scheduler during a rescale. `left_ms` None: it is in it. `error`: what ended it, as text."""

    state: str
    entered_ms: int
    left_ms: int | None = None
    error: str | None = None

    @property
    def duration_ms(self) -> int | None:
        return None if self.left_ms is None else self.left_ms - self.entered_ms


@dataclass(frozen=True, slots=True)
class Rescale:
    """One rescale. `end` None: it is under way.

    `attempt` counts the rescales for the same requirements, from 1. `group_of_vertex`: the name of each vertex's
    slot sharing group.
    """

    rescale_id: str
    requirements_id: str
    attempt: int
    cause: RescaleCause
    started_ms: int
    vertices: Mapping[VertexId, Change]
    group_slots: Mapping[str, Change]
    group_of_vertex: Mapping[VertexId, str] = field(default_factory=dict)
    states: tuple[StateSpan, ...] = ()
    end: RescaleEnd | None = None
    ended_ms: int | None = None

    @property
    def duration_ms(self) -> int | None:
        return None if self.ended_ms is None else self.ended_ms - self.started_ms

    def in_state(self, state: str | None, now_ms: int, error: str | None = None) -> Rescale:
        """The last state ends, with its error; None: no other one begins."""
        spans = list(self.states)
        if spans and spans[-1].left_ms is None:
            spans[-1] = replace(spans[-1], left_ms=now_ms, error=error)
        if state is not None:
            spans.append(StateSpan(state, now_ms))
        return replace(self, states=tuple(spans))

    def decided(self, parallelism: VertexParallelism) -> Rescale:
        """With what becomes of each vertex and group."""
        return replace(
            self,
            vertices={
                vertex: replace(change, after=parallelism.of_vertex.get(vertex))
                for vertex, change in self.vertices.items()
            },
            group_slots={
                name: replace(change, after=parallelism.slots_of_group.get(name))
                for name, change in self.group_slots.items()
            },
        )


class RescaleHistory:
    """The newest rescales, at most one of them under way; iterates from the oldest that is kept.

    Events for a rescale change nothing while none is under way. `changes`: how often the history has changed.
    """

    def __init__(self, size: int) -> None:
        """`size`: how many are kept; 0: none, but they are counted."""
        self.changes = 0
        self._size = size
        self._ended: deque[Rescale] = deque(maxlen=size)
        self._current: Rescale | None = None
        self._counts: Counter[RescaleOutcome] = Counter()
        self._latest: dict[RescaleOutcome, Rescale] = {}
        self._attempts: tuple[str, int] = ("", 0)

    @property
    def current(self) -> Rescale | None:
        """The rescale under way."""
        return self._current

    @property
    def counts(self) -> Mapping[RescaleOutcome, int]:
        """Rescales that have ended, also those that are no longer kept."""
        return {outcome: self._counts[outcome] for outcome in RescaleOutcome}

    @property
    def latest(self) -> Mapping[RescaleOutcome, Rescale]:
        """The newest of each outcome, even if it is no longer among those that are kept; none if the size is 0."""
        return dict(self._latest)

    def begin(
        self,
        ids: tuple[str, str],
        cause: RescaleCause,
        now_ms: int,
        groups: tuple[SharingGroup, ...],
        before: VertexParallelism | None = None,
    ) -> None:
        """A rescale begins. One that is under way ends: new requirements, or a failure, make it void.

        Args: ids: of the rescale, unique, and of the requirements. groups: with the bounds that are asked for. before:
        the parallelism of what runs; None: nothing does.
        """
        rescale_id, requirements_id = ids
        if self._current is not None:
            self.end(_ENDED_BY[cause], now_ms)
        of_requirements, attempts = self._attempts
        attempt = attempts + 1 if of_requirements == requirements_id else 1
        self._attempts = (requirements_id, attempt)
        vertices_before = before.of_vertex if before else {}
        slots_before = before.slots_of_group if before else {}
        self._current = Rescale(
            rescale_id,
            requirements_id,
            attempt,
            cause,
            now_ms,
            vertices={
                vertex: Change(bounds.upper, bounds.lower, vertices_before.get(vertex))
                for group in groups
                for vertex, bounds in group.bounds.items()
            },
            group_slots={
                group.name: Change(group.upper, group.lower, slots_before.get(group.name))
                for group in groups
            },
            group_of_vertex={vertex: group.name for group in groups for vertex in group.bounds},
        )
        self.changes += 1

    def enter(self, state: str, now_ms: int, error: str | None = None) -> None:
        """The scheduler goes into a state. `error`: what ended its former state."""
        if self._current is not None:
            self._current = self._current.in_state(state, now_ms, error)
            self.changes += 1

    def decide(self, parallelism: VertexParallelism) -> None:
        """The parallelism of the next graph is known."""
        if self._current is not None:
            self._current = self._current.decided(parallelism)
            self.changes += 1

    def end(self, end: RescaleEnd, now_ms: int, error: str | None = None) -> None:
        """The rescale under way ends. `error`: what ended its last state."""
        if self._current is None:
            return
        last = self._current.in_state(None, now_ms, error)
        ended = replace(last, end=end, ended_ms=now_ms)
        self._current = None
        self._counts[end.outcome] += 1
        if self._size:
            self._ended.append(ended)
            self._latest[end.outcome] = ended
        self.changes += 1

    def find(self, rescale_id: str) -> Rescale | None:
        """The rescale with this id, if it is kept or under way."""
        return next((one for one in self if one.rescale_id == rescale_id), None)

    def __iter__(self) -> Iterator[Rescale]:
        yield from self._ended
        if self._current is not None and self._size:
            yield self._current

    def __len__(self) -> int:
        return sum(1 for _ in self)


_ENDED_BY = {
    RescaleCause.INITIAL_SCHEDULE: RescaleEnd.NO_RESOURCES_OR_PARALLELISMS_CHANGE,
    RescaleCause.UPDATE_REQUIREMENT: RescaleEnd.RESOURCE_REQUIREMENTS_UPDATED,
    RescaleCause.NEW_RESOURCE_AVAILABLE: RescaleEnd.NO_RESOURCES_OR_PARALLELISMS_CHANGE,
    RescaleCause.RECOVERABLE_FAILOVER: RescaleEnd.JOB_FAILOVER_RESTARTING,
}
"""Why a rescale ends that another one replaces, by the cause of the other."""
