"""Counts how many checkpoints may fail in a row before the job fails.

Knows no pending checkpoint. Source: Flink CheckpointFailureManager
(docs/spec/checkpoints.md#coordinator). Differs: a synchronous savepoint that has been triggered and
fails ends the attempt, whatever the reason, because its tasks have stopped for it. Any other
savepoint that fails never counts, not even if a task could not write it: the user who asked for it
is told.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.messages.checkpoints import CheckpointFailureReason as Reason
from penstock.engine.model.messages.shared import FailureInfo

COUNTED: Final = frozenset({
    Reason.IO_EXCEPTION,
    Reason.ASYNC_EXCEPTION,
    Reason.CHECKPOINT_DECLINED,
    Reason.CHECKPOINT_EXPIRED,
    Reason.FINALIZE_FAILURE,
})
"""Failures of the checkpoint itself. The others come from a job that was starting, ending or restarting."""


class FailureCounter:
    """`continuous`: counted failures since the last success."""

    def __init__(self, tolerable: int = 0) -> None:
        self._tolerable = tolerable
        self._counted_ids: set[int] = set()
        self.continuous = 0

    def on_failure(
        self, checkpoint_id: int, checkpoint_type: CheckpointType, reason: Reason
    ) -> bool:
        """Count a failure, each id once. Returns: whether the job must fail because of it."""
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
        """Return the failure of the job."""
        rule = "the tasks have stopped for it"
        if self.continuous > self._tolerable:
            rule = (
                f"{self.continuous} checkpoints failed in a row, but "
                f"'execution.checkpointing.tolerable-failed-checkpoints' is {self._tolerable}"
            )
        cause = f"{reason}: {text}" if text else f"{reason}"
        message = f"checkpoint {checkpoint_id} failed with {cause} ({rule})"
        return FailureInfo("CheckpointFailed", message)

    def reset(self) -> None:
        """A checkpoint was completed, or the job starts again."""
        self._counted_ids.clear()
        self.continuous = 0
