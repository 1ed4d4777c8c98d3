"""SplitAssignmentTracker: which splits are not in a reader's state yet, so that they go back to the
enumerator when the reader restarts.

Splits are opaque. Knows no enumerator and no reader. Source: Flink SplitAssignmentTracker
(docs/spec/sources-and-sinks.md#sources); differs: splits come back in the order in which they were
assigned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

NO_CHECKPOINT: Final = -1
"""The checkpoint id for a subtask that restarts without a checkpoint."""


class SplitAssignmentTracker:
    """Assignments since the last checkpoint, and before each checkpoint that is not complete."""

    def __init__(self) -> None:
        self._latest: dict[int, list[Any]] = {}
        self._by_checkpoint: dict[int, dict[int, list[Any]]] = {}

    def assign(self, subtask: int, splits: Sequence[Any]) -> None:
        """These splits go to a reader now."""
        self._latest.setdefault(subtask, []).extend(splits)

    def checkpoint(self, checkpoint_id: int) -> None:
        """The coordinator's part of a checkpoint is taken: later assignments are not in it."""
        self._by_checkpoint[checkpoint_id] = self._latest
        self._latest = {}

    def complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete: all splits assigned before it are in the readers' state."""
        for older in [known for known in self._by_checkpoint if known <= checkpoint_id]:
            del self._by_checkpoint[older]

    def reset(self, subtask: int, checkpoint_id: int = NO_CHECKPOINT) -> list[Any]:
        """Return the splits for `add_splits_back`: those that the subtask got after the checkpoint that it restores."""
        back: list[Any] = []
        for known in sorted(self._by_checkpoint):
            if known > checkpoint_id:
                back += self._by_checkpoint[known].pop(subtask, [])
        back += self._latest.pop(subtask, [])
        return back
