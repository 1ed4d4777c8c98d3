"""How long the tasks of a job are being deployed, and since when all of them run. Times come with each call.

Source: Flink DeploymentStateTimeMetrics, AllSubTasksRunningOrFinishedStateTimeMetrics. Differs: TimeTotal of the second is a sum,
where Flink keeps the last period; a subtask that has failed does not run until its next attempt does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import AttemptId, ExecutionVertexId
from penstock.engine.model.metrics import Measured
from penstock.engine.model.states import ExecutionState
from penstock.ops.metrics.job_metrics import StateKind, of_state

_READY: Final = (ExecutionState.INITIALIZING, ExecutionState.RUNNING)
_WAITING: Final = (ExecutionState.CREATED, ExecutionState.SCHEDULED, ExecutionState.DEPLOYING)
_SETTLED: Final = (ExecutionState.RUNNING, ExecutionState.FINISHED)


@dataclass(slots=True)
class _Periods:
    """Periods of one kind. `since_ms` None: none lasts."""

    since_ms: int | None = None
    total_ms: int = 0

    def put(self, at_ms: int, *, lasts: bool) -> None:
        if lasts and self.since_ms is None:
            self.since_ms = at_ms
        elif not lasts and self.since_ms is not None:
            self.total_ms += at_ms - self.since_ms
            self.since_ms = None

    def measured(self, name: str, now_ms: int, kinds: Collection[StateKind]) -> Iterator[Measured]:
        lasts = self.since_ms is not None
        current = 0 if self.since_ms is None else now_ms - self.since_ms
        return of_state(name, (lasts, current, self.total_ms + current), kinds)


class DeploymentTimes:
    """Of one job. `moved` at each change of an attempt, in order."""

    def __init__(self, job_type: JobType) -> None:
        self._is_batch = job_type is JobType.BATCH
        self._states: dict[ExecutionVertexId, ExecutionState] = {}
        self._counts: Counter[ExecutionState] = Counter()
        self._deploying = _Periods()
        self._all_running = _Periods()

    def moved(self, attempt_id: AttemptId, new: ExecutionState, at_ms: int) -> None:
        """An attempt is in another state from now on."""
        subtask = attempt_id.execution_vertex_id
        former = self._states.get(subtask)
        if former is not None:
            self._counts[former] -= 1
        self._states[subtask] = new
        self._counts[new] += 1
        self._deploying.put(at_ms, lasts=self._is_deploying)
        settled = sum(self._counts[state] for state in _SETTLED)
        self._all_running.put(at_ms, lasts=settled == len(self._states))

    @property
    def _is_deploying(self) -> bool:
        deployed = self._counts[ExecutionState.DEPLOYING]
        if self._is_batch:
            return deployed > 0 and not any(self._counts[state] for state in _READY)
        lasts = self._deploying.since_ms is not None
        return deployed > 0 or (lasts and any(self._counts[state] for state in _WAITING))

    def ended(self, at_ms: int) -> None:
        """The job has ended."""
        self._deploying.put(at_ms, lasts=False)
        self._all_running.put(at_ms, lasts=False)

    def measured(self, now_ms: int, kinds: Collection[StateKind]) -> Iterator[Measured]:
        """The metrics at this time. `kinds`: what is told of each."""
        yield from self._deploying.measured("deploying", now_ms, kinds)
        if not self._is_batch:
            name = "allSubTasksRunningOrFinished"
            yield from self._all_running.measured(name, now_ms, kinds)
