"""How many checkpoints may fail in a row before the job does.

Knows no pending checkpoint. Source: Flink CheckpointFailureManager
(docs/spec/checkpoints.md#coordinator). Differs: a synchronous savepoint that has been triggered and
fails ends the attempt for whatever reason it fails, its tasks have stopped for it; another
savepoint that fails never counts, also where a task could not write it: who asked for it is told.
"""

from __future__ import annotations

from typing import Final

from penstock.model.checkpoints import CheckpointType
from penstock.model.messages.checkpoints import CheckpointFailureReason as Reason
from penstock.model.messages.shared import FailureInfo

COUNTED: Final = frozenset({
    Reason.IO_EXCEPTION,
    Reason.ASYNC_EXCEPTION,
    Reason.CHECKPOINT_DECLINED,
    Reason.CHECKPOINT_EXPIRED,
    Reason.FINALIZE_FAILURE,
})
"""Failures of the checkpoint itself; the others are of a job that was starting, ending or restarting."""


class FailureCounter:
    """`continuous`: counted failures since the last success."""

    def __init__(self, tolerable: int = 0) -> None:
        self._tolerable = tolerable
        self._counted_ids: set[int] = set()
        self.continuous = 0

    def on_failure(
        self, checkpoint_id: int, checkpoint_type: CheckpointType, reason: Reason
    ) -> bool:
        """Whether the job must fail for it. An id counts once."""
        if checkpoint_type.is_synchronous:
            return True
        if checkpoint_type.is_savepoint or reason not in COUNTED:
            return False
        if checkpoint_id in self._counted_ids:
            return False
        self._counted_ids.add(checkpoint_id)
        self.continuous += 1
        return self.continuous > self._tolerable

    def failure_of_job(self, checkpoint_id: int, reason: Reason, text: str) -> FailureInfo:
        """What the job fails with when it must."""
        rule = "its tasks have stopped for it"
        if self.continuous > self._tolerable:
            rule = (
                f"{self.continuous} failed in a row, "
                f"'execution.checkpointing.tolerable-failed-checkpoints' is {self._tolerable}"
            )
        message = f"checkpoint {checkpoint_id} failed with {reason}: {text} ({rule})"
        return FailureInfo("CheckpointFailed", message)

    def reset(self) -> None:
        """A checkpoint was completed, or the job starts again."""
        self._counted_ids.clear()
        self.continuous = 0
