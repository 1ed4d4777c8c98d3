"""What a TaskManager process is told at its start: plain data by `model.plain`, in JSON on its stdin.

The driver writes `TaskManagerOrder`. Its supervisor, which knows where it runs, puts that into a `ChildOrder`.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.hosting.shipping.worker_files import WorkerFiles
from penstock.hosting.task_settings import TaskSettings
from penstock.hosting.wire.addresses import Addresses
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
    """From the driver. `bind_host` None: what reaches the driver. `cores` and `files_root` are filled in where it runs, in the
    plain data: `hosting/spark/executor_task.py` has no classes of ours. `has_log`: its executor has a log that is not the user's console.
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


@dataclass(frozen=True, slots=True)
class ChildOrder:
    """From the supervisor to the process. `progress_fd`: where it says that it lives. `log_fd`: the executor's stderr."""

    taskmanager: TaskManagerOrder
    resource_id: ResourceId
    master_host: str
    master_port: int
    secret: bytes
    token: str
    cluster_id: str
    heartbeat_interval_s: float
    silence_timeout_s: float
    progress_fd: int
    log_fd: int
    supervisor_pid: int
