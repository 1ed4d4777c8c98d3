"""TaskManagers as Spark tasks: one background Spark job with one task for each TaskManager that is
started.

Source: Ray on Spark's experience (one Spark job for all workers loses all of them with one
executor). The task's body ends normally whatever happens to the TaskManager, so that Spark never
restarts one itself.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from pyspark import InheritableThread, SparkContext, cloudpickle
from pyspark.sql import SparkSession

from penstock.hosting.provider import MasterAddress, OnEnded
from penstock.hosting.shipping.package_archive import package_archive
from penstock.hosting.shipping.program_files import bring_files
from penstock.hosting.shipping.worker_files import WorkerFiles
from penstock.hosting.spark import executor_task
from penstock.hosting.spark.sizes import LargeOnesFirst
from penstock.hosting.spark.slots import STOPPED, SparkSlots
from penstock.hosting.spark.worker_python import cause_in
from penstock.hosting.taskmanager_order import ProcessSettings, TaskManagerOrder
from penstock.hosting.wire.addresses import Addresses, Endpoint
from penstock.hosting.wire.invitations import TICKET_BYTES
from penstock.model.errors import NoResourceAvailable
from penstock.model.ids import ResourceId
from penstock.model.plain import to_plain
from penstock.model.program import ProgramSettings
from penstock.model.slot_size import UNSIZED, SlotSize

_LARGE_FIRST_S: Final = 10.0
_STOP_WAIT_S: Final = 6.0
_STARTING_S: Final = 2.0
_CANCEL_AGAIN_S: Final = 0.25
_LOOPBACK: Final = "127.0.0.1"


class SparkProvider:
    """The TaskManager provider of one Penstock job on a SparkSession (the user's or the embedded one)."""

    def __init__(
        self,
        spark: SparkSession,
        slots: int,
        process: ProcessSettings | None = None,
        addresses: Addresses | None = None,
    ) -> None:
        self._addresses = addresses or Addresses()
        self.slots_per_taskmanager = slots
        self._context = spark.sparkContext
        self._slots = SparkSlots(spark.sparkContext)
        self._process = process or ProcessSettings()
        self._master: MasterAddress | None = None
        self._on_ended: OnEnded = lambda _resource_id, _cause: None
        self._threads: dict[ResourceId, InheritableThread] = {}
        self._registered: set[ResourceId] = set()
        self._granted: int | None = None
        self._archive: Any = None
        self._files = WorkerFiles()
        self._is_closing = False
        self._large_ones = LargeOnesFirst()

    @property
    def is_local(self) -> bool:
        return self._slots.is_local

    @property
    def _has_executor_log(self) -> bool:
        """Whether executors have a log. In `local[n]` the executor is the driver, and its stderr is
        the user's console.
        """
        master = str(self._context.master)
        return master != "local" and not master.startswith("local[")

    @property
    def shares_files(self) -> bool:
        return self.is_local

    def bring_files(self, program: ProgramSettings) -> None:
        self._files = bring_files(self._context, program)

    @property
    def control_endpoint(self) -> Endpoint:
        return control_endpoint_of(self._context, self._addresses)

    # ------------------------------------------------------------------ task slots

    def max_taskmanagers(self, wanted: int | None = None) -> int | None:
        """Return the application's task slots that no other Spark task holds; None under dynamic
        allocation.

        Without `wanted`, returns the result of the former call.
        """
        if wanted is None and self._granted is not None:
            return self._granted
        self._granted = self._slots.free(wanted or 1)
        return self._granted

    def task_slots_for(self, taskmanagers: Mapping[SlotSize, int]) -> int:
        """As the port. Task slots are of the usual size; a larger task takes several."""
        size_of = self._slots.size()
        refusal = next(filter(None, map(size_of.refusal, taskmanagers)), None)
        if refusal is None and any(taskmanagers):
            refusal = size_of.packing_refusal(taskmanagers, self._slots.executors())
        if refusal is not None:
            raise NoResourceAvailable(refusal)
        per_task = size_of.task_cpus
        return sum(-(-size_of.cpus_for(s) // per_task) * n for s, n in taskmanagers.items())

    def gone(self) -> str | None:
        return STOPPED if self._slots.is_stopped() else None

    def describe(self) -> str:
        return self._slots.describe()

    def has_free_slots(self) -> bool:
        return not any(map(self._is_queued, self._running() - self._registered))

    # ------------------------------------------------------------------ TaskManagers

    def open(self, master: MasterAddress, on_ended: OnEnded) -> None:
        """Broadcast the package, once for a job."""
        self._master = master
        self._on_ended = on_ended
        self._archive = self._context.broadcast(package_archive())

    def start(self, resource_id: ResourceId, size: SlotSize = UNSIZED) -> None:
        """Start a TaskManager. Never raises; errors are reported by `on_ended`."""
        if size:
            self._large_ones.begin(resource_id)
        try:
            thread = InheritableThread(target=self._host, args=(resource_id, size))
            thread.daemon = True
            thread.name = f"penstock-host-{resource_id}"
            thread.start()
        except Exception as error:  # A stopped context has no JVM.
            self._on_ended(resource_id, f"cannot submit to Spark ({self.describe()}): {error}")
            return
        self._threads[resource_id] = thread

    def registered(self, resource_id: ResourceId) -> None:
        self._registered.add(resource_id)
        self._large_ones.end(resource_id)

    def progress(self, resource_id: ResourceId) -> int | None:
        return None  # Its supervisor tells.

    def stop(self, resource_id: ResourceId) -> None:
        """Cancel the Spark task after a while. Only needed if messages do not reach it: a
        supervisor ends a healthy one.
        """
        threading.Thread(
            target=self._cancel_later, args=(resource_id,), name=f"penstock-stop-{resource_id}", daemon=True
        ).start()  # fmt: skip

    def close(self) -> None:
        """End all. Never raises. Tasks that wait for a core are cancelled; the others get time to
        end.

        Spark's knowledge of running tasks is slightly outdated, and a TaskManager whose Spark task
        is cancelled while it starts outlives this by seconds. So this first waits a moment, in
        which a starting TaskManager ends by itself.
        """
        self._is_closing = True
        deadline = time.monotonic() + _STOP_WAIT_S
        moment = time.monotonic() + _STARTING_S
        for resource_id in self._running() - self._registered:
            self._threads[resource_id].join(max(0.0, moment - time.monotonic()))
        for resource_id in self._running() - self._registered:
            self._cancel_queued(resource_id, deadline)
        for resource_id in self._running():
            self._threads[resource_id].join(max(0.0, deadline - time.monotonic()))
        for resource_id in self._running():
            self._cancel(resource_id)
        if self._archive is not None:
            with contextlib.suppress(Exception):  # The session may be stopped already.
                self._archive.destroy()

    def _running(self) -> set[ResourceId]:
        return {resource_id for resource_id, thread in self._threads.items() if thread.is_alive()}

    def _cancel_queued(self, resource_id: ResourceId, deadline: float) -> None:
        """Cancel repeatedly: a Spark job that is only about to be submitted is not found by the
        first cancel.

        A TaskManager that runs already cannot register anywhere, and ends by itself.
        """
        thread = self._threads[resource_id]
        while thread.is_alive() and self._is_queued(resource_id) and time.monotonic() < deadline:
            self._cancel(resource_id)
            thread.join(_CANCEL_AGAIN_S)

    def _host(self, resource_id: ResourceId, size: SlotSize) -> None:
        """Run one Spark job on this thread; returns when the TaskManager is over."""
        try:
            self._context.setJobGroup(
                self._group(resource_id),
                f"Penstock TaskManager {resource_id}",
                interruptOnCancel=True,
            )
            if not size:
                self._large_ones.wait(_LARGE_FIRST_S)
            body = _body(self._config(resource_id, size), self._archive)
            cloudpickle.register_pickle_by_value(executor_task)
            rdd = self._context.parallelize([0], 1).mapPartitions(body, preservesPartitioning=True)
            profile = self._slots.size().profile(size)
            causes = (rdd if profile is None else rdd.withResources(profile)).collect()
            cause = causes[0] if causes else "ended"
        except Exception as error:
            cause = f"Spark job ended: {cause_in(str(error))}"
        self._large_ones.end(resource_id)
        if not self._is_closing:
            self._on_ended(resource_id, cause)

    def _config(self, resource_id: ResourceId, size: SlotSize) -> dict[str, Any]:
        master = self._master
        assert master is not None
        invitation = master.invitations.new(secrets.token_bytes(TICKET_BYTES))
        return {
            "resource_id": resource_id,
            "master_host": master.host,
            "master_port": master.port,
            "invitation": invitation.to_plain(),
            "heartbeat_interval_s": master.heartbeat_interval_s,
            "silence_timeout_s": master.silence_timeout_s,
            # On the driver's own machine its interpreter exists; elsewhere Spark's choice counts.
            "python": sys.executable if self.is_local else None,
            # Plain data, as the child process gets it: the Spark worker that unpickles this does
            # not have our classes.
            "taskmanager": to_plain(
                TaskManagerOrder(
                    slots=1 if size else self.slots_per_taskmanager,
                    size=size,
                    bind_host=_LOOPBACK if self.is_local else None,
                    addresses=self._addresses,
                    task_settings=master.task_settings,
                    files=self._files,
                    process=self._process,
                    has_log=self._has_executor_log,
                    logs=master.logs,
                )
            ),
        }

    def _group(self, resource_id: ResourceId) -> str:
        assert self._master is not None
        return f"{resource_id}-{self._master.credentials.cluster_id[:8]}"

    def _is_queued(self, resource_id: ResourceId) -> bool:
        """Whether its Spark task still waits for a core."""
        try:
            tracker = self._context.statusTracker()
            for job_id in tracker.getJobIdsForGroup(self._group(resource_id)):
                job = tracker.getJobInfo(job_id)
                stages = [tracker.getStageInfo(stage) for stage in (job.stageIds if job else ())]
                if any(stage is not None and stage.numActiveTasks for stage in stages):
                    return False
        except Exception:  # The context was stopped, so nothing of it runs.
            return False
        return True

    def _cancel_later(self, resource_id: ResourceId) -> None:
        thread = self._threads.get(resource_id)
        if thread is not None:
            thread.join(_STOP_WAIT_S)
            if thread.is_alive():
                self._cancel(resource_id)

    def _cancel(self, resource_id: ResourceId) -> None:
        with contextlib.suppress(Exception):  # A stopped context has no jobs left.
            self._context.cancelJobGroup(self._group(resource_id))


def _body(config: dict[str, Any], archive: Any) -> Any:
    host = executor_task.host_taskmanager

    def run(_partition: Any) -> Any:
        return host(config, archive)

    run.__module__ = "__main__"  # Pickled by value, like everything in the Spark closure.
    return run


def control_endpoint_of(context: SparkContext, told: Addresses) -> Endpoint:
    """Return where the JobManager listens and is dialled, unless it is configured.

    It is dialled at the driver's address as Spark's executors know it, and listens where Spark's
    driver listens (for example all interfaces in a container); on loopback in local modes.
    """
    host, bind_host = _LOOPBACK, _LOOPBACK
    if not str(context.master).startswith("local"):
        # Spark writes IPv6 addresses in brackets, but sockets take them without.
        conf = context.getConf()
        host = (conf.get("spark.driver.host") or _LOOPBACK).strip("[]")
        bind_host = (conf.get("spark.driver.bindAddress") or host).strip("[]")
    return Endpoint(
        told.control_bind_host or bind_host,
        told.control_ports,
        told.control_host or host,
        told.control_port,
    )
