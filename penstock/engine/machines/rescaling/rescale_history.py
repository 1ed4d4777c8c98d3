"""The rescales of a job: the newest ones, and how many there were. Bounded.

Knows no clock and draws no id: both come in. A new record takes the place of the one under way.
Source: Flink RescaleTimeline, DefaultRescaleTimeline (docs/spec/elasticity.md#rescale-history).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import replace

from penstock.engine.machines.rescaling.slot_allocator import SharingGroup, VertexParallelism
from penstock.engine.model.elastic import (
    Change,
    Rescale,
    RescaleCause,
    RescaleEnd,
    RescaleOutcome,
    Rescales,
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
        self.current: Rescale | None = None
        self._counts: Counter[RescaleOutcome] = Counter()
        self._latest: dict[RescaleOutcome, Rescale] = {}
        self._attempts: tuple[str, int] = ("", 0)

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
        if self.current is not None:
            self.end(_ENDED_BY[cause], now_ms)
        of_requirements, attempts = self._attempts
        attempt = attempts + 1 if of_requirements == requirements_id else 1
        self._attempts = (requirements_id, attempt)
        vertices_before = before.of_vertex if before else {}
        slots_before = before.slots_of_group if before else {}
        self.current = Rescale(
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
        if self.current is not None:
            self.current = self.current.in_state(state, now_ms, error)
            self.changes += 1

    def decide(self, parallelism: VertexParallelism) -> None:
        """The parallelism of the next graph is known."""
        if self.current is not None:
            self.current = self.current.decided(parallelism.of_vertex, parallelism.slots_of_group)
            self.changes += 1

    def end(self, end: RescaleEnd, now_ms: int, error: str | None = None) -> None:
        """The rescale under way ends. `error`: what ended its last state."""
        if self.current is None:
            return
        last = self.current.in_state(None, now_ms, error)
        ended = replace(last, end=end, ended_ms=now_ms)
        self.current = None
        self._counts[end.outcome] += 1
        if self._size:
            self._ended.append(ended)
            self._latest[end.outcome] = ended
        self.changes += 1

    def snapshot(self) -> Rescales:
        """All that is known now."""
        return Rescales(tuple(self), self.counts, self.latest, self.current is not None)

    def __iter__(self) -> Iterator[Rescale]:
        yield from self._ended
        if self.current is not None and self._size:
            yield self.current

    def __len__(self) -> int:
        return sum(1 for _ in self)


_ENDED_BY = {
    RescaleCause.INITIAL_SCHEDULE: RescaleEnd.NO_RESOURCES_OR_PARALLELISMS_CHANGE,
    RescaleCause.UPDATE_REQUIREMENT: RescaleEnd.RESOURCE_REQUIREMENTS_UPDATED,
    RescaleCause.NEW_RESOURCE_AVAILABLE: RescaleEnd.NO_RESOURCES_OR_PARALLELISMS_CHANGE,
    RescaleCause.RECOVERABLE_FAILOVER: RescaleEnd.JOB_FAILOVER_RESTARTING,
}
"""Why a rescale ends that another one replaces, by the cause of the other."""
