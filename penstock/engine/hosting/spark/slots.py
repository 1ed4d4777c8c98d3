"""Spark's task slots: how many exist and are free, and which sizes of tasks Spark can run.

Executors register one by one, and a cluster may have to start machines for them. So missing
executors are waited for, up to a time limit.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Final

from pyspark import SparkContext

from penstock.engine.hosting.spark.checks import LOCAL, LOCAL_CLUSTER, is_true
from penstock.engine.hosting.spark.configuration import configuration_of
from penstock.engine.hosting.spark.sizes import SparkSize
from penstock.engine.model.texts.amounts import counted

STOPPED: Final = "the SparkSession was stopped"
_EXECUTORS_WAIT_S: Final = 5.0
_SAY_AFTER_S: Final = 3.0
_FIRST_EXECUTOR_WAIT_S: Final = 30.0  # As long as Spark itself lets a job wait for executors.
_POLL_S: Final = 0.05


class SparkSlots:
    """The task slots of one Spark application."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._has_said = False

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are on one machine."""
        return str(self._context.master).startswith("local")

    def free(self, wanted: int) -> int | None:
        """Return the slots that no Spark task holds; None under dynamic allocation.

        Waits some seconds for `wanted` slots: executors register one by one, and tasks that have
        just ended still count for a moment.
        """
        if self.is_stopped():
            return 0
        if is_true(configuration_of(self._context).get("spark.dynamicAllocation.enabled")):
            return None
        began = time.monotonic()
        while True:
            total, active = self._task_slots()
            free = max(0, total - active)
            is_hopeless = self.is_stopped() or (self.is_local and total < wanted)
            if free >= wanted or is_hopeless or self._is_late(began, total):
                return free
            time.sleep(_POLL_S)  # Spark has no notification of a free slot.

    def has_room(self, tasks: int) -> bool:
        """Whether so many more tasks of the usual size can run now. Never waits and never raises."""
        total, active = self._task_slots()
        return total - active >= tasks

    def waiting(self) -> int:
        """Return how many Spark tasks wait for a slot now. Never raises.

        0 where Spark's scheduler is another class than expected.
        """
        try:
            queue = self._pool().getSortedTaskSetQueue()
            waiting = [queue.apply(index) for index in range(queue.size())]
            return sum(
                max(0, one.numTasks() - one.runningTasks() - one.tasksSuccessful())
                for one in waiting
                if not one.isZombie()
            )
        except Exception:  # Py4J: the session was stopped meanwhile, or this Spark is another one.
            return 0

    def _running(self) -> int | None:
        """Return how many tasks run. None: Spark cannot be asked."""
        try:
            return int(self._pool().runningTasks())
        except Exception:  # As above.
            return None

    def _pool(self) -> Any:
        """What Spark's scheduler has to do. It is an internal class, but what Spark publishes of running tasks may be seconds old.
        Its queue has only the sets of tasks of which some wait; its count has all that run.
        """
        return self._context._jsc.sc().taskScheduler().rootPool()

    def total(self) -> int:
        """Return all slots of the master; waits some seconds for a cluster's first executors."""
        began = time.monotonic()
        while True:
            total, _ = self._task_slots()
            if total or self.is_stopped() or self._is_late(began, total):
                return total
            time.sleep(_POLL_S)  # Spark has no notification of a free slot.

    def describe(self) -> str:
        """Describe the slots. Never waits and never raises: the JobManager's loop calls it, even
        after the session's end.
        """
        if self.is_stopped():
            return STOPPED
        total, active = self._task_slots()
        return (
            f"Spark master {self._context.master} gives {counted(total, 'task slot')}, "
            f"{active} of them in use"
        )

    def where(self) -> str:
        """Return where tasks run now: the master, and how many executors it has."""
        master = self._context.master
        if LOCAL.match(master) is not None:
            return f"jobs run on Spark master {master}, in this process"
        application = self._context.applicationId
        executors = counted(len(self.executors()), "executor")
        return f"jobs run on Spark master {master}: {executors} (application {application})"

    def executors(self) -> list[int]:
        """Return the cores of each executor that is known."""
        cluster = LOCAL_CLUSTER.match(self._context.master)
        if cluster is not None:
            return [int(cluster[2])] * int(cluster[1])
        return [cores for cores, _ in self._executor_summaries()]

    def size(self) -> SparkSize:
        """Return the part of the configuration that decides which tasks can run."""
        conf = configuration_of(self._context)
        cluster = LOCAL_CLUSTER.match(self._context.master)
        cores = cluster[2] if cluster else conf.get("spark.executor.cores")
        prefix, suffix = "spark.executor.resource.", ".amount"
        names = [key for key in conf if key.startswith(prefix) and key.endswith(suffix)]
        return SparkSize(
            master=self._context.master,
            task_cpus=int(conf.get("spark.task.cpus") or 1),
            executor_cores=int(cores) if cores else None,
            executor_memory=conf.get("spark.executor.memory") or "1g",
            is_dynamic=is_true(conf.get("spark.dynamicAllocation.enabled")),
            resources=frozenset(key.removeprefix(prefix).removesuffix(suffix) for key in names),
        )

    def _is_late(self, began_s: float, total: int) -> bool:
        """Whether waiting is over. A cluster may have to start a machine for its first executor;
        the others follow soon.
        """
        waited_s = time.monotonic() - began_s
        if not total and waited_s >= _SAY_AFTER_S and not self._has_said:
            self._has_said = True
            print(f"penstock: waiting for the first executor: {self.describe()}", file=sys.stderr)
        return waited_s >= (_EXECUTORS_WAIT_S if total else _FIRST_EXECUTOR_WAIT_S)

    def is_stopped(self) -> bool:
        """Whether the SparkSession was stopped, or its JVM has ended."""
        try:
            java_context = self._context._jsc
            return java_context is None or bool(java_context.sc().isStopped())
        except Exception:  # Py4J: the JVM is gone, or about to end.
            return True

    def _task_slots(self) -> tuple[int, int]:
        """Return (all slots, slots used by Spark tasks) now; none if the session was stopped."""
        try:
            cores, active = self._executor_cores()
            per_task = int(configuration_of(self._context).get("spark.task.cpus") or 1)
        except Exception:  # Py4J errors or missing attributes: the session was stopped meanwhile.
            return 0, 0
        return max(cores, self._expected_cores()) // per_task, active

    def _expected_cores(self) -> int:
        """Return the cores that will exist soon, even if not every executor has registered."""
        cluster = LOCAL_CLUSTER.match(self._context.master)
        return int(cluster[1]) * int(cluster[2]) if cluster else 0

    def _executor_cores(self) -> tuple[int, int]:
        """Return cores, from Spark's own status store, and running tasks."""
        executors = self._executor_summaries()
        running = self._running()
        active = sum(active for _, active in executors) if running is None else running
        return sum(cores for cores, _ in executors), active

    def _executor_summaries(self) -> list[tuple[int, int]]:
        """(cores, running tasks) of each executor."""
        executors = self._context._jsc.sc().statusStore().executorList(True)
        is_local_mode = LOCAL.match(self._context.master) is not None
        summaries = [executors.apply(index) for index in range(executors.size())]
        return [
            (summary.totalCores(), summary.activeTasks())
            for summary in summaries
            if summary.id() != "driver" or is_local_mode
        ]
