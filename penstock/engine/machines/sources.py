"""What the coordinator of a source keeps of its readers: which splits they have, and how far each may run ahead of the
slowest one.

Knows no clock. Source: Flink SourceCoordinator.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

NO_CHECKPOINT: Final = -1
"""The checkpoint id for a subtask that restarts without a checkpoint."""


class SplitAssignmentTracker:
    """Which splits are not in a reader's state yet, so that they go back to the enumerator when the reader restarts:
    assignments since the last checkpoint, and before each checkpoint that is not complete.

    Splits are opaque. Source: Flink SplitAssignmentTracker (docs/spec/sources-and-sinks.md#sources); differs: splits
    come back in the order in which they were assigned.
    """

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


HIGHEST: Final = 2**63 - 1


class WatermarkAlignment:
    """How far the sources of one group may run ahead of the slowest one.

    Readers report their watermark periodically. All get `minimum + drift`, and wait above it. Knows
    no clock and no source. Source: Flink SourceCoordinator.WatermarkAggregator
    (docs/spec/watermarks.md#alignment-of-sources).

    One group. A reader is any hashable (source and subtask).
    """

    def __init__(self) -> None:
        self._watermarks: dict[Hashable, int] = {}

    def report(self, reader: Hashable, watermark_ms: int) -> None:
        """Note a watermark. Idle and finished readers report 2^63-1; readers without a watermark so
        far report nothing.
        """
        self._watermarks[reader] = watermark_ms

    def forget(self, reader: Hashable) -> None:
        """The reader restarts; its new attempt will report again."""
        self._watermarks.pop(reader, None)

    def max_allowed_ms(self, max_drift_ms: int) -> int | None:
        """Return the watermark above which readers wait; None: nobody has reported yet."""
        if not self._watermarks:
            return None
        return min(min(self._watermarks.values()) + max_drift_ms, HIGHEST)
