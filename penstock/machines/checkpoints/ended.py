"""How recent checkpoints ended, for messages of tasks that come later.

Knows no state. Source: Flink CheckpointCoordinator.recentPendingCheckpoints; differs: the outcome
is remembered too, so that a repeated message of a completed checkpoint never discards its snapshot.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

REMEMBERED: Final = 128


class EndedCheckpoints:
    """Remembers the newest `REMEMBERED` ids."""

    def __init__(self) -> None:
        self._is_completed: OrderedDict[int, bool] = OrderedDict()

    def add(self, checkpoint_id: int, *, is_completed: bool) -> None:
        self._is_completed[checkpoint_id] = is_completed
        while len(self._is_completed) > REMEMBERED:
            self._is_completed.popitem(last=False)

    def was_aborted(self, checkpoint_id: int) -> bool:
        """Whether it was aborted. False if its outcome is unknown; then a clean-up pass removes its snapshots."""
        return self._is_completed.get(checkpoint_id) is False
