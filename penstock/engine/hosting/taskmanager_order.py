"""The configuration that a TaskManager process gets at its start: plain data by `engine.model.plain`, in
JSON on its stdin.

A `WorkerOrder` comes first, then a `ChildOrder` for each TaskManager that the process hosts. The driver writes
both; the supervisor adds what is known only where it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.hosting.network.wire.addresses import Addresses
from penstock.engine.hosting.reporting.logs.settings import LogSettings
from penstock.engine.hosting.shipping.worker_files import WorkerFiles
from penstock.engine.hosting.task_settings import TaskSettings
from penstock.engine.model.deployment import SparkTask
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.slot_size import SlotSize


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
