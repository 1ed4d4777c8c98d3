"""What a coordinator of checkpoints leaves to the coordinator of the job's next generation.

Knows no task. Source: Flink CheckpointIDCounter, CompletedCheckpointStore and CheckpointsCleaner, which outlive an
ExecutionGraph.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.machines.checkpoints.awaited_ends import AwaitedEnds
from penstock.machines.checkpoints.completed_store import CompletedCheckpointStore
from penstock.machines.checkpoints.ended import EndedCheckpoints
from penstock.machines.checkpoints.requests import CheckpointRequest


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
