"""How the last checkpoints ended, for what tasks still say of them.

Knows no state. Source: Flink CheckpointCoordinator.recentPendingCheckpoints; differs: how they ended is remembered, so that
the snapshot in a message that comes twice is never discarded as that of an aborted checkpoint.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

REMEMBERED: Final = 128


class EndedCheckpoints:
    """The newest `REMEMBERED` ids."""

    def __init__(self) -> None:
        self._is_completed: OrderedDict[int, bool] = OrderedDict()

    def add(self, checkpoint_id: int, *, is_completed: bool) -> None:
        self._is_completed[checkpoint_id] = is_completed
        while len(self._is_completed) > REMEMBERED:
            self._is_completed.popitem(last=False)

    def was_aborted(self, checkpoint_id: int) -> bool:
        """False also where nothing is known of it: its snapshots are left to a clean-up pass."""
        return self._is_completed.get(checkpoint_id) is False
