"""The usual SplitEnumerator: a queue of splits. Does not know kinds of splits. Source: similar to Flink SimpleSplitAssigner."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.engine.runtime.sources.contract import EnumeratorContext, SplitEnumerator


class QueueEnumerator(SplitEnumerator):
    """Assigns a known set of splits, one per request, in order; returned splits come first.

    With `is_final` False, `add` may add splits; requests wait for them.
    """

    def __init__(
        self, context: EnumeratorContext, splits: Iterable[Any], *, is_final: bool = True
    ) -> None:
        self._context = context
        self._splits = deque(splits)
        self._is_final = is_final
        self._waiting: dict[int, str] = {}

    def handle_split_request(self, subtask: int, host: str) -> None:
        if self._splits:
            self._context.assign_splits(subtask, [self._take(host)])
        elif self._is_final:
            self._context.signal_no_more_splits(subtask)
        else:
            self._waiting[subtask] = host

    def add_splits_back(self, splits: Sequence[Any], subtask: int) -> None:
        # The subtask's new attempt asks again, so an older request of the subtask is dropped.
        self._waiting.pop(subtask, None)
        self._splits.extendleft(reversed(splits))
        self._serve_waiting()

    def add(self, splits: Iterable[Any]) -> None:
        """Add splits, for readers that wait and for later requests."""
        self._splits.extend(splits)
        self._serve_waiting()

    def unassigned_splits(self) -> int:
        return len(self._splits)

    def snapshot_state(self) -> Any:
        return list(self._splits)

    def restore_state(self, state: Any) -> None:
        """Take the splits of a snapshot, instead of those given at the start."""
        self._splits = deque(state)

    def _serve_waiting(self) -> None:
        """Serve the waiting readers. Requests of readers that are gone are dropped: splits assigned to them would be lost."""
        there = set(self._context.registered_readers())
        self._waiting = {one: host for one, host in self._waiting.items() if one in there}
        while self._splits and self._waiting:
            subtask = next(iter(self._waiting))
            self.handle_split_request(subtask, self._waiting.pop(subtask))

    def _take(self, host: str) -> Any:
        return self._splits.popleft()
