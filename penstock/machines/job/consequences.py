"""Failures that only follow from the failure of a producer, kept until the producer says why it failed.

A consumer's report that it lost its producer may come before the producer's own: they take different ways. Whoever decides on
the consumer's report alone decides, and tells, without the cause. Knows no strategy. Source: none; in Flink the first report
decides.
"""

from __future__ import annotations

from typing import Final

from penstock.machines.books.journal import Journal
from penstock.machines.execution.execution_graph import ExecutionVertex
from penstock.model.messages import FailureInfo, SetTimer
from penstock.model.states import ExecutionState

CAUSE_TIMER: Final = "cause-of-failure"
CAUSE_WAIT_MS: Final = 3000
"""A producer that has told its consumers reports next. If its TaskManager is lost just then, nothing comes."""
_PRODUCER_FAILED: Final = "ProducerFailed"
_HAS_TO_REPORT: Final = frozenset({
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
})


class Consequences:
    """The failures that wait for their cause."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._held: dict[int, tuple[ExecutionVertex, FailureInfo]] = {}
        self._until_ms = 0

    def holds(self, vertex: ExecutionVertex, failure: FailureInfo) -> bool:
        """Keep the failure if a producer still has to say why it failed. Returns whether it was kept."""
        if failure.kind != _PRODUCER_FAILED or not self._awaits_producer(vertex):
            return False
        if not self._held:
            self._until_ms = self._journal.now_ms + CAUSE_WAIT_MS
            self._journal.emit(SetTimer(CAUSE_TIMER, self._until_ms))
        self._held[vertex.index] = vertex, failure
        return True

    def __contains__(self, vertex: ExecutionVertex) -> bool:
        """Whether the failure of this task is kept."""
        return vertex.index in self._held

    def take(self) -> list[tuple[ExecutionVertex, FailureInfo]]:
        """What was kept: the cause is known now, or does not matter any more."""
        held, self._held = self._held, {}
        return list(held.values())

    def is_over(self, timer: str) -> bool:
        """Whether this timer says that no cause comes for what is kept."""
        is_due = timer == CAUSE_TIMER and self._journal.now_ms >= self._until_ms
        return is_due and bool(self._held)

    def _awaits_producer(self, vertex: ExecutionVertex) -> bool:
        """Also one whose own failure is kept: it waits for the report of its producer in turn."""
        return any(
            partition.producer.state in _HAS_TO_REPORT or partition.producer in self
            for group in vertex.consumed_groups
            for partition in group.partitions
        )
