"""Checkpoint barriers between simulated tasks: aligned over the inputs that have not ended,
followed by a snapshot.

Stands for the barrier handlers and the state of tasks. A snapshot contains only its task and its
checkpoint. Knows no machine.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.engine.model.checkpoints import (
    CheckpointMetrics,
    InlineHandle,
    ListStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskState,
)
from penstock.engine.model.ids import AttemptId, ResultPartitionId
from penstock.engine.model.messages import AcknowledgeCheckpoint
from simulation.clock import SimClock
from simulation.task import SimResult, SimTask

_TRAVELS_MS: Final = (0, 0, 1, 10, 200)
_WRITES_MS: Final = (1, 5, 50, 800)
_EMPTY_AT_END: Final = 0.6
"""Share of the tasks at their end that have no state left; the others have output to commit."""


def snapshot_of(
    attempt_id: AttemptId, checkpoint_id: int, *, is_at_end: bool = False
) -> SubtaskState:
    data = f"{attempt_id}@{checkpoint_id}".encode()
    handle = ListStateHandle("made", RedistributionMode.SPLIT, (0,), InlineHandle(data, 0))
    operator = OperatorSubtaskState(lists=(handle,))
    return SubtaskState(((attempt_id.vertex_id, operator),), is_at_end)


class Barriers:
    """Barriers of all tasks. A task ignores barriers that are older than its last checkpoint."""

    def __init__(self, clock: SimClock, results: dict[ResultPartitionId, SimResult]) -> None:
        self._clock = clock
        self._results = results

    def snapshot(self, task: SimTask, checkpoint_id: int) -> None:
        """Send barriers at once; the snapshot is written while the task continues."""
        if checkpoint_id <= task.last_checkpoint or task.held_at is not None:
            return
        task.last_checkpoint = checkpoint_id
        task.barriers = {i: b for i, b in task.barriers.items() if i > checkpoint_id}
        is_held = checkpoint_id in task.holds
        for result_id, _, _ in task.outputs():
            result = self._results.get(result_id)
            for reader in result.readers.values() if result is not None else ():
                self._send(reader, result_id, checkpoint_id, is_held=is_held)
        if is_held and checkpoint_id > task.aborted:
            task.held_at = checkpoint_id
        if task.is_at_end and task.final_checkpoint is None:
            task.final_checkpoint = checkpoint_id
        state = snapshot_of(task.attempt_id, checkpoint_id, is_at_end=task.is_at_end)
        if task.is_at_end and self._clock.chance(_EMPTY_AT_END):
            state = SubtaskState((), is_finished=True)
        message = AcknowledgeCheckpoint(task.attempt_id, checkpoint_id, state, CheckpointMetrics())
        written = partial(task.host.snapshot_taken, task, message)
        task.host.after(self._clock.random.choice(_WRITES_MS), "Written", written)

    def input_ended(self, task: SimTask) -> None:
        """An input has ended, so its barriers are no longer waited for."""
        for checkpoint_id in sorted(task.barriers):
            self._look(task, checkpoint_id)

    def _send(
        self, reader: SimTask, result_id: ResultPartitionId, checkpoint_id: int, *, is_held: bool
    ) -> None:
        arrived = partial(self._arrived, reader, result_id, checkpoint_id, is_held=is_held)
        reader.host.after(self._clock.random.choice(_TRAVELS_MS), "Barrier", arrived)

    def _arrived(
        self, task: SimTask, result_id: ResultPartitionId, checkpoint_id: int, *, is_held: bool
    ) -> None:
        if checkpoint_id > task.last_checkpoint:
            if is_held:
                task.holds.add(checkpoint_id)
            task.barriers.setdefault(checkpoint_id, set()).add(result_id)
            self._look(task, checkpoint_id)

    def _look(self, task: SimTask, checkpoint_id: int) -> None:
        barriers = task.barriers.get(checkpoint_id)
        if barriers is not None and barriers.issuperset(task.unread):
            self.snapshot(task, checkpoint_id)
