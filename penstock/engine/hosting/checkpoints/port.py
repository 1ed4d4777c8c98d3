"""The port through which the driver's shell stores checkpoints, and its implementation for jobs
without checkpoints.

Knows no storage. Source: Flink CheckpointStorageCoordinatorView,
OperatorCoordinatorCheckpointContext, as far as the checkpoint coordinator uses them.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from penstock.engine.model.messages import (
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
    """All methods return at once. Answers go to the JobMaster as events, each exactly once."""

    def keep(self, effect: Keeping) -> None:
        """Write a checkpoint, or discard files. A StoreCheckpoint is always answered."""

    def coordinate(self, effect: Coordination) -> None:
        """Pass an effect to the operators' coordinators. A SnapshotCoordinators is always answered."""

    def answer(self, answered: SavepointAnswered) -> None:
        """Answer the user who asked for a savepoint."""


class NoCheckpoints:
    """For a driver without checkpoint storage. Its JobMaster triggers no checkpoints, so most calls
    have nothing to do.
    """

    def keep(self, effect: Keeping) -> None:
        """Does nothing: nothing was ever written."""

    def coordinate(self, effect: Coordination) -> None:
        """Does nothing: no coordinator has state from a checkpoint."""

    def answer(self, answered: SavepointAnswered) -> None:
        """Does nothing: no user waits for a savepoint."""
