"""What a large job keeps for its whole life is left out of Python's collector of cycles.

The graph of ten thousand subtasks has some hundred thousand objects. The collector looks at all of them every few seconds, and no thread runs
for 0.2 s meanwhile: neither the control loop nor a page. When all tasks run, what is there is set aside (`gc.freeze`), until the job
restarts tasks or ends. The collector then sees it again, so that nothing is kept for longer than the job.
"""

from __future__ import annotations

import gc
import threading
from typing import Final

from penstock.hosting.observer import JobObserver, JobView
from penstock.model.graph.job_graph import JobGraph
from penstock.model.graph.rescaling import parallelism_of
from penstock.model.messages import ExecutionStateChanged, GraphReplaced, ResetSubtasks
from penstock.model.states import ExecutionState, JobStatus

LEAST_SUBTASKS: Final = 1000
"""A job with fewer is no burden: 100 subtasks cost the collector 2 ms."""


class _SetAside:
    """Which jobs of this process want it. All threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: set[int] = set()

    def add(self, job: int) -> None:
        """Set aside what is there now, but for garbage."""
        with self._lock:
            self._jobs.add(job)
            gc.collect()
            gc.freeze()

    def remove(self, job: int) -> None:
        """The job has ended, or goes on with other objects. The last one gives everything back."""
        with self._lock:
            if job in self._jobs:
                self._jobs.remove(job)
                if not self._jobs:
                    gc.unfreeze()


_SET_ASIDE: Final = _SetAside()


class LongLived(JobObserver):
    """Counts the tasks that run."""

    def __init__(self, job_graph: JobGraph) -> None:
        self._subtasks = sum(one.parallelism for one in job_graph.vertices.values())
        self._running = 0
        self._is_aside = False

    @property
    def is_large(self) -> bool:
        return self._subtasks >= LEAST_SUBTASKS

    def execution_changed(self, change: ExecutionStateChanged, _job_graph: JobGraph) -> None:
        self._running += (change.new is ExecutionState.RUNNING) - (
            change.old is ExecutionState.RUNNING
        )

    def restarting(self, _reset: ResetSubtasks) -> None:
        self._give_back()

    def graph_replaced(self, replaced: GraphReplaced) -> None:
        self._give_back()
        self._subtasks = sum(parallelism_of(replaced.job_graph).values())

    def tick(self, _job: JobView) -> None:
        if not self._is_aside and self._running >= self._subtasks:
            self._is_aside = True
            _SET_ASIDE.add(id(self))

    def job_ended(self, _status: JobStatus, _job: JobView) -> None:
        self._give_back()

    def _give_back(self) -> None:
        if self._is_aside:
            self._is_aside = False
            _SET_ASIDE.remove(id(self))
