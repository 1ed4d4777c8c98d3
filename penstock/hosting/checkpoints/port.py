"""What the driver's shell asks of those that keep checkpoints, and what it has when nobody does.

Knows no storage. Source: Flink CheckpointStorageCoordinatorView, OperatorCoordinatorCheckpointContext, as far as the
checkpoint coordinator uses them.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from penstock.model.messages import (
    CoordinatorsCheckpointEnded,
    DiscardCheckpoint,
    DiscardStates,
    RestoreCoordinators,
    SavepointAnswered,
    SnapshotCoordinators,
    StoreCheckpoint,
)

Keeping: TypeAlias = StoreCheckpoint | DiscardCheckpoint | DiscardStates
Coordination: TypeAlias = SnapshotCoordinators | CoordinatorsCheckpointEnded | RestoreCoordinators


class CheckpointPort(Protocol):
    """All of it returns at once; answers are fed to the JobMaster as events, each exactly once."""

    def keep(self, effect: Keeping) -> None:
        """Write a checkpoint, or discard what nobody needs. A StoreCheckpoint is always answered."""

    def coordinate(self, effect: Coordination) -> None:
        """For the coordinators of operators. A SnapshotCoordinators is always answered."""

    def answer(self, answered: SavepointAnswered) -> None:
        """To whoever asked for a savepoint."""


class NoCheckpoints:
    """Of a driver that keeps none: its JobMaster triggers none, so that there is only a question to answer."""

    def keep(self, effect: Keeping) -> None:
        """Nothing was ever written."""

    def coordinate(self, effect: Coordination) -> None:
        """No coordinator has state from a checkpoint."""

    def answer(self, answered: SavepointAnswered) -> None:
        """Nobody waits."""
