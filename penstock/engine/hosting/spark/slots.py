"""Spark's task slots: how many exist and are free, and which sizes of tasks Spark can run.

Executors register one by one, and a cluster may have to start machines for them. So missing
executors are waited for, up to a time limit.

TaskManagers of a given size: what is asked of Spark, and why Spark cannot give it.

Cores are Spark's stage-level `task.cpus`. Memory is the executor's memoryOverhead, which Python
uses. It can be asked for only where Spark may start executors of a new size (dynamic allocation).
Source: Spark's ResourceProfile and TaskResourceProfile.

What of a SparkContext does not change while it lives, asked once: each question to the JVM takes a moment, and there are many.

Source: Spark clones its SparkConf when the context is made, and takes no changes afterwards.
"""

from __future__ import annotations

import math
import re
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark import SparkContext
from pyspark.resource import (
    ExecutorResourceRequests,
    ResourceProfile,
    ResourceProfileBuilder,
    TaskResourceRequests,
)

from penstock.engine.hosting.spark.checks import LOCAL, LOCAL_CLUSTER, is_true
from penstock.engine.hosting.spark.executor_pods import ExecutorPods
from penstock.engine.hosting.spark.session import why_it_ended
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.slot_size import SlotSize, cores_of, describe, extended_of, memory_mb_of
from penstock.engine.model.texts.amounts import counted

_LOCAL: Final = re.compile(r"local(\[|$)")
_OVERHEAD_MB: Final = 384  # Spark keeps at least this much for the JVM itself.


@dataclass(frozen=True, slots=True)
class SparkSize:
    """The relevant part of Spark's configuration. `executor_cores`: of the largest executor; None: not known."""

    master: str
    task_cpus: int
    executor_cores: int | None
    executor_memory: str
    is_dynamic: bool
    resources: frozenset[str]

    def cpus_for(self, size: SlotSize) -> int:
        """Return the cores of a Spark task that runs a TaskManager of this size."""
        return max(self.task_cpus, math.ceil(cores_of(size)))

    def refusal(self, size: SlotSize) -> str | None:
        """Return why Spark cannot give this size, and what to do; None: it can."""
        asked = f"a slot sharing group asks for {describe(size)}"
        cpus, extended = self.cpus_for(size), extended_of(size)
        if _LOCAL.match(self.master):
            if cpus <= self.task_cpus and not memory_mb_of(size) and not extended:
                return None
            return (
                f"{asked}, but master {self.master} runs tasks of one core in one process. "
                "Use a cluster's master (local-cluster[executors,cores,MiB] for tests), or "
                "do not set resources."
            )
        return None if self.is_dynamic else self._refusal_by_executors(asked, size)

    def _refusal_by_executors(self, asked: str, size: SlotSize) -> str | None:
        """As `refusal`, where executors keep their size."""
        cpus, missing = self.cpus_for(size), sorted(extended_of(size).keys() - self.resources)
        if memory_mb_of(size):
            return (
                f"{asked}, but without spark.dynamicAllocation.enabled the executors of "
                f"{self.master} keep their size. Enable it, or do not set the memory and size "
                "spark.executor.memoryOverhead instead."
            )
        if missing:
            return (
                f"{asked}, but the executors have no resource {missing[0]!r}. Set "
                f"spark.executor.resource.{missing[0]}.amount."
            )
        if self.executor_cores is not None and cpus > self.executor_cores:
            return (
                f"{asked}, but the largest executor of {self.master} has "
                f"{counted(self.executor_cores, 'core')}. Raise spark.executor.cores, or ask for less."
            )
        return None

    def packing_refusal(
        self, taskmanagers: Mapping[SlotSize, int], executors: Sequence[int]
    ) -> str | None:
        """Return why TaskManagers of these sizes do not fit into the executors together, the
        largest placed first.

        None: they fit, or executors are started as needed. `executors`: cores of each; empty: not
        known yet.
        """
        if self.is_dynamic or not executors or _LOCAL.match(self.master):
            return None
        free = sorted(executors, reverse=True)
        tasks = sorted(
            (
                (self.cpus_for(size), size)
                for size, count in taskmanagers.items()
                for _ in range(count)
            ),
            reverse=True,
        )
        for cpus, size in tasks:
            place = next((index for index, cores in enumerate(free) if cores >= cpus), None)
            if place is None:
                wanted = ", ".join(f"{n} x {describe(s)}" for s, n in taskmanagers.items() if n)
                return (
                    f"TaskManagers of these sizes do not fit into the executors of {self.master} ({wanted}; "
                    f"executors of {', '.join(map(str, executors))} cores): none has room for one of "
                    f"{describe(size)} together with the others. Give Spark more or larger executors, or ask for less."
                )
            free[place] -= cpus
        return None

    def profile(self, size: SlotSize) -> ResourceProfile | None:
        """Return a profile for `RDD.withResources`; None: the usual task is enough."""
        cpus, memory_mb, extended = self.cpus_for(size), memory_mb_of(size), extended_of(size)
        if cpus == self.task_cpus and not memory_mb and not extended:
            return None
        task = TaskResourceRequests().cpus(cpus)
        for name, amount in extended.items():
            task = task.resource(name, amount)
        builder = ResourceProfileBuilder().require(task)
        if self.is_dynamic:
            executor = ExecutorResourceRequests().cores(cpus).memory(self.executor_memory)
            executor = executor.memoryOverhead(f"{math.ceil(memory_mb) + _OVERHEAD_MB}m")
            for name, amount in extended.items():
                executor = executor.resource(name, math.ceil(amount))
            builder = builder.require(executor)
        return builder.build


