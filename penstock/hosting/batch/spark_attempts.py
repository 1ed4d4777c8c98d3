"""What Spark knows of the attempts of a stage's tasks, as events of ours. Asked now and then, by the thread that waits.

Source: Spark AppStatusStore, TaskData.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pyspark import SparkContext

from penstock.hosting.batch.spark_body import failure_in
from penstock.model.ids import VertexId
from penstock.model.messages import FailureInfo
from penstock.model.messages.batch import AttemptSeen
from penstock.model.states import ExecutionState

_STATES: Final = {
    "RUNNING": ExecutionState.RUNNING,
    "SUCCESS": ExecutionState.FINISHED,
    "FAILED": ExecutionState.FAILED,
    "KILLED": ExecutionState.CANCELED,
}
_MOST_TASKS: Final = 1 << 20
_MOST_STAGE_ATTEMPTS: Final = 64

_Task: TypeAlias = "tuple[int, int, ExecutionState, FailureInfo | None]"
"""Subtask, attempt, state, failure."""


class StageAttempts:
    """Of the Spark jobs of one job group. Tells each change of each attempt once."""

    def __init__(
        self,
        context: SparkContext,
        group: str,
        vertex_id: VertexId,
        tell: Callable[[AttemptSeen], None],
    ) -> None:
        self._context = context
        self._group = group
        self._vertex_id = vertex_id
        self._tell = tell
        self._told: dict[tuple[int, int], ExecutionState] = {}

    def look(self) -> None:
        """Never raises: what Spark does not know yet, or any more, is not told."""
        try:
            tasks = list(self._tasks())
        except Exception:  # Py4J: the stage is not there yet, or the context was stopped
            return
        for task in sorted(tasks, key=lambda one: (one[0], one[1])):
            subtask, attempt, state, failure = task
            if self._told.get((subtask, attempt)) is not state:
                self._told[subtask, attempt] = state
                self._tell(AttemptSeen(self._vertex_id, subtask, attempt, state, failure))

    def _tasks(self) -> list[_Task]:
        tracker = self._context.statusTracker()
        found: list[_Task] = []
        for job_id in tracker.getJobIdsForGroup(self._group):
            job = tracker.getJobInfo(job_id)
            if job is not None and job.stageIds:
                found += self._tasks_of(max(job.stageIds))  # the one that the job is for comes last
        return found

    def _tasks_of(self, stage_id: int) -> list[_Task]:
        """Of all attempts of a stage; a subtask's are numbered in the order in which they began."""
        store = self._context._jsc.sc().statusStore()
        found: list[Any] = []
        for stage_attempt in range(_MOST_STAGE_ATTEMPTS):
            tasks = store.taskList(stage_id, stage_attempt, _MOST_TASKS)
            if not tasks.size():
                break
            found += [tasks.apply(place) for place in range(tasks.size())]
        begun: Counter[int] = Counter()
        known: list[_Task] = []
        for data in sorted(found, key=lambda one: one.taskId()):
            subtask = data.partitionId()
            task = _task(data, begun[subtask])
            begun[subtask] += 1
            if task is not None:
                known.append(task)
        return known


def _task(data: Any, attempt: int) -> _Task | None:
    state = _STATES.get(data.status())
    if state is None:
        return None
    failure = None
    if state is ExecutionState.FAILED:
        message = data.errorMessage()
        text = message.get() if message.isDefined() else "Spark does not say why"
        failure = failure_in(text) or FailureInfo("SparkTaskFailed", text)
    return data.partitionId(), attempt, state, failure
