"""Who has come to the end of its data and waits for one more checkpoint. Knows no checkpoint.

Source: Flink StreamTask's finalCheckpointMinId, seen from the coordinator
(docs/spec/checkpoints.md#finished-tasks). Differs: when all wait the checkpoint comes at once.
"""

from __future__ import annotations

from penstock.machines.execution.execution_graph import ExecutionGraph
from penstock.model.ids import AttemptId
from penstock.model.states import ExecutionState


class AwaitedEnds:
    """`waiting`: attempts that have said so, and have not ended."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self.waiting: set[AttemptId] = set()
        self._graph = graph
        self._covered: set[AttemptId] = set()

    def discard(self, attempt_id: AttemptId) -> None:
        """It has ended."""
        self.waiting.discard(attempt_id)
        self._covered.discard(attempt_id)

    def on_completed(self, waited: frozenset[AttemptId]) -> None:
        """Of a checkpoint, which these had waited for when it was triggered: they end by themselves."""
        self._covered |= waited & self.waiting

    @property
    def are_all(self) -> bool:
        """Everybody that still runs waits. Of those that a restart did not touch this is known: they do not say it again."""
        vertices = self._graph.vertices
        running = [v for v in vertices if v.state is not ExecutionState.FINISHED]
        return bool(running) and all(v.execution.attempt_id in self.waiting for v in running)

    @property
    def has_uncovered(self) -> bool:
        """Somebody would wait for ever without one more."""
        return not self.waiting <= self._covered
