"""The part of the configuration that a JobMaster needs, in one frozen object.

Knows no layers of settings. Source: Flink JobMasterConfiguration, SlotPool and scheduler factories
(docs/spec/slots.md#which-strategy, docs/spec/failover.md#back-off).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.engine.machines.checkpoints.settings import CheckpointSettings, interval_ms_of
from penstock.engine.machines.failover import (
    InfrastructureOnlyRestart,
    RestartBackoff,
    restart_backoff_of,
)
from penstock.engine.machines.rescaling.adaptive_settings import (
    AdaptiveSettings,
    adaptive_settings_of,
)
from penstock.engine.machines.slots.slot_matching import Matching, SlotSelection
from penstock.engine.model.config import Settings
from penstock.engine.model.options.checkpoints import RecoveryOptions
from penstock.engine.model.options.cluster import LoadBalanceMode, TaskManagerOptions
from penstock.engine.model.options.scheduling import (
    ConsumeConstraint,
    FailoverMode,
    HistoryOptions,
    Scheduler,
    SchedulingOptions,
)


@dataclass(frozen=True, slots=True)
class JobSettings:
    """`make_backoff`: makes a restart strategy; each JobMaster needs its own, because a strategy has a memory.

    `checkpoints` None: the host cannot take any.
    """

    slot_request_timeout_ms: int = 300_000
    slot_idle_timeout_ms: int = 50_000
    attempts_history_size: int = 16
    story_size: int = 1000
    exception_history_size: int = 16
    is_vertexwise: bool = False
    consume_constraint: ConsumeConstraint = ConsumeConstraint.UNFINISHED_PRODUCERS
    failover: FailoverMode = FailoverMode.REGION
    load_balance: LoadBalanceMode = LoadBalanceMode.NONE
    is_local_recovery: bool = False
    is_released_during_job: bool = True
    make_backoff: Callable[[], RestartBackoff] = field(default=InfrastructureOnlyRestart)
    checkpoints: CheckpointSettings | None = None
    elastic: AdaptiveSettings = field(default_factory=AdaptiveSettings)

    @property
    def selection(self) -> SlotSelection:
        return SlotSelection(
            is_spreading=self.load_balance is LoadBalanceMode.SLOTS,
            is_previous_first=self.is_local_recovery,
        )

    @property
    def matching(self) -> Matching:
        name = "tasks" if self.load_balance is LoadBalanceMode.TASKS else "simple"
        return Matching(f"preferred+{name}" if self.is_local_recovery else name)


def job_settings_of(settings: Settings, draw: Callable[[], float] | None = None) -> JobSettings:
    """Read the options. `draw`: numbers in [-1, 1] for the jitter of the exponential back-off.

    Raises: ConfigurationError: an unknown mode or strategy, or a value out of its range.
    """
    restart_backoff_of(settings, draw)  # A wrong value is refused now, not at the first failure.
    is_local_recovery = settings.get(RecoveryOptions.FROM_LOCAL)
    return JobSettings(
        slot_request_timeout_ms=settings.get(SchedulingOptions.SLOT_REQUEST_TIMEOUT),
        slot_idle_timeout_ms=settings.get(SchedulingOptions.SLOT_IDLE_TIMEOUT),
        attempts_history_size=settings.get(HistoryOptions.ATTEMPTS),
        exception_history_size=settings.get(HistoryOptions.EXCEPTIONS),
        story_size=settings.get(HistoryOptions.STORY),
        is_vertexwise=settings.get(SchedulingOptions.SCHEDULER) is Scheduler.ADAPTIVE_BATCH,
        consume_constraint=settings.get(SchedulingOptions.HYBRID_CONSUME_CONSTRAINT)
        or ConsumeConstraint.UNFINISHED_PRODUCERS,
        failover=settings.get(SchedulingOptions.FAILOVER_STRATEGY),
        load_balance=load_balance_mode_of(settings),
        is_local_recovery=is_local_recovery or settings.get(RecoveryOptions.OLD_FROM_LOCAL),
        is_released_during_job=settings.get(SchedulingOptions.RELEASE_RESULTS_DURING_JOB),
        make_backoff=lambda: restart_backoff_of(settings, draw),
        elastic=adaptive_settings_of(settings, interval_ms_of(settings)),
    )


def load_balance_mode_of(settings: Settings) -> LoadBalanceMode:
    """Return taskmanager.load-balance.mode, or SLOTS if its old name is set."""
    option = TaskManagerOptions.LOAD_BALANCE_MODE
    if not settings.is_set(option) and settings.get(TaskManagerOptions.EVENLY_SPREAD_OUT_SLOTS):
        return LoadBalanceMode.SLOTS
    return settings.get(option)
