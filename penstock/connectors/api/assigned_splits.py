"""Enumerators that know from the beginning which subtask reads which split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.engine.runtime.sources.contract import EnumeratorContext, SplitEnumerator


class AssignedSplits(SplitEnumerator):
    """Gives each subtask its splits when it asks. Each is given once; the readers keep it in their state."""

    def __init__(self, context: EnumeratorContext, *, is_bounded: bool) -> None:
        self._context = context
        self._is_bounded = is_bounded
        self._left: dict[int, list[Any]] = {}

    def handle_split_request(self, subtask: int, host: str) -> None:
        splits = self._left.pop(subtask, [])
        if splits:
            self._context.assign_splits(subtask, splits)
        if self._is_bounded:
            self._context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Sequence[Any], subtask: int) -> None:
        """The subtask starts again, and asks for them."""
        self._left.setdefault(subtask, []).extend(splits)

    def unassigned_splits(self) -> int:
        return sum(map(len, self._left.values()))

    def left(self) -> list[Any]:
        """Return the splits that nobody has."""
        return [split for splits in self._left.values() for split in splits]

    def give(self, number: int, split: Any) -> None:
        """Keep the split for the subtask that has this number, modulo the parallelism."""
        self._left.setdefault(number % self._context.parallelism(), []).append(split)
