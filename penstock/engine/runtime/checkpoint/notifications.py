"""What a task is told about the end of its checkpoints, and when it may finish. Each completion is told once, and in order.

Does not know operators or the network: it returns what the caller has to deliver. Source: Flink StreamTask
(latestReportCheckpointId, finalCheckpointMinId) and SubtaskCheckpointCoordinatorImpl
(docs/spec/checkpoints.md#in-a-task, #finished-tasks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

MAX_REMEMBERED: Final = 128
NO_CHECKPOINT: Final = -1


@dataclass(frozen=True, slots=True)
class Completed:
    """Tell the operators that this checkpoint is complete."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """Tell the operators that this checkpoint was aborted."""

    checkpoint_id: int


Notification: TypeAlias = Completed | Aborted


class CheckpointNotifications:
    """Decides which notifications reach the operators. `last_completed`: id of the newest completion delivered; -1: none."""

    def __init__(self, last_completed: int = NO_CHECKPOINT) -> None:
        self.last_completed = last_completed
        self._last_triggered = NO_CHECKPOINT
        self._aborted_ahead: set[int] = set()
        self._aborted_newest = NO_CHECKPOINT

    def on_complete(self, checkpoint_id: int) -> list[Notification]:
        """Nothing to tell if the checkpoint is not newer than the last one, which covers it."""
        if checkpoint_id <= self.last_completed:
            return []
        self.last_completed = checkpoint_id
        return [Completed(checkpoint_id)]

    def on_abort(
        self, checkpoint_id: int, latest_completed: int = NO_CHECKPOINT
    ) -> list[Notification]:
        """First tells the completion of `latest_completed`, because its own message may be lost or late."""
        found = self.on_complete(latest_completed)
        if checkpoint_id > self._last_triggered:
            self._remember(checkpoint_id)
        return [*found, Aborted(checkpoint_id)]

    def on_trigger(self, checkpoint_id: int) -> bool:
        """Whether to take a snapshot. False: the checkpoint was aborted before it came here, so only tell the tasks downstream.

        A checkpoint older than the aborts that are remembered counts as aborted.
        """
        self._last_triggered = max(self._last_triggered, checkpoint_id)
        is_aborted = checkpoint_id in self._aborted_ahead
        self._aborted_ahead = {i for i in self._aborted_ahead if i > checkpoint_id}
        return not is_aborted and checkpoint_id + MAX_REMEMBERED >= self._aborted_newest

    def _remember(self, checkpoint_id: int) -> None:
        self._aborted_ahead.add(checkpoint_id)
        self._aborted_newest = max(self._aborted_newest, checkpoint_id)
        if len(self._aborted_ahead) > MAX_REMEMBERED:
            self._aborted_ahead.discard(min(self._aborted_ahead))


class FinalCheckpoint:
    """A task at the end of its data waits for a checkpoint that began after that end, so that everything is committed.

    `is_needed` False: no checkpoints are taken, or none after tasks have finished. The task still waits for a savepoint
    with which the job stops.
    """

    def __init__(self, *, is_needed: bool) -> None:
        self._is_needed = is_needed
        self._is_at_end = False
        self._least_id: int | None = None
        self._is_completed = False

    @property
    def may_finish(self) -> bool:
        return self._is_at_end and (self._is_completed or not self._is_needed)

    def on_end_of_data(self) -> None:
        self._is_at_end = True

    def on_trigger(self, checkpoint_id: int, *, is_last: bool = False) -> None:
        """A snapshot of this checkpoint is taken. The task waits for the first one after the end of its data.

        `is_last`: the job stops with this checkpoint.
        """
        self._is_needed = self._is_needed or is_last
        if self._is_at_end and self._least_id is None:
            self._least_id = checkpoint_id

    def on_complete(self, checkpoint_id: int) -> None:
        if self._least_id is not None and checkpoint_id >= self._least_id:
            self._is_completed = True
