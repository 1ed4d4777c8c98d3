"""Spark's task slots: how many there are, how many are free, and what of a task's size Spark can give.

Executors come one by one, and a cluster may have to start machines for them: what is not there yet is waited for, for some time.
"""

from __future__ import annotations

import sys
import time
from typing import Final

from pyspark import SparkContext

from penstock.hosting.spark.checks import LOCAL, LOCAL_CLUSTER, is_true
from penstock.hosting.spark.sizes import SparkSize
from penstock.model.counted import counted

_EXECUTORS_WAIT_S: Final = 5.0
_SAY_AFTER_S: Final = 3.0
_FIRST_EXECUTOR_WAIT_S: Final = 30.0  # as long as Spark itself lets a job wait for executors
_POLL_S: Final = 0.05


class SparkSlots:
    """Of one Spark application."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._has_said = False

    @property
    def is_local(self) -> bool:
        """Driver and executors are on one machine."""
        return str(self._context.master).startswith("local")

    def free(self, wanted: int) -> int | None:
        """Those that no Spark task holds; None under dynamic allocation.

        Waits some seconds for so many: executors register one by one, and tasks that have just ended are counted for a moment.
        """
        if self._is_stopped():
            return 0
        if is_true(self._context.getConf().get("spark.dynamicAllocation.enabled")):
            return None
        began = time.monotonic()
        while True:
            total, active = self._task_slots()
            free = max(0, total - active)
            is_hopeless = self._is_stopped() or (self.is_local and total < wanted)
            if free >= wanted or is_hopeless or self._is_late(began, total):
                return free
            time.sleep(_POLL_S)  # Spark calls nobody when a slot becomes free

    def total(self) -> int:
        """Those that the master gives in all; waits some seconds for a cluster's first executors."""
        began = time.monotonic()
        while True:
            total, _ = self._task_slots()
            if total or self._is_stopped() or self._is_late(began, total):
                return total
            time.sleep(_POLL_S)  # Spark calls nobody when a slot becomes free

    def describe(self) -> str:
        """Never waits and never raises: the JobManager's loop asks, also after the session's end."""
        if self._is_stopped():
            return "the SparkSession was stopped"
        total, active = self._task_slots()
        return (
            f"Spark master {self._context.master} gives {counted(total, 'task slot')}, "
            f"{active} of them in use"
        )

    def executors(self) -> list[int]:
        """Cores of each executor, as far as they are known."""
        cluster = LOCAL_CLUSTER.match(self._context.master)
        if cluster is not None:
            return [int(cluster[2])] * int(cluster[1])
        return [cores for cores, _ in self._executor_summaries()]

    def size(self) -> SparkSize:
        """What decides which tasks it can run."""
        conf = self._context.getConf()
        cluster = LOCAL_CLUSTER.match(self._context.master)
        cores = cluster[2] if cluster else conf.get("spark.executor.cores")
        prefix, suffix = "spark.executor.resource.", ".amount"
        names = [key for key, _ in conf.getAll() if key.startswith(prefix) and key.endswith(suffix)]
        return SparkSize(
            master=self._context.master,
            task_cpus=int(conf.get("spark.task.cpus") or 1),
            executor_cores=int(cores) if cores else None,
            executor_memory=conf.get("spark.executor.memory") or "1g",
            is_dynamic=is_true(conf.get("spark.dynamicAllocation.enabled")),
            resources=frozenset(key.removeprefix(prefix).removesuffix(suffix) for key in names),
        )

    def _is_late(self, began_s: float, total: int) -> bool:
        """A cluster may have to start a machine for its first executor; the others follow soon."""
        waited_s = time.monotonic() - began_s
        if not total and waited_s >= _SAY_AFTER_S and not self._has_said:
            self._has_said = True
            print(f"penstock: waiting for the first executor: {self.describe()}", file=sys.stderr)
        return waited_s >= (_EXECUTORS_WAIT_S if total else _FIRST_EXECUTOR_WAIT_S)

    def _is_stopped(self) -> bool:
        try:
            java_context = self._context._jsc
            return java_context is None or bool(java_context.sc().isStopped())
        except Exception:  # Py4J: the JVM is gone, or going
            return True

    def _task_slots(self) -> tuple[int, int]:
        """(in all, used by Spark tasks) at this moment; none of a session that was stopped."""
        try:
            cores, active = self._executor_cores()
            per_task = int(self._context.getConf().get("spark.task.cpus", "1") or 1)
        except Exception:  # Py4J, or attributes that are gone: stopped while it was asked
            return 0, 0
        return max(cores, self._expected_cores()) // per_task, active

    def _expected_cores(self) -> int:
        """What will be there before long, although not every executor has registered."""
        cluster = LOCAL_CLUSTER.match(self._context.master)
        return int(cluster[1]) * int(cluster[2]) if cluster else 0

    def _executor_cores(self) -> tuple[int, int]:
        """Cores and running tasks by Spark's own status store."""
        executors = self._executor_summaries()
        return sum(cores for cores, _ in executors), sum(active for _, active in executors)

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
