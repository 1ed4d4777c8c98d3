"""The configuration that a TaskManager process gets at its start: plain data by
`engine.model.plain`, in JSON on its stdin.

A `WorkerOrder` comes first, then a `ChildOrder` for each TaskManager that the process hosts. The
driver writes both; the supervisor adds what is known only where it runs.

A `WorkerOrder` and each `ChildOrder` also have what the tasks of a job need of its configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.hosting.network.wire.addresses import Addresses
from penstock.engine.hosting.reporting.logs.settings import LogSettings
from penstock.engine.hosting.reporting.metrics.taskmanager import MetricSettings
from penstock.engine.hosting.shipping.worker_files import WorkerFiles
from penstock.engine.model.checkpoints import TaskCheckpointing
from penstock.engine.model.deployment import SparkTask
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.slot_size import SlotSize
from penstock.engine.runtime.network.network_settings import BlockingSettings, NetworkSettings
from penstock.engine.runtime.state.settings import StateBackendSettings


@dataclass(frozen=True, slots=True)
class StepSettings:
    """How much a task does between two looks into its mailbox. `most_ms`: of user code. `column_rows`: rows of a call with columns;
    0: any number.
    """

    most_ms: float = 5.0
    column_rows: int = 0


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """When a cancelled task is interrupted again, and when a task without progress is logged or
    fails.

    `progress_timeout_ms`: 0: never.
    """

    cancellation_interval_ms: int = 500
    cancellation_timeout_ms: int = 3000
    progress_timeout_ms: int = 10_000
    fails_without_progress: bool = False


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """`checkpointing` None: the job neither takes nor reads checkpoints."""

    steps: StepSettings = field(default_factory=StepSettings)
    frame_bytes: int = 1 << 20
    watermark_interval_ms: int = 200
    latency_interval_ms: int = 0
    may_leave_splits_unaligned: bool = False
    watch: WatchSettings = field(default_factory=WatchSettings)
    checks_threads: bool = False
    shows_all_frames: bool = False
    job_parameters: tuple[tuple[str, str], ...] = ()
    network: NetworkSettings = field(default_factory=NetworkSettings)
    blocking: BlockingSettings = field(default_factory=BlockingSettings)
    checkpointing: TaskCheckpointing | None = None
    state_backend: StateBackendSettings = field(default_factory=StateBackendSettings)
    metrics: MetricSettings = field(default_factory=MetricSettings)


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """What is equal for all TaskManagers of a worker's process. From the driver.

    `cores`, `files_root` and `spark_task` are set in the plain data where the task runs, because
    `engine/hosting/spark/executor_task.py` has none of our classes; the supervisor adds the rest. `has_log`: the
    executor has a log that is not the user's console. `progress_fd`: the process writes to it what
    `engine/hosting/taskmanager/residents.py` has. `log_fd`: the executor's stderr. `switch_interval_s`: of `sys.setswitchinterval`; None:
    Python's own.
    """

    files: WorkerFiles
    heartbeat_interval_s: float
    switch_interval_s: float | None = None
    has_log: bool = False
    cores: int = 1
    files_root: str = ""
    logs: LogSettings = field(default_factory=LogSettings)
    spark_task: SparkTask | None = None
    progress_fd: int = -1
    log_fd: int = -1
    supervisor_pid: int = 0


@dataclass(frozen=True, slots=True)
class TaskManagerOrder:
    """One TaskManager. From the driver. `bind_host` None: the address from which the driver is reached."""

    slots: int
    size: SlotSize
    bind_host: str | None
    addresses: Addresses
    task_settings: TaskSettings


@dataclass(frozen=True, slots=True)
class ChildOrder:
    """One TaskManager, from the supervisor. `start_id`: its name in this process. `identity`: the job's certificate and key, as PEM.
    `log_path`: of the TaskManager's own log.
    """

    taskmanager: TaskManagerOrder
    start_id: str
    resource_id: ResourceId
    master_host: str
    master_port: int
    token: str
    cluster_id: str
    identity: str
    heartbeat_interval_s: float
    silence_timeout_s: float
    log_path: str = ""
