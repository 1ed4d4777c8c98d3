"""Attempts at the end of their data that wait for one more checkpoint. Knows no checkpoint.

Source: Flink StreamTask's finalCheckpointMinId, seen from the coordinator
(docs/spec/checkpoints.md#finished-tasks). Differs: when all wait, the checkpoint is taken at once.
"""

from __future__ import annotations

from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.model.ids import AttemptId
from penstock.engine.model.states import ExecutionState


class AwaitedEnds:
    """`waiting`: attempts that have reported the end of their data and have not ended. `covered`: those of them that a checkpoint lets end."""

    def __init__(self, graph: ExecutionGraph, former: AwaitedEnds | None = None) -> None:
        """`former`: of the generation before. Attempts that it has left have not ended: they run on, and do not report again."""
        self.waiting: set[AttemptId] = set() if former is None else set(former.waiting)
        self._graph = graph
        self.covered: set[AttemptId] = set() if former is None else set(former.covered)

    def discard(self, attempt_id: AttemptId) -> None:
        """The attempt has ended."""
        self.waiting.discard(attempt_id)
        self.covered.discard(attempt_id)

    def on_completed(self, waited: frozenset[AttemptId]) -> None:
        """A checkpoint is complete. The attempts that waited when it was triggered will end by themselves."""
        self.covered |= waited & self.waiting

    @property
    def are_all(self) -> bool:
        """Whether every running attempt waits. Attempts that a restart did not touch still count;
        they do not report again.
        """
        vertices = self._graph.vertices
        running = [v for v in vertices if v.state is not ExecutionState.FINISHED]
        return bool(running) and all(v.execution.attempt_id in self.waiting for v in running)

    @property
    def has_uncovered(self) -> bool:
        """Whether an attempt would wait for ever without one more checkpoint."""
        return not self.waiting <= self.covered
