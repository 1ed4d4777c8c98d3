"""What a TaskManager is told at its start. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.network.wire.handshake import Credentials
from penstock.engine.hosting.task_settings import TaskSettings
from penstock.engine.model.deployment import SparkTask
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.slot_size import UNSIZED, SlotSize


@dataclass(frozen=True, slots=True)
class TaskManagerConfig:
    """Everything a TaskManager is told at its start; plain data. `log_path`: "": it writes no log of its own."""

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
