"""MiniCluster: TaskManagers as threads of this process, with the same code and sockets as on Spark,
but without Spark.

For tests and the debugger (`breakpoint()` in a user function works); not for production data.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.host import LazyFrame, Needed
from penstock.engine.hosting.provider import (
    HostChanges,
    HostLoss,
    MasterAddress,
    OnEnded,
    TaskManagerProvider,
)
from penstock.engine.hosting.shipping.in_process import refuse_files, use_python_of
from penstock.engine.hosting.spark.batch.plan import Plan
from penstock.engine.hosting.spark.batch.runner import StageRunner, ThreadRunner
from penstock.engine.hosting.taskmanager.config import TaskManagerConfig
from penstock.engine.hosting.taskmanager.taskmanager import TaskManager
from penstock.engine.model.config import Settings
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.options.cluster import TaskManagerOptions
from penstock.engine.model.program import ProgramSettings
from penstock.engine.model.slot_size import UNSIZED, SlotSize

_STOP_WAIT_S: Final = 5.0
_LOOPBACK: Final = "127.0.0.1"


class ThreadProvider:
    """Starts TaskManagers as threads."""

    def __init__(self, slots: int, max_taskmanagers: int | None = None) -> None:
        self.slots_per_taskmanager = slots
        self._max = max_taskmanagers
        self._master: MasterAddress | None = None
        self._on_ended: OnEnded = lambda _resource_id, _cause: None
        self._threads: dict[ResourceId, threading.Thread] = {}
        self.managers: dict[ResourceId, TaskManager] = {}

    @property
    def shares_files(self) -> bool:
        return True

    @property
    def control_endpoint(self) -> Endpoint:
        return Endpoint(_LOOPBACK)

    def registered(self, resource_id: ResourceId) -> None:
        """Does nothing: `stop` is enough for threads."""

    def max_taskmanagers(self, wanted: int | None = None) -> int | None:
        return self._max

    def task_slots_for(self, taskmanagers: Mapping[SlotSize, int]) -> int:
        return sum(taskmanagers.values())  # Threads have no size to choose from.

    def bring_files(self, program: ProgramSettings, modules: bytes = b"") -> None:
        refuse_files(program)

    def gone(self) -> str | None:
        return None

    def changes(self) -> HostChanges:
        return HostChanges()

    def why_gone(self, executor: str) -> HostLoss | None:
        return None  # There are no executors.

    def leave(self, resource_ids: tuple[ResourceId, ...]) -> None:
        """Does nothing: threads never leave."""

    def has_free_slots(self) -> bool:
        return True

    def describe(self) -> str:
        return "a MiniCluster in this process"

    def open(self, master: MasterAddress, on_ended: OnEnded) -> None:
        self._master = master
        self._on_ended = on_ended

    def start(self, resource_id: ResourceId, size: SlotSize = UNSIZED) -> None:
        master = self._master
        assert master is not None
        config = TaskManagerConfig(
            resource_id=resource_id,
            master_host=master.host,
            master_port=master.port,
            credentials=master.credentials,
            data=self.data_endpoint(resource_id),
            slots=1 if size else self.slots_per_taskmanager,
            size=size,
            heartbeat_interval_s=master.heartbeat_interval_s,
            task_settings=replace(master.task_settings, checks_threads=True),
            silence_timeout_s=master.silence_timeout_s,
        )
        manager = TaskManager(config)
        self.managers[resource_id] = manager

        def run() -> None:
            self._on_ended(resource_id, manager.run())

        thread = threading.Thread(target=run, name=f"penstock-{resource_id}", daemon=True)
        self._threads[resource_id] = thread
        thread.start()

    def data_endpoint(self, resource_id: ResourceId) -> Endpoint:
        """Return the address of a TaskManager. Those of one host are on one node."""
        return Endpoint(_LOOPBACK)

    def progress(self, resource_id: ResourceId) -> int | None:
        manager, thread = self.managers.get(resource_id), self._threads.get(resource_id)
        if manager is None or thread is None or not thread.is_alive():
            return None
        return manager.progress()

    def stop(self, resource_id: ResourceId) -> None:
        manager = self.managers.pop(resource_id, None)
        if manager is not None:
            manager.abandon()

    def close(self) -> None:
        for resource_id in list(self.managers):
            self.stop(resource_id)
        for thread in self._threads.values():
            thread.join(_STOP_WAIT_S)


class MiniCluster:
    """Runs jobs in this process, for tests: `env.use_executor(MiniCluster(...).executor())`."""

    ships_modules = False
    serves_rest = False

    def __init__(
        self,
        slots_per_taskmanager: int = 1,
        taskmanagers: int | None = None,
        parallelism: int = 2,
        observer: JobObserver | None = None,
    ) -> None:
        self._slots = slots_per_taskmanager
        self._max = taskmanagers
        self._parallelism = parallelism
        self._observer = observer
        self.last_provider: ThreadProvider | None = None

    def executor(self) -> ClusterExecutor:
        """Return the executor for `env.use_executor`."""
        return ClusterExecutor(self, self._observer)

    def command_line(self) -> Mapping[str, str]:
        return {}

    def spark_configuration(self, settings: Settings) -> dict[str, str]:
        return {}

    def default_parallelism(self, settings: Settings) -> int:
        """Return the parallelism of operators that set none: the one of this cluster."""
        return self._parallelism

    def cores(self, settings: Settings) -> int:
        """Return how many subtasks of a BATCH job run at once: the parallelism of this cluster."""
        return self._parallelism

    def provider(self, settings: Settings, needed: Needed) -> TaskManagerProvider:
        use_python_of(settings)
        slots = self._slots
        if settings.is_set(TaskManagerOptions.SLOTS):
            slots = settings.get(TaskManagerOptions.SLOTS)
        self.last_provider = ThreadProvider(slots, self._max)
        return self.last_provider

    def check_workers(self, *, reads_frames: bool) -> None:
        """Check those of the Spark session of this process, if one computes the job's DataFrames."""
        if reads_frames:
            from penstock.engine.hosting.program.spark_host import SparkHost

            SparkHost().check_workers(reads_frames=True)

    def stage_runner(self, settings: Settings, job: SubmittedJob, plan: Plan) -> StageRunner:
        use_python_of(settings)
        refuse_files(job.program)
        return ThreadRunner(plan)

    def lazy_frame(
        self, settings: Settings, job: SubmittedJob, plan: Plan, frame: LazyFrame
    ) -> None:
        """BATCH jobs run in this process."""

    def frame_of_files(self, settings: Settings, folder: str, type_info: Any) -> Any:
        """Return a DataFrame of the files, made by a Spark session of this process."""
        from penstock.engine.hosting.program.spark_host import SparkHost

        return SparkHost().frame_of_files(settings, folder, type_info)
