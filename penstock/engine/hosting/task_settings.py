"""What the tasks of a job need of its configuration, told to each TaskManager. Knows no task."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.hosting.reporting.metrics.taskmanager import MetricSettings
from penstock.engine.model.checkpoints import TaskCheckpointing
from penstock.engine.runtime.network.network_settings import NetworkSettings
from penstock.engine.runtime.network.partition.settings import BlockingSettings
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
    """When a cancelled task is interrupted again, and when one without progress is told of or fails.

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
    tells_all_frames: bool = False
    job_parameters: tuple[tuple[str, str], ...] = ()
    network: NetworkSettings = field(default_factory=NetworkSettings)
    blocking: BlockingSettings = field(default_factory=BlockingSettings)
    checkpointing: TaskCheckpointing | None = None
    state_backend: StateBackendSettings = field(default_factory=StateBackendSettings)
    metrics: MetricSettings = field(default_factory=MetricSettings)
