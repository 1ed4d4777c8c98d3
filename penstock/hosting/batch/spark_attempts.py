"""Reads the attempts of a job's tasks from Spark and reports them as events. Polled by the threads
that wait.

A vertex has one stage on its first run. When Spark has lost its output, it gets further stages in
the jobs of its readers. All of them are recognised by the RDD that they compute. Source: Spark
AppStatusStore, StageData, TaskData.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
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
_BUS_S: Final = 5

_Subtask: TypeAlias = "tuple[VertexId, int]"


class SparkAttempts:
    """The attempts of all stages of one job. Reports each change of each attempt once. May be
    called from several threads.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._vertices: dict[int, VertexId] = {}
        self._stages: dict[int, VertexId | None] = {}
        self._numbers: dict[_Subtask, dict[int, int]] = defaultdict(dict)
        self._told: dict[int, ExecutionState] = {}

    def expect(self, vertex_id: VertexId, rdd: int) -> None:
        """Stages that compute this RDD belong to the vertex."""
        with self._lock:
            self._vertices[rdd] = vertex_id

    def look(self, group: str, tell: Callable[[AttemptSeen], None]) -> None:
        """Report what has changed in the Spark jobs of a group.

        Never raises. Stages that Spark does not know yet, or has forgotten, are left out.
        """
        seen: list[AttemptSeen] = []
        with self._lock:
            with contextlib.suppress(Exception):  # Py4J: the context was stopped.
                for stage_id, vertex_id in self._stages_of(group):
                    # Spark does not know the stage yet, or has forgotten it.
                    with contextlib.suppress(Exception):
                        seen.extend(self._seen_in(stage_id, vertex_id))
            for one in sorted(seen, key=lambda one: (one.vertex_id, one.subtask, one.attempt)):
                tell(one)

    def look_at_last(self, group: str, tell: Callable[[AttemptSeen], None]) -> None:
        """As `look`, when nothing of the group runs any more.

        Spark learns of its own tasks through a queue; this waits until the queue is empty.
        """
        # Py4J: the queue is still not empty, or the context was stopped.
        with contextlib.suppress(Exception):
            self._context._jsc.sc().listenerBus().waitUntilEmpty(_BUS_S * 1000)
        self.look(group, tell)

    def _stages_of(self, group: str) -> Iterator[tuple[int, VertexId]]:
        """Return the stages of our vertices, in the order in which Spark made them."""
        tracker = self._context.statusTracker()
        found: set[int] = set()
        for job_id in tracker.getJobIdsForGroup(group):
            job = tracker.getJobInfo(job_id)
            found.update(job.stageIds if job is not None else ())
        for stage_id in sorted(found):
            if stage_id not in self._stages:
                with contextlib.suppress(Exception):  # Py4J: Spark does not know the stage yet.
                    self._stages[stage_id] = self._vertex_of(stage_id)
            vertex_id = self._stages.get(stage_id)
            if vertex_id is not None:
                yield stage_id, vertex_id

    def _vertex_of(self, stage_id: int) -> VertexId | None:
        """Return the vertex of a stage; None: the stage runs none of our subtasks."""
        rdds = self._store().lastStageAttempt(stage_id).rddIds()
        ids = [int(rdds.apply(place)) for place in range(rdds.size())]
        return next((self._vertices[rdd] for rdd in ids if rdd in self._vertices), None)

    def _seen_in(self, stage_id: int, vertex_id: VertexId) -> list[AttemptSeen]:
        found: list[AttemptSeen] = []
        told_of: dict[int, ExecutionState] = {}
        store = self._store()
        newest = int(store.lastStageAttempt(stage_id).attemptId())
        for stage_attempt in range(newest + 1):
            tasks = store.taskList(stage_id, stage_attempt, _MOST_TASKS)
            known = [tasks.apply(place) for place in range(tasks.size())]
            for task_id, data in sorted(((int(one.taskId()), one) for one in known), key=_first):
                told = self._told.get(task_id)
                seen = None if told and told.is_terminal else self._seen(vertex_id, task_id, data)
                if seen is not None and seen.state is not told:
                    found.append(seen)
                    told_of[task_id] = seen.state
        self._told |= told_of
        return found

    def _seen(self, vertex_id: VertexId, task_id: int, data: Any) -> AttemptSeen | None:
        """Return the attempt's state. A subtask's attempts are numbered by their start, which is
        the order of Spark's task ids.
        """
        state = _STATES.get(data.status())
        if state is None:
            return None
        subtask = int(data.partitionId())
        numbers = self._numbers[vertex_id, subtask]
        attempt = numbers.setdefault(task_id, len(numbers))
        failure = _failure(data) if state is ExecutionState.FAILED else None
        is_speculative = bool(data.speculative())
        return AttemptSeen(vertex_id, subtask, attempt, state, failure, is_speculative)

    def _store(self) -> Any:
        return self._context._jsc.sc().statusStore()


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]


def _failure(data: Any) -> FailureInfo:
    message = data.errorMessage()
    text = message.get() if message.isDefined() else "Spark does not say why the task failed"
    return failure_in(text) or FailureInfo("SparkTaskFailed", text)