class LargeOnesFirst:
    """Makes small tasks wait until the large ones have started; else they might take the only place
    where a large one fits.
    """

    def __init__(self) -> None:
        self._waiting: set[ResourceId] = set()
        self._changed = threading.Condition()

    def begin(self, resource_id: ResourceId) -> None:
        with self._changed:
            self._waiting.add(resource_id)

    def end(self, resource_id: ResourceId) -> None:
        """The large task runs, or will never run."""
        with self._changed:
            self._waiting.discard(resource_id)
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Return when no large task waits, or after the time limit."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, timeout_s)


_CONFIGURATIONS: Final[weakref.WeakKeyDictionary[SparkContext, Mapping[str, str]]] = (
    weakref.WeakKeyDictionary()
)
_PAGES: Final[weakref.WeakKeyDictionary[SparkContext, str | None]] = weakref.WeakKeyDictionary()


def configuration_of(context: SparkContext) -> Mapping[str, str]:
    """Return Spark's configuration. Raises what Py4J raises: the session was stopped before anybody has asked."""
    found = _CONFIGURATIONS.get(context)
    if found is None:
        found = _CONFIGURATIONS[context] = dict(context.getConf().getAll())
    return found


def page_of(context: SparkContext) -> str | None:
    """Return the address of Spark's own pages; None: there are none."""
    if context not in _PAGES:
        _PAGES[context] = context.uiWebUrl
    return _PAGES[context]


def executors_of(context: SparkContext) -> list[Any]:
    """Return Spark's summary of each executor. Raises what Py4J raises: the session was stopped."""
    listed = context._jsc.sc().statusStore().executorList(True)
    is_local = LOCAL.match(context.master) is not None
    found = (listed.apply(index) for index in range(listed.size()))
    return [one for one in found if is_local or one.id() != "driver"]


STOPPED: Final = "the SparkSession was stopped"
ENDED_BY_YARN: Final = (
    f"{STOPPED}, by the program or because YARN has ended the application: it was killed, or a "
    "ResourceManager without recovery was started again (`yarn application -status` knows)"
)
_EXECUTORS_WAIT_S: Final = 5.0
_SAY_AFTER_S: Final = 3.0
_FIRST_EXECUTOR_WAIT_S: Final = 30.0  # As long as Spark itself lets a job wait for executors.
_POLL_S: Final = 0.05
_ASK_S: Final = 0.2
_MANAGERS: Final = (("yarn", "YARN"), ("k8s", "Kubernetes"))
"""Those that Spark asks for a number of executors."""
_USUAL_EXECUTORS: Final = 2


