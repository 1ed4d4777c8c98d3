"""What a job's second attempts of slow subtasks come to: how many are slow, and how often a second attempt finished first.

Source: Flink SpeculativeScheduler, MetricNames (docs/spec/elasticity.md#second-attempts).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.model.ids import AttemptId, ExecutionVertexId
from penstock.model.messages import ExecutionStateChanged, ResetSubtasks, SlowSubtasks
from penstock.model.metrics import Measured, MetricType
from penstock.model.states import ExecutionState


class SecondAttempts:
    """Of one job. It has no metrics before its subtasks are watched, as in Flink where they are not."""

    def __init__(self) -> None:
        self._slow: int | None = None
        self._further: set[AttemptId] = set()
        self._won: set[ExecutionVertexId] = set()

    def take(self, event: Any) -> None:
        """Take what an event says of them. A subtask that begins again was not won."""
        match event:
            case SlowSubtasks(count):
                self._slow = count
            case ExecutionStateChanged(old=ExecutionState.CREATED, is_concurrent=True):
                self._further.add(event.attempt_id)
            case ExecutionStateChanged(new=ExecutionState.FINISHED, is_concurrent=False):
                if event.attempt_id in self._further:
                    self._won.add(event.attempt_id.execution_vertex_id)
            case ResetSubtasks(vertices):
                self._won.difference_update(vertices)

    def measured(self) -> Iterator[Measured]:
        if self._slow is not None:
            yield Measured("numSlowExecutionVertices", MetricType.GAUGE, self._slow)
            won = len(self._won)
            yield Measured("numEffectiveSpeculativeExecutions", MetricType.COUNTER, won)
