"""What the tasks of a job need of its configuration, told to each TaskManager. Knows no task."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.model.checkpoints import TaskCheckpointing
from penstock.runtime.network.network_settings import NetworkSettings
from penstock.runtime.network.partition.settings import BlockingSettings
from penstock.runtime.state.settings import StateBackendSettings
from penstock.runtime.task.latency import Granularity


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """`checkpointing` None: the job neither takes nor reads checkpoints."""

    max_step_ms: float = 5.0
    frame_bytes: int = 1 << 20
    watermark_interval_ms: int = 200
    latency_interval_ms: int = 0
    latency_granularity: Granularity = Granularity.OPERATOR
    may_leave_splits_unaligned: bool = False
    cancellation_interval_ms: int = 500
    slow_call_ms: int = 10_000
    checks_threads: bool = False
    tells_all_frames: bool = False
    job_parameters: tuple[tuple[str, str], ...] = ()
    network: NetworkSettings = field(default_factory=NetworkSettings)
    blocking: BlockingSettings = field(default_factory=BlockingSettings)
    checkpointing: TaskCheckpointing | None = None
    state_backend: StateBackendSettings = field(default_factory=StateBackendSettings)
