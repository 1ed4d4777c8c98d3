"""The configuration that a TaskManager process gets at its start: plain data by `model.plain`, in
JSON on its stdin.

The driver writes `TaskManagerOrder`. The supervisor adds what is known only where it runs, which
gives a `ChildOrder`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.hosting.logs.settings import LogSettings
from penstock.hosting.shipping.worker_files import WorkerFiles
from penstock.hosting.task_settings import TaskSettings
from penstock.hosting.wire.addresses import Addresses
from penstock.model.deployment import SparkTask
from penstock.model.ids import ResourceId
from penstock.model.slot_size import SlotSize


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """How the threads of a TaskManager share its core. `switch_interval_s`: sys.setswitchinterval;
    `keeps_core`: see `core`.
    """

    switch_interval_s: float = 0.001
    keeps_core: bool = True


@dataclass(frozen=True, slots=True)
class TaskManagerOrder:
    """From the driver.

    `bind_host` None: the address from which the driver is reached. `cores`, `files_root` and `spark_task` are
    set in the plain data where the task runs, because `hosting/spark/executor_task.py` has none of our
    classes. `has_log`: the executor has a log that is not the user's console.
    """

    slots: int
    size: SlotSize
    bind_host: str | None
    addresses: Addresses
    task_settings: TaskSettings
    files: WorkerFiles
    process: ProcessSettings
    has_log: bool = False
    cores: int = 1
    files_root: str = ""
    logs: LogSettings = field(default_factory=LogSettings)
    spark_task: SparkTask | None = None


@dataclass(frozen=True, slots=True)
class ChildOrder:
    """From the supervisor. `identity`: of TLS, as PEM; None without it. `progress_fd`: the process writes signs of progress to it. `log_fd`: the
    executor's stderr. `log_path`: of the TaskManager's own log; "": it has none.
    """

    taskmanager: TaskManagerOrder
    resource_id: ResourceId
    master_host: str
    master_port: int
    secret: bytes
    token: str
    cluster_id: str
    identity: str | None
    heartbeat_interval_s: float
    silence_timeout_s: float
    progress_fd: int
    log_fd: int
    supervisor_pid: int
    log_path: str = ""
