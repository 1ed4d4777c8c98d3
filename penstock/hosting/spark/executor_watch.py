"""Looks in intervals at which executors there are, which of them Spark is about to take away, and how many task slots are free.

Spark tells a JVM listener when it decommissions an executor, but Python programs have none without a server for callbacks. So its scheduler
is asked: it knows of the executor from the moment at which Spark, the cluster's manager or the executor's machine has announced the end.
Source: Spark TaskScheduler.getExecutorDecommissionState, AppStatusStore.executorList.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

from pyspark import SparkContext

from penstock.hosting.provider import HostChanges
from penstock.hosting.spark.checks import LOCAL, is_true
from penstock.hosting.spark.configuration import configuration_of

_INTERVAL_S: Final = 0.5
_LOCAL_INTERVAL_S: Final = 2.0
"""There are no executors that come or go."""


@dataclass(frozen=True, slots=True)
class Executors:
    """`leaving`: ids of executors that Spark gives no tasks any more. `slots`: task slots of the others. `free`: those of them that no task
    holds; None: Spark starts executors as they are asked for.
    """

    leaving: frozenset[str]
    slots: int
    free: int | None = None


class ExecutorWatch:
    """Owns a thread from `start` to `stop`."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._ended = threading.Event()
        self._first: Executors | None = None
        self._left: frozenset[str] = frozenset()
        self.changes = HostChanges()

    def start(self) -> None:
        threading.Thread(target=self._run, name="penstock-executors", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        is_local = LOCAL.match(self._context.master) is not None
        interval_s = _LOCAL_INTERVAL_S if is_local else _INTERVAL_S
        while not self._ended.is_set():
            found = executors_of(self._context)
            if found is not None:
                self._note(found)
            self._ended.wait(interval_s)

    def _note(self, found: Executors) -> None:
        """An executor that leaves never comes back under its id. One that is gone, and another in its place, is no growth."""
        first = self._first = self._first or found
        self._left |= found.leaving
        grown = max(self.changes.more_slots, found.slots - first.slots)
        self.changes = HostChanges(self._left, grown, found.free, self.changes.look + 1)


def executors_of(context: SparkContext) -> Executors | None:
    """Ask Spark. None: the session was stopped, or this Spark has other classes. Never raises."""
    try:
        conf = configuration_of(context)
        java: Any = context._jsc.sc()
        scheduler, listed = java.taskScheduler(), java.statusStore().executorList(True)
        summaries = [listed.apply(index) for index in range(listed.size())]
        is_local = LOCAL.match(context.master) is not None
        cores = {
            one.id(): one.totalCores() for one in summaries if is_local or one.id() != "driver"
        }
        leaving = frozenset(
            name for name in cores if scheduler.getExecutorDecommissionState(name).isDefined()
        )
        per_task = int(conf.get("spark.task.cpus") or 1)
        is_dynamic = is_true(conf.get("spark.dynamicAllocation.enabled"))
        staying = sum(count // per_task for name, count in cores.items() if name not in leaving)
        if is_dynamic:
            return Executors(leaving, 0)
        # What Spark publishes of running tasks may be seconds old.
        running = int(scheduler.rootPool().runningTasks())
        return Executors(leaving, staying, max(0, staying - running))
    except Exception:  # Py4J: the JVM or the session is gone, or this Spark is another one.
        return None
