"""TaskManagers as Spark tasks: one background job of one task for each incarnation.

Source: Ray on Spark's lesson (one job for all workers loses all with one executor), rules 3.3 of the hosting
notes. The task's body ends normally whatever happens to the TaskManager, so Spark never restarts one itself.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from dataclasses import asdict
from typing import Any, Final

from pyspark import InheritableThread, cloudpickle
from pyspark.sql import SparkSession

from penstock.hosting import spark_executor
from penstock.hosting.package_archive import package_archive
from penstock.hosting.provider import MasterAddress, OnEnded
from penstock.model.errors import ConfigurationError
from penstock.model.ids import ResourceId

_STOP_WAIT_S: Final = 6.0
_EXECUTORS_WAIT_S: Final = 5.0
_POLL_S: Final = 0.05
_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?$")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]$")


class SparkProvider:
    """`runtime` of one Penstock job on a SparkSession that is the user's (or the embedded one)."""

    def __init__(self, spark: SparkSession, slots: int, switch_interval_s: float) -> None:
        self.slots_per_taskmanager = slots
        self._spark = spark
        self._context = spark.sparkContext
        self._switch_interval_s = switch_interval_s
        self._master: MasterAddress | None = None
        self._on_ended: OnEnded = lambda _resource_id, _cause: None
        self._threads: dict[ResourceId, InheritableThread] = {}
        self._registered: set[ResourceId] = set()
        self._granted: int | None = None
        self._archive: Any = None
        self._is_closing = False

    @property
    def is_local(self) -> bool:
        return str(self._context.master).startswith("local")

    @property
    def bind_host(self) -> str:
        """The driver's address as Spark's own executors know it; loopback in local modes."""
        if self.is_local:
            return "127.0.0.1"
        return str(self._context.getConf().get("spark.driver.host", "127.0.0.1"))

    # ------------------------------------------------------------------ what there is

    def max_taskmanagers(self, wanted: int | None = None) -> int | None:
        """Task slots of the application that no other Spark task holds; None under dynamic allocation.

        With `wanted`, waits some seconds for so many: executors register one by one, and tasks that have just
        ended are counted for a moment. Without, the answer of that check counts.
        """
        conf = self._context.getConf()
        if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
            return None
        if wanted is None and self._granted is not None:
            return self._granted
        deadline = time.monotonic() + _EXECUTORS_WAIT_S
        while True:
            total, active = self._task_slots()
            self._granted = max(0, total - active)
            is_hopeless = self.is_local and total < (wanted or 0)
            if self._granted >= (wanted or 0) or is_hopeless or time.monotonic() >= deadline:
                return self._granted
            time.sleep(_POLL_S)

    def total_cores(self) -> int:
        """Task slots that the master gives in all."""
        return self._task_slots()[0]

    def describe(self) -> str:
        try:
            total, active = self._task_slots()
        except Exception:  # Py4J, or attributes that are gone: there is no session any more
            return "the SparkSession was stopped"
        return (
            f"Spark master {self._context.master} gives {total} task slot{'s' * (total != 1)}, "
            f"{active} of them in use"
        )

    def _task_slots(self) -> tuple[int, int]:
        """(in all, used by other Spark tasks). Waits a little for a cluster's first executors."""
        expected = self._expected_cores()
        deadline = time.monotonic() + _EXECUTORS_WAIT_S
        while True:
            cores, active = self._executor_cores()
            if expected is not None:
                cores = max(cores, expected)
            if cores or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        per_task = int(self._context.getConf().get("spark.task.cpus", "1") or 1)
        return cores // per_task, active

    def _expected_cores(self) -> int | None:
        master = self._context.master
        if cluster := _LOCAL_CLUSTER.match(master):
            return int(cluster[1]) * int(cluster[2])
        return None

    def _executor_cores(self) -> tuple[int, int]:
        """Cores and running tasks by Spark's own status store."""
        store = self._context._jsc.sc().statusStore()
        executors = store.executorList(True)
        cores = active = 0
        is_local_mode = _LOCAL.match(self._context.master) is not None
        for index in range(executors.size()):
            summary = executors.apply(index)
            if summary.id() != "driver" or is_local_mode:
                cores += summary.totalCores()
                active += summary.activeTasks()
        return cores, active

    # ------------------------------------------------------------------ TaskManagers

    def open(self, master: MasterAddress, on_ended: OnEnded) -> None:
        """Ship the package, once a job."""
        self._master = master
        self._on_ended = on_ended
        self._archive = self._context.broadcast(package_archive())

    def start(self, resource_id: ResourceId) -> None:
        """Never raises: what goes wrong is told by `on_ended`."""
        try:
            thread = InheritableThread(target=self._host, args=(resource_id,))
            thread.daemon = True
            thread.name = f"penstock-host-{resource_id}"
            thread.start()
        except Exception as error:  # a stopped context has no JVM to ask
            self._on_ended(resource_id, f"cannot submit to Spark ({self.describe()}): {error}")
            return
        self._threads[resource_id] = thread

    def registered(self, resource_id: ResourceId) -> None:
        self._registered.add(resource_id)

    def stop(self, resource_id: ResourceId) -> None:
        """Only for one that is beyond messages: its supervisor ends a healthy one by itself."""
        threading.Thread(
            target=self._cancel_later, args=(resource_id,), name=f"penstock-stop-{resource_id}", daemon=True
        ).start()  # fmt: skip

    def close(self) -> None:
        self._is_closing = True
        deadline = time.monotonic() + _STOP_WAIT_S
        for resource_id in [r for r in self._threads if r not in self._registered]:
            self._cancel(resource_id)  # nobody could tell it to end
        for resource_id, thread in list(self._threads.items()):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._cancel(resource_id)
        if self._archive is not None:
            with contextlib.suppress(Exception):  # the session may be stopped already
                self._archive.destroy()

    def _host(self, resource_id: ResourceId) -> None:
        """Thread of one Spark job; returns when the TaskManager is over."""
        try:
            self._context.setJobGroup(
                self._group(resource_id),
                f"Penstock TaskManager {resource_id}",
                interruptOnCancel=True,
            )
            config = self._config(resource_id)
            archive = self._archive
            cloudpickle.register_pickle_by_value(spark_executor)
            rdd = self._context.parallelize([0], 1).mapPartitions(
                _body(config, archive), preservesPartitioning=True
            )
            causes = rdd.collect()
            cause = causes[0] if causes else "ended"
        except Exception as error:
            cause = f"Spark job ended: {_first_line(error)}"
        if not self._is_closing:
            self._on_ended(resource_id, cause)

    def _config(self, resource_id: ResourceId) -> dict[str, Any]:
        master = self._master
        assert master is not None
        return {
            "resource_id": resource_id,
            "master_host": master.host,
            "master_port": master.port,
            "secret": master.credentials.secret,
            "token": master.credentials.token,
            "cluster_id": master.credentials.cluster_id,
            "heartbeat_interval_s": master.heartbeat_interval_s,
            # On the driver's own machine its interpreter is there; elsewhere Spark's choice counts.
            "python": sys.executable if self.is_local else None,
            "taskmanager": {
                "slots": self.slots_per_taskmanager,
                "bind_host": "127.0.0.1" if self.is_local else None,
                "task_settings": asdict(master.task_settings),
                "switch_interval_s": self._switch_interval_s,
            },
        }

    def _group(self, resource_id: ResourceId) -> str:
        assert self._master is not None
        return f"{resource_id}-{self._master.credentials.cluster_id[:8]}"

    def _cancel_later(self, resource_id: ResourceId) -> None:
        thread = self._threads.get(resource_id)
        if thread is not None:
            thread.join(_STOP_WAIT_S)
            if thread.is_alive():
                self._cancel(resource_id)

    def _cancel(self, resource_id: ResourceId) -> None:
        with contextlib.suppress(Exception):  # a stopped context has no jobs left
            self._context.cancelJobGroup(self._group(resource_id))


def _body(config: dict[str, Any], archive: Any) -> Any:
    host = spark_executor.host_taskmanager

    def run(_partition: Any) -> Any:
        return host(config, archive)

    run.__module__ = "__main__"  # by value, like everything in the Spark closure
    return run


def check_configuration(spark: SparkSession) -> list[str]:
    """What would break TaskManagers: raises ConfigurationError, or returns warnings."""
    conf = spark.sparkContext.getConf()
    if conf.get("spark.speculation", "false") == "true":
        raise ConfigurationError(
            "spark.speculation is true: Spark would start a twin of every TaskManager. Set "
            "spark.speculation=false for sessions that run Penstock jobs."
        )
    warnings = []
    if conf.get("spark.python.worker.killOnIdleTimeout", "false") == "true":
        warnings.append(
            "spark.python.worker.killOnIdleTimeout is true: Spark may take a TaskManager, whose task "
            "gives no rows, for idle and kill it; set it to false"
        )
    if conf.get("spark.executor.pyspark.memory"):
        warnings.append(
            "spark.executor.pyspark.memory limits the address space of each worker's processes: "
            "Arrow may fail to allocate; leave it unset and size memoryOverhead instead"
        )
    return warnings


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
