"""What a coordinator of checkpoints leaves to the coordinator of the job's next generation.

Knows no task. Source: Flink CheckpointIDCounter, CompletedCheckpointStore and CheckpointsCleaner, which outlive an
ExecutionGraph.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.machines.checkpoints.awaited_ends import AwaitedEnds
from penstock.engine.machines.checkpoints.completed_store import CompletedCheckpointStore
from penstock.engine.machines.checkpoints.requests import CheckpointRequest

REMEMBERED: Final = 128


class EndedCheckpoints:
    """How the newest `REMEMBERED` checkpoints ended, for messages of tasks that come later.

    Source: Flink CheckpointCoordinator.recentPendingCheckpoints; differs: the outcome is remembered too, so that a
    repeated message of a completed checkpoint never discards its snapshot.
    """

    def __init__(self) -> None:
        self._is_completed: OrderedDict[int, bool] = OrderedDict()

    def add(self, checkpoint_id: int, *, is_completed: bool) -> None:
        self._is_completed[checkpoint_id] = is_completed
        while len(self._is_completed) > REMEMBERED:
            self._is_completed.popitem(last=False)

    def was_aborted(self, checkpoint_id: int) -> bool:
        """Whether it was aborted. False if its outcome is unknown; then a clean-up pass removes its snapshots."""
        return self._is_completed.get(checkpoint_id) is False


@dataclass(slots=True)
class CheckpointCourse:
    """`store`: the completed checkpoints. `ended`: how the recent ones ended. `next_id`: of the next checkpoint.

    `last_completion_ms` None: none was completed yet. `waiting`: what users asked for while a generation handed over; the
    next one takes it as soon as its tasks run. `ends`: of tasks that run on.
    """

    store: CompletedCheckpointStore
    next_id: int
    ended: EndedCheckpoints = field(default_factory=EndedCheckpoints)
    last_completion_ms: int | None = None
    waiting: list[CheckpointRequest] = field(default_factory=list)
    ends: AwaitedEnds | None = None

    def take_id(self) -> int:
        """Return the id of a new checkpoint. Ids only grow, over all generations."""
        checkpoint_id, self.next_id = self.next_id, self.next_id + 1
        return checkpoint_id
