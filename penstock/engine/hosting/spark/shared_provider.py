"""The provider of one job whose TaskManagers take slots of workers that jobs of the session share.

Whether a job shares workers with the other jobs of its session, or has processes of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import SparkSession

from penstock.engine.hosting.network.wire.addresses import (
    Addresses,
    Endpoint,
    addresses_of,
)
from penstock.engine.hosting.provider import MasterAddress, OnEnded, TaskManagerProvider
from penstock.engine.hosting.reporting.logs.settings import LogSettings, log_settings_of
from penstock.engine.hosting.spark.background_jobs import STOP_WAIT_S
from penstock.engine.hosting.spark.provider import SparkPlace, SparkProvider, control_endpoint_of
from penstock.engine.hosting.spark.session_workers import idle_workers, make_room, workers_of
from penstock.engine.hosting.spark.shared_workers import SharedWorkers, WantedStart, WorkerSettings
from penstock.engine.hosting.taskmanager_order import TaskSettings, WorkerOrder
from penstock.engine.machines.resources.resource_manager import resource_settings_of
from penstock.engine.model.config import Settings
from penstock.engine.model.ids import JobId, ResourceId
from penstock.engine.model.messages.workers import StartId, WorkerKind
from penstock.engine.model.options.cluster import (
    HeartbeatOptions,
    ResourceOptions,
    TaskManagerOptions,
)
from penstock.engine.model.options.option import ports_in
from penstock.engine.model.plain import to_plain
from penstock.engine.model.program import ProgramSettings
from penstock.engine.model.slot_size import UNSIZED, SlotSize

_ID_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class WorkerSharing:
    """What a job wants of the workers. `needed`: slots of the usual size that it cannot run without. `sized`: TaskManagers of a
    given size that it cannot run without. `idle_ms`: how long workers stay when it is over. `takes_whole`: its TaskManagers have
    the usual number of slots in any case, because it spreads its subtasks over them.
    """

    needed: int
    sized: int
    takes_whole: bool
    idle_ms: int
    heartbeat_interval_s: float
    silence_timeout_s: float
    logs: LogSettings


class SharingProvider(SparkPlace):
    """As the port. Whether two jobs share a worker is decided by `_settings`, which names everything that must be equal."""

    def __init__(
        self,
        spark: SparkSession,
        slots: int,
        switch_interval_s: float | None,
        addresses: Addresses,
        sharing: WorkerSharing,
    ) -> None:
        super().__init__(spark, slots, switch_interval_s, addresses)
        self.needed = sharing.needed
        self.sharing = sharing
        self._modules = b""
        self._held: dict[ResourceId, int] = {}
        self._started: set[ResourceId] = set()

    @property
    def _workers(self) -> SharedWorkers:
        """The pool of the session now: it is another one when the session was stopped."""
        return workers_of(self.context, self.control_endpoint)

    def bring_files(self, program: ProgramSettings, modules: bytes = b"") -> None:
        super().bring_files(program, modules)
        self._modules = modules

    def free_slots(self, wanted: int) -> int | None:
        """The task slots that are free, or that idle workers hold: these serve this job, or make room for it, at the latest when its
        Spark tasks wait.
        """
        if self.spark_slots.is_stopped():
            return 0
        kind = self._settings(UNSIZED).kind
        fitting = self._workers.fits(kind, self._pieces())
        idle = idle_workers(self.context)
        free = self.spark_slots.free(max(0, wanted - max(fitting, len(idle))))
        if free is None:
            return None
        missing = wanted - free - fitting
        if missing > 0:
            others = len(idle) - idle.count(kind)
            make_room(self.context, missing, kind)
            surplus = min(missing - others, idle.count(kind) - fitting)
            if surplus > 0:  # Of its own kind, but the job has no use for them.
                self._workers.make_room(surplus)
            free = self.spark_slots.free(wanted - fitting) or 0
            idle = idle_workers(self.context)
        return free + max(fitting, len(idle))

    def _pieces(self) -> list[int]:
        """The slots of each TaskManager that the job will ask for first."""
        whole, rest = divmod(self.needed, self.slots_per_taskmanager)
        if rest and self.sharing.takes_whole:
            whole, rest = whole + 1, 0
        return [self.slots_per_taskmanager] * whole + ([rest] if rest else [])

    # ------------------------------------------------------------------ TaskManagers

    def open(self, master: MasterAddress, on_ended: OnEnded) -> None:
        self._executors.start()
        self.master_address = master
        self.on_ended = on_ended

    def start(self, resource_id: ResourceId, size: SlotSize = UNSIZED) -> None:
        """Start a TaskManager: of as many slots as the job still needs, so that the others are left to other jobs; of the usual
        number, if it has all that it needs. Never raises.
        """
        master = self.master_address
        assert master is not None
        missing = self.needed - sum(self._held.values())
        most = self.slots_per_taskmanager
        usual = most if missing <= 0 or self.sharing.takes_whole else min(most, missing)
        slots = 1 if size else usual
        if not size:
            self._held[resource_id] = slots
        start_id = self._start_id(resource_id)
        try:
            self._started.add(resource_id)
            self._workers.want(
                WantedStart(
                    start_id,
                    JobId(master.credentials.cluster_id),
                    self._settings(size),
                    slots,
                    1 if size else self.needed,
                    self.sharing.idle_ms,
                    self._taskmanager(resource_id, start_id, slots, size),
                    master.credentials,
                    lambda cause: self._ended(resource_id, cause),
                    0 if size else self.sharing.sized,
                )
            )
        except Exception as error:  # A stopped context has no JVM; or there is no port.
            self._ended(resource_id, f"cannot submit to Spark ({self.describe()}): {error}")

    def registered(self, resource_id: ResourceId) -> None:
        self._registered.add(resource_id)
        self._workers.registered(self._start_id(resource_id))

    def stop(self, resource_id: ResourceId) -> None:
        self._held.pop(resource_id, None)
        if resource_id in self._started:
            self._workers.drop(self._start_id(resource_id), "its job does not need it any more")

    def leave(self, resource_ids: tuple[ResourceId, ...]) -> None:
        for resource_id in resource_ids:
            self._workers.leave(self._start_id(resource_id), "its executor is decommissioned")

    def has_free_slots(self) -> bool:
        waiting = self._started - self._registered
        return not self._workers.lack_places(set(map(self._start_id, waiting)))

    def close(self) -> None:
        """Give all slots back, and wait a bounded time until nothing of the job is left in the workers. Never raises."""
        self._executors.stop()
        if self.master_address is None or not self._started:
            return
        workers = self._workers
        start_ids = set(map(self._start_id, self._started))
        for start_id in start_ids:
            workers.drop(start_id, "its job is over")
        workers.await_gone(start_ids, STOP_WAIT_S)

    def _ended(self, resource_id: ResourceId, cause: str) -> None:
        self._held.pop(resource_id, None)
        self.on_ended(resource_id, cause)

    def _start_id(self, resource_id: ResourceId) -> StartId:
        """The fencing token makes it differ from that of an earlier run of the same job."""
        assert self.master_address is not None
        credentials = self.master_address.credentials
        job, run = credentials.cluster_id[:_ID_DIGITS], credentials.token[:_ID_DIGITS]
        return StartId(f"{job}-{run}-{resource_id}")

    def task_settings_for(self, usual: TaskSettings, slots: int, size: SlotSize) -> TaskSettings:
        """The memory for exchanges is that of the whole worker: a TaskManager with some of its slots has its share."""
        if size or slots == self.slots_per_taskmanager:
            return usual
        network = usual.network
        share = network.memory_bytes * slots // self.slots_per_taskmanager
        memory_bytes = max(network.segment_bytes, share)
        return replace(usual, network=replace(network, memory_bytes=memory_bytes))

    # ------------------------------------------------------------------ the kind of workers

    def _settings(self, size: SlotSize) -> WorkerSettings:
        sharing = self.sharing
        order = to_plain(
            WorkerOrder(
                files=self.worker_files,
                switch_interval_s=self._switch_interval_s,
                heartbeat_interval_s=sharing.heartbeat_interval_s,
                has_log=self._has_executor_log,
                logs=sharing.logs,
            )
        )
        same = [order, sharing.silence_timeout_s, to_plain(self._addresses), self._python]
        digest = hashlib.sha256(json.dumps(same, sort_keys=True).encode())
        digest.update(self._modules)
        slots = 1 if size else self.slots_per_taskmanager
        kind = WorkerKind(digest.hexdigest(), slots, size)
        return WorkerSettings(kind, order, sharing.heartbeat_interval_s, sharing.silence_timeout_s)


def provider_for(
    settings: Settings,
    spark: SparkSession,
    switch_interval_s: float | None,
    needed: Mapping[SlotSize, int],
) -> TaskManagerProvider:
    """Return the provider of one job. `needed`: slots of each size.

    A job shares workers unless the option is off, idle workers are not kept, or there is only one
    port for all that dial the driver. Raises: ConfigurationError.
    """
    slots, addresses = settings.get(TaskManagerOptions.SLOTS), addresses_of(settings)
    idle_ms = settings.get(ResourceOptions.TASKMANAGER_TIMEOUT)
    is_alone = settings.get(ResourceOptions.JOB_ISOLATION) or not idle_ms
    if is_alone or not _has_ports(control_endpoint_of(spark.sparkContext, addresses)):
        return SparkProvider(spark, slots, switch_interval_s, addresses)
    usual = needed.get(UNSIZED, 0)
    sharing = WorkerSharing(
        needed=usual,
        sized=sum(needed.values()) - usual,
        takes_whole=resource_settings_of(settings).load_balance != "NONE",
        idle_ms=idle_ms,
        heartbeat_interval_s=settings.get(HeartbeatOptions.INTERVAL) / 1000,
        silence_timeout_s=settings.get(TaskManagerOptions.SILENCE_TIMEOUT) / 1000,
        logs=log_settings_of(settings),
    )
    return SharingProvider(spark, slots, switch_interval_s, addresses, sharing)


def _has_ports(endpoint: Endpoint) -> bool:
    """Whether the pool of workers can listen together with jobs."""
    ports = ports_in(endpoint.ports)
    return endpoint.port is None and (len(ports) > 1 or ports == [0])
