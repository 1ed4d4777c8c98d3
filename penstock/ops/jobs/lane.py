"""The states of one thing over time: the newest changes, and how many older ones are forgotten. Knows no clock."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.states import ExecutionState, aggregate_state

MOST_CHANGES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Lane:
    """The states of one thing over time.

    `changes`: each state and when it began, in epoch ms, oldest first. `forgotten`: how many older ones there were.
    """

    changes: tuple[tuple[str, int], ...] = ()
    forgotten: int = 0


NO_LANE: Final = Lane()


class LaneRecord:
    """Takes each state in order. A state that lasts is one change, however often it is reported."""

    def __init__(self) -> None:
        self._changes: deque[tuple[str, int]] = deque(maxlen=MOST_CHANGES)
        self._forgotten = 0

    def enter(self, state: str, at_ms: int) -> None:
        """It is in this state from now on."""
        if self._changes and self._changes[-1][0] == state:
            return
        self._forgotten += len(self._changes) == MOST_CHANGES
        self._changes.append((state, at_ms))

    def lane(self) -> Lane:
        return Lane(tuple(self._changes), self._forgotten)


class VertexLane(LaneRecord):
    """The one state that Flink gives to all subtasks of a vertex, over time."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[ExecutionState] = Counter()

    def moved(self, old: ExecutionState | None, new: ExecutionState | None, at_ms: int) -> None:
        """A subtask is in another state. `old` None: the subtask is new. `new` None: it is there no more."""
        if old is new:
            return
        if old is not None:
            self._counts[old] -= 1
        if new is not None:
            self._counts[new] += 1
        if self._counts.total():
            self.enter(str(aggregate_state(self._counts)), at_ms)
