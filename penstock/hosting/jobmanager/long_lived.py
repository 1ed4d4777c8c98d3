"""What a large job keeps for its whole life is left out of Python's collector of cycles.

The graph of ten thousand subtasks has some hundred thousand objects. The collector looks at all of them every few seconds, and no thread runs
for 0.2 s meanwhile: neither the control loop nor a page. When all tasks run, what is there is set aside (`gc.freeze`), until the job
restarts tasks or ends. The collector then sees it again, so that nothing is kept for longer than the job.

What tasks report takes the place of what they reported before, without cycles. It is as much again, and the collector would look at all of it
every few seconds, for 30 ms (`python -m benchmarks observation`). Meanwhile it therefore looks at all of it seldom, and at new objects in
smaller parts.
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
THRESHOLDS: Final = (200, 5, 2000)
"""New objects before the collector looks at them; such looks before it looks at their survivors, too; and such before it looks at all. Python's
own are 700, 10 and 10. Two million objects, some 200 MB, can wait for a look at all, if a program makes so many that lie in cycles.
"""


class _SetAside:
    """Which jobs of this process want it. All threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: set[int] = set()
        self._thresholds = gc.get_threshold()

    def add(self, job: int) -> None:
        """Set aside what is there now, but for garbage."""
        with self._lock:
            if not self._jobs:
                self._thresholds = gc.get_threshold()
                if self._thresholds[0]:  # Otherwise the program has switched the collector off.
                    gc.set_threshold(*THRESHOLDS)
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
                    if gc.get_threshold() == THRESHOLDS:  # The program has not set its own.
                        gc.set_threshold(*self._thresholds)


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
