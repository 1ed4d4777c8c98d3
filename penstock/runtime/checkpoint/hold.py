"""A task that stops behind its snapshot until it hears what became of the checkpoint.

So a generation of a job hands over to the next one: nobody processes a record that the checkpoint does not contain. If
it is complete, another generation goes on from it and this task ends; if it is aborted, the task goes on as if nothing
had happened. Knows no operator. Source: none; Flink restarts the job from its last checkpoint and processes again what
came after that.
"""

from __future__ import annotations

from penstock.runtime.checkpoint.notifications import NO_CHECKPOINT
from penstock.runtime.elements import CheckpointBarrier


class Hold:
    """`is_held`: the task processes nothing, and fires no timer. `is_replaced`: the task ends without finishing its operators."""

    def __init__(self) -> None:
        self.is_held = False
        self.is_replaced = False
        self._checkpoint_id = NO_CHECKPOINT
        self._aborted_id = NO_CHECKPOINT

    def on_taken(self, barrier: CheckpointBarrier) -> None:
        """The snapshot is taken. The abort may have been told before: the task waited for room in front of the barrier."""
        if barrier.options.is_held and barrier.checkpoint_id > self._aborted_id:
            self._checkpoint_id = barrier.checkpoint_id
            self.is_held = True

    def on_complete(self, checkpoint_id: int) -> None:
        if self.is_held and checkpoint_id == self._checkpoint_id:
            self.is_held = False
            self.is_replaced = True

    def on_abort(self, checkpoint_id: int) -> None:
        self._aborted_id = max(self._aborted_id, checkpoint_id)
        if self.is_held and checkpoint_id >= self._checkpoint_id:
            self.is_held = False
