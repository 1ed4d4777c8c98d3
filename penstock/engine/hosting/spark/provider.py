"""TaskManagers as Spark tasks: each job has its own, or takes slots of workers that jobs share.

Both providers know what Spark can give, and where the driver is dialled; only the way to a TaskManager differs.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark import Broadcast, SparkContext
from pyspark.sql import SparkSession

from penstock.engine.hosting.network.wire.addresses import Addresses, Endpoint
from penstock.engine.hosting.provider import HostChanges, HostLoss, MasterAddress, OnEnded
from penstock.engine.hosting.shipping.program_files import bring_files
from penstock.engine.hosting.shipping.worker_files import WorkerFiles
from penstock.engine.hosting.spark.background_jobs import (
    BackgroundJobs,
    ContextTasks,
    body_of,
    package_for,
)
from penstock.engine.hosting.spark.checks import LOCAL, is_true
from penstock.engine.hosting.spark.session_workers import idle_workers, make_room
from penstock.engine.hosting.spark.slots import (
    ENDED_BY_YARN,
    STOPPED,
    SparkSlots,
    configuration_of,
    executors_of,
)
from penstock.engine.hosting.taskmanager_order import TaskManagerOrder, TaskSettings, WorkerOrder
from penstock.engine.model.errors import NoResourceAvailable
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.plain import to_plain
from penstock.engine.model.program import ProgramSettings
from penstock.engine.model.slot_size import UNSIZED, SlotSize
from penstock.engine.model.texts.bounded_text import shortened

# ---------------------------------------------------------------------- executor watch
# Looks in intervals at which executors there are, which of them Spark is about to take away, and
# how many task slots are free.
#
# Spark notifies a JVM listener when it decommissions an executor, but Python programs have none
# without a server for callbacks. So its scheduler is asked: it knows of the executor from the
# moment at which Spark, the cluster's manager or the executor's machine has announced the end.
# Source: Spark TaskScheduler.getExecutorDecommissionState, AppStatusStore.executorList.


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
        self.context = context
        self._ended = threading.Event()
        self._first: Executors | None = None
        self._left: frozenset[str] = frozenset()
        self.changes = HostChanges()

    def start(self) -> None:
        threading.Thread(target=self._run, name="penstock-executors", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        is_local = LOCAL.match(self.context.master) is not None
        interval_s = _LOCAL_INTERVAL_S if is_local else _INTERVAL_S
        while not self._ended.is_set():
            found = look_at(self.context)
            if found is not None:
                self.note(found)
            self._ended.wait(interval_s)

    def note(self, found: Executors) -> None:
        """An executor that leaves never comes back under its id. One that is gone, and another in its place, is no growth."""
        first = self._first = self._first or found
        self._left |= found.leaving
        grown = max(self.changes.more_slots, found.slots - first.slots)
        self.changes = HostChanges(self._left, grown, found.free, self.changes.look + 1)


def look_at(context: SparkContext) -> Executors | None:
    """Ask Spark. None: the session was stopped, or this Spark has other classes. Never raises."""
    try:
        conf = configuration_of(context)
        scheduler = context._jsc.sc().taskScheduler()
        cores = {one.id(): one.totalCores() for one in executors_of(context)}
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


# YARN's words, and those of Kubernetes.
_FOR_MEMORY: Final = re.compile(r"physical memory|OOMKilled", re.IGNORECASE)
_MOST_OF_REASON: Final = 400
_REMEDY: Final = "spark.executor.memoryOverhead"


def why_gone(context: SparkContext, executor: str) -> HostLoss | None:
    """Ask Spark why it has removed an executor. None: it has not, or its cluster manager has not said yet. Never raises."""
    try:
        found = context._jsc.sc().statusStore().executorSummary(executor).removeReason()
        reason = str(found.get()) if found.isDefined() else ""
    except Exception:  # As above; or Spark has never heard of it.
        return None
    if not reason:
        return None
    words = shortened(" ".join(reason.split()), _MOST_OF_REASON)
    cause = f"executor {executor} has ended: {words}"
    for_memory = _FOR_MEMORY.search(reason) is not None
    if for_memory and _REMEDY not in words:
        cause = f"{cause.rstrip('.')}. Raise {_REMEDY}."
    return HostLoss(cause, for_memory)


# ---------------------------------------------------------------------- provider


LOOPBACK: Final = "127.0.0.1"


class TaskManagerOrders(ABC):
    """What the Spark task of a TaskManager is ordered to do."""

    def __init__(
        self, slots: int, switch_interval_s: float | None, addresses: Addresses | None
    ) -> None:
        self._addresses = addresses or Addresses()
        self.slots_per_taskmanager = slots
        self._switch_interval_s = switch_interval_s
        self.master_address: MasterAddress | None = None
        self.on_ended: OnEnded = lambda _resource_id, _cause: None
        self._registered: set[ResourceId] = set()
        self.worker_files = WorkerFiles()

    @property
    @abstractmethod
    def is_local(self) -> bool:
        """Whether driver and executors are on one machine."""

    @property
    @abstractmethod
    def _has_executor_log(self) -> bool:
        """Whether executors have a log of their own."""

    def leave(self, resource_ids: tuple[ResourceId, ...]) -> None:
        """Does nothing: their processes end with them."""

    def progress(self, resource_id: ResourceId) -> int | None:
        return None  # Its supervisor reports it.

    @property
    def _python(self) -> str | None:
        """The interpreter of TaskManagers. On the driver's own machine its own exists; elsewhere Spark's choice counts."""
        return sys.executable if self.is_local else None

    def _worker_order(self, master: MasterAddress) -> WorkerOrder:
        return WorkerOrder(
            files=self.worker_files,
            switch_interval_s=self._switch_interval_s,
            heartbeat_interval_s=master.heartbeat_interval_s,
            has_log=self._has_executor_log,
            logs=master.logs,
        )

    def task_settings_for(self, usual: TaskSettings, _slots: int, _size: SlotSize) -> TaskSettings:
        """Return the settings of a TaskManager of this number of slots."""
        return usual

    def _taskmanager(self, name: ResourceId, start_id: str, slots: int, size: SlotSize) -> Any:
        """Return the order for one TaskManager, as plain data and without secrets."""
        master = self.master_address
        assert master is not None
        order = TaskManagerOrder(
            slots=slots,
            size=size,
            bind_host=LOOPBACK if self.is_local else None,
            addresses=self._addresses,
            task_settings=self.task_settings_for(master.task_settings, slots, size),
        )
        return {
            "taskmanager": to_plain(order),
            "start_id": start_id,
            "resource_id": name,
            "master_host": master.host,
            "master_port": master.port,
            "token": master.credentials.token,
            "cluster_id": master.credentials.cluster_id,
            "heartbeat_interval_s": master.heartbeat_interval_s,
            "silence_timeout_s": master.silence_timeout_s,
        }

    def worker_config(self, resource_id: ResourceId, size: SlotSize) -> dict[str, Any]:
        """Plain data, as the child process gets it: the Spark worker that unpickles this does not have our classes."""
        master = self.master_address
        assert master is not None
        slots = 1 if size else self.slots_per_taskmanager
        return {
            "worker_id": resource_id,
            "host": master.host,
            "port": master.port,
            "ticket": master.tickets.new().to_plain(),
            "heartbeat_interval_s": master.heartbeat_interval_s,
            "silence_timeout_s": master.silence_timeout_s,
            "python": self._python,
            "worker": to_plain(self._worker_order(master)),
            "only": self._taskmanager(resource_id, resource_id, slots, size),
        }


class SparkPlace(TaskManagerOrders):
    """What is the same for both providers of a job on a SparkSession (the user's or the embedded one)."""

    def __init__(
        self,
        spark: SparkSession,
        slots: int,
        switch_interval_s: float | None = None,
        addresses: Addresses | None = None,
    ) -> None:
        super().__init__(slots, switch_interval_s, addresses)
        self.context = spark.sparkContext
        self.spark_slots = SparkSlots(spark.sparkContext)
        self._granted: int | None = None
        self._executors = ExecutorWatch(spark.sparkContext)

    @property
    def is_local(self) -> bool:
        return self.spark_slots.is_local

    @property
    def _has_executor_log(self) -> bool:
        return has_executor_log(str(self.context.master))

    @property
    def shares_files(self) -> bool:
        return self.is_local

    def bring_files(self, program: ProgramSettings, modules: bytes = b"") -> None:
        self.worker_files = bring_files(self.context, program)

    @property
    def control_endpoint(self) -> Endpoint:
        return control_endpoint_of(self.context, self._addresses)

    # ------------------------------------------------------------------ task slots

    def max_taskmanagers(self, wanted: int | None = None) -> int | None:
        """Return the application's task slots that no other Spark task holds; None under dynamic
        allocation.

        Without `wanted`, returns the result of the former call.
        """
        if wanted is None and self._granted is not None:
            return self._granted
        self._granted = self.free_slots(wanted or 1)
        return self._granted

    def free_slots(self, wanted: int) -> int | None:
        """The task slots that are free, or that idle workers of other jobs hold: these make room."""
        idle = len(idle_workers(self.context))
        free = self.spark_slots.free(max(0, wanted - idle))
        if not idle or free is None:
            return free
        if free < wanted:
            make_room(self.context, wanted - free)
            free = self.spark_slots.free(wanted) or 0
        return free + len(idle_workers(self.context))

    def task_slots_for(self, taskmanagers: Mapping[SlotSize, int]) -> int:
        """As the port. Task slots are of the usual size; a larger task takes several."""
        size_of = self.spark_slots.size()
        refusal = next(filter(None, map(size_of.refusal, taskmanagers)), None)
        if refusal is None and any(taskmanagers):
            refusal = size_of.packing_refusal(taskmanagers, self.spark_slots.executors())
        if refusal is not None:
            raise NoResourceAvailable(refusal)
        per_task = size_of.task_cpus
        return sum(-(-size_of.cpus_for(s) // per_task) * n for s, n in taskmanagers.items())

    def gone(self) -> str | None:
        if not self.spark_slots.is_stopped():
            return None
        return ENDED_BY_YARN if self.context.master == "yarn" else STOPPED

    def changes(self) -> HostChanges:
        return self._executors.changes

    def why_gone(self, executor: str) -> HostLoss | None:
        return why_gone(self.context, executor)

    def describe(self) -> str:
        return self.spark_slots.describe()


class OneTaskEach(TaskManagerOrders):
    """Each TaskManager has a Spark task, which ends with it. The class that inherits says where tasks run."""

    background_jobs: BackgroundJobs
    package: Any = ""

    def has_free_slots(self) -> bool:
        return not self.background_jobs.lack_places(
            self.background_jobs.running() - self._registered
        )

    def start(self, resource_id: ResourceId, size: SlotSize = UNSIZED) -> None:
        """Start a TaskManager. Never raises; errors are reported by `on_ended`."""
        self.background_jobs.start(
            resource_id,
            size,
            lambda: body_of(self.worker_config(resource_id, size), self.package),
            self.on_ended,
        )

    def registered(self, resource_id: ResourceId) -> None:
        self._registered.add(resource_id)
        self.background_jobs.is_up(resource_id)

    def stop(self, resource_id: ResourceId) -> None:
        self.background_jobs.stop_later(resource_id)

    def end_tasks(self) -> None:
        """End all. Never raises."""
        self.background_jobs.close(self._registered)


class SparkProvider(OneTaskEach, SparkPlace):
    """The provider of one job that shares no process."""

    def __init__(
        self,
        spark: SparkSession,
        slots: int,
        switch_interval_s: float | None = None,
        addresses: Addresses | None = None,
    ) -> None:
        SparkPlace.__init__(self, spark, slots, switch_interval_s, addresses)
        self.background_jobs = BackgroundJobs(ContextTasks(self.context, self.spark_slots), "")

    def open(self, master: MasterAddress, on_ended: OnEnded) -> None:
        self._executors.start()
        self.master_address = master
        self.on_ended = on_ended
        self.background_jobs.group = master.credentials.cluster_id[:8]
        self.package = package_for(self.context)

    def close(self) -> None:
        """End all. Never raises."""
        self._executors.stop()
        self.end_tasks()
        if isinstance(self.package, Broadcast):
            with contextlib.suppress(Exception):  # The session may be stopped already.
                self.package.destroy()


def has_executor_log(master: str) -> bool:
    """Return whether executors have a log. In `local[n]` the executor is the driver, and its stderr
    is the user's console, or that of a Spark Connect server.
    """
    return master != "local" and not master.startswith("local[")


def control_endpoint_of(context: SparkContext, addresses: Addresses) -> Endpoint:
    """Return where the JobManager listens and is dialled, unless it is configured.

    It is dialled at the driver's address as Spark's executors know it, and listens where Spark's
    driver listens (for example all interfaces in a container); on loopback in local modes.
    """
    host, bind_host = LOOPBACK, LOOPBACK
    if not str(context.master).startswith("local"):
        # Spark writes IPv6 addresses in brackets, but sockets take them without.
        conf = configuration_of(context)
        host = (conf.get("spark.driver.host") or LOOPBACK).strip("[]")
        bind_host = (conf.get("spark.driver.bindAddress") or host).strip("[]")
    return Endpoint(
        addresses.control_bind_host or bind_host,
        addresses.control_ports,
        addresses.control_host or host,
        addresses.control_port,
    )
