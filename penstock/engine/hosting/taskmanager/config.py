"""The configuration of a TaskManager at its start. Plain data.

Also finds the Spark executor that a process belongs to. Spark does not pass that to its Python
workers, but an executor's command line has it. Linux only. Source: Spark
CoarseGrainedExecutorBackend (`--executor-id`) and SparkSubmit, whose process is the executor of
local masters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.network.wire.handshake import Credentials
from penstock.engine.hosting.taskmanager_order import TaskSettings
from penstock.engine.model.deployment import SparkTask
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.slot_size import UNSIZED, SlotSize

_OPTION: Final = "--executor-id"
_DRIVER: Final = "org.apache.spark.deploy.SparkSubmit"
_MOST_PARENTS: Final = 6
"""The worker, Spark's daemon of workers, the executor, and shells that somebody may have put between."""


def with_executor(task: SparkTask | None, pid: int, proc: Path = Path("/proc")) -> SparkTask | None:
    """Return the task with the executor of a process: its id, as Spark's own pages have it, if it can be found."""
    return None if task is None else replace(task, executor=_executor_of(pid, proc))


def _executor_of(pid: int, proc: Path) -> str | None:
    for _ in range(_MOST_PARENTS):
        try:
            line = (proc / str(pid) / "cmdline").read_bytes()
            status = (proc / str(pid) / "stat").read_bytes()
        except OSError:  # No Linux, or a process of another user.
            return None
        words = line.decode(errors="replace").split("\0")
        if _OPTION in words[:-1]:
            return words[words.index(_OPTION) + 1]
        if _DRIVER in words:
            return "driver"
        pid = int(status.rpartition(b")")[2].split()[1])
        if pid <= 0:
            return None
    return None


@dataclass(frozen=True, slots=True)
class TaskManagerConfig:
    """The configuration of a TaskManager at its start; plain data. `log_path`: "": the TaskManager
    writes no log.
    """

    resource_id: ResourceId
    master_host: str
    master_port: int
    credentials: Credentials = field(repr=False)
    data: Endpoint
    slots: int
    heartbeat_interval_s: float
    task_settings: TaskSettings
    slot_timeout_s: float = 10.0
    silence_timeout_s: float = 50.0
    supervisor_pid: int = 0
    size: SlotSize = UNSIZED
    cores: int = 1
    log_path: str = ""
    spark_task: SparkTask | None = None
