"""What Spark knows of the attempts of a stage's tasks, as events of ours. Asked now and then, by the thread that waits.

Source: Spark AppStatusStore, TaskData.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

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

    def _tasks(self) -> list[tuple[int, int, ExecutionState, FailureInfo | None]]:
        store = self._context._jsc.sc().statusStore()
        tracker = self._context.statusTracker()
        found = []
        for job_id in tracker.getJobIdsForGroup(self._group):
            job = tracker.getJobInfo(job_id)
            if job is None or not job.stageIds:
                continue
            stage = max(job.stageIds)  # the one that the job is for comes last
            tasks = store.taskList(stage, 0, _MOST_TASKS)
            found += [_task(tasks.apply(place)) for place in range(tasks.size())]
        return [one for one in found if one is not None]


def _task(data: Any) -> tuple[int, int, ExecutionState, FailureInfo | None] | None:
    state = _STATES.get(data.status())
    if state is None:
        return None
    failure = None
    if state is ExecutionState.FAILED:
        message = data.errorMessage()
        text = message.get() if message.isDefined() else "Spark does not say why"
        failure = failure_in(text) or FailureInfo("SparkTaskFailed", text)
    return data.partitionId(), data.attempt(), state, failure