class SparkSlots:
    """The task slots of one Spark application."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._pods = ExecutorPods(context)
        master = str(context.master)
        self._manager = next((name for at, name in _MANAGERS if master.startswith(at)), None)
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
            total, active = self.task_slots()
            free = max(0, total - active)
            is_hopeless = self.is_stopped() or (self.is_local and total < wanted)
            if free >= wanted or is_hopeless or self._is_late(began, total):
                return free
            time.sleep(_POLL_S)  # Spark has no notification of a free slot.

    def has_room(self, tasks: int) -> bool:
        """Whether `tasks` more tasks of the usual size can run now, or once all executors have come that Spark has asked for.

        Never waits and never raises.
        """
        total, active = self.task_slots()
        if total - active >= tasks:
            return True
        _, missing = self._asked()
        if not missing:
            return False
        size = self.size()
        each = (size.executor_cores or 1) // size.task_cpus
        return total - active + missing * each >= tasks

    def _asked(self) -> tuple[int, int]:
        """Return how many executors Spark has asked its cluster manager for, and how many of them have not come.

        (0, 0): such a number is not known. Never raises.
        """
        if self._manager is None:
            return 0, 0
        try:
            asked = sum(self._targets())
            return asked, max(0, asked - len(executors_of(self._context)))
        except Exception:  # Py4J: the session was stopped meanwhile, or this Spark is another one.
            return 0, 0

    def _targets(self) -> Iterator[int]:
        """How many executors Spark wants to have, for each of their sizes. Spark notes them once they change."""
        found = self._context._jsc.sc().schedulerBackend().getRequestedTotalExecutors()
        if found.isEmpty():
            conf = configuration_of(self._context)
            yield int(conf.get("spark.executor.instances") or _USUAL_EXECUTORS)
        numbers = found.valuesIterator()
        while numbers.hasNext():
            yield int(numbers.next())

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
            total, _ = self.task_slots()
            if total or self.is_stopped() or self._is_late(began, total):
                return total
            time.sleep(_POLL_S)  # Spark has no notification of a free slot.

    def describe(self) -> str:
        """Describe the slots, and what keeps executors from running. Hardly waits and never raises:
        the JobManager's loop calls it, even after the session's end.
        """
        return self._description(_ASK_S)

    def _description(self, wait_s: float) -> str:
        if self.is_stopped():
            return ": ".join(filter(None, (STOPPED, why_it_ended())))
        total, active = self.task_slots()
        text = (
            f"Spark master {self._context.master} gives {counted(total, 'task slot')}, "
            f"{active} of them in use"
        )
        asked, missing = self._asked()
        if missing:
            text += (
                f"; {missing} of {counted(asked, 'executor')} that Spark has asked "
                f"{self._manager} for have not come yet"
            )
        return "; ".join(filter(None, (text, self._small_executors(), self._pods.reason(wait_s))))

    def _small_executors(self) -> str:
        """Describe executors that have fewer cores than asked; "": there are none."""
        try:
            asked = int(configuration_of(self._context).get("spark.executor.cores") or 1)
            small = [cores for cores in self.executors() if 0 < cores < asked]
        except Exception:  # Py4J: the session was stopped meanwhile.
            return ""
        if not small:
            return ""
        return (
            f"{counted(len(small), 'executor')} of {counted(min(small), 'core')} instead of "
            f"{asked} (spark.executor.cores)"
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
        return [one.totalCores() for one in executors_of(self._context)]

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
            text = self._description(_EXECUTORS_WAIT_S)
            print(f"penstock: waiting for the first executor: {text}", file=sys.stderr)
        return waited_s >= (_EXECUTORS_WAIT_S if total else _FIRST_EXECUTOR_WAIT_S)

    def is_stopped(self) -> bool:
        """Whether the SparkSession was stopped, or its JVM has ended."""
        try:
            java_context = self._context._jsc
            return java_context is None or bool(java_context.sc().isStopped())
        except Exception:  # Py4J: the JVM is gone, or about to end.
            return True

    def task_slots(self) -> tuple[int, int]:
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
        executors = executors_of(self._context)
        running = self._running()
        active = sum(one.activeTasks() for one in executors) if running is None else running
        return sum(one.totalCores() for one in executors), active
