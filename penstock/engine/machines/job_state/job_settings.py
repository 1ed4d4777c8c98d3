"""The part of the configuration that a JobMaster needs, in one frozen object.

Knows no layers of settings. Source: Flink JobMasterConfiguration, SlotPool and scheduler factories
(docs/spec/slots.md#which-strategy, docs/spec/failover.md#back-off).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

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
from penstock.engine.machines.scheduling.scheduling import ConsumeConstraint
from penstock.engine.machines.slots.slot_matching import Matching, SlotSelection
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.checkpoints import RecoveryOptions
from penstock.engine.model.options.cluster import TaskManagerOptions
from penstock.engine.model.options.scheduling import HistoryOptions, SchedulingOptions

_SCHEDULERS = ("Default", "Adaptive", "AdaptiveBatch")


class LoadBalanceMode(StrEnum):
    """How tasks are spread over TaskManagers."""

    NONE = "NONE"
    SLOTS = "SLOTS"
    TASKS = "TASKS"
    MIN_RESOURCES = "MIN_RESOURCES"


class FailoverMode(StrEnum):
    """What restarts after a failure: the regions concerned, or the whole job."""

    REGION = "region"
    FULL = "full"


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
        is_vertexwise=_is_vertexwise(settings),
        consume_constraint=_consume_constraint(settings),
        failover=_failover_mode(settings),
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
    name = settings.get(option).upper()
    if name not in LoadBalanceMode.__members__:
        raise ConfigurationError(
            f"option '{option.key}' is '{name}', but it takes {', '.join(LoadBalanceMode)}. "
            "Change the setting."
        )
    return LoadBalanceMode(name)


def _failover_mode(settings: Settings) -> FailoverMode:
    option = SchedulingOptions.FAILOVER_STRATEGY
    name = settings.get(option).lower()
    if name not in set(FailoverMode):
        raise ConfigurationError(
            f"option '{option.key}' is '{name}', but it takes region or full. Change the setting."
        )
    return FailoverMode(name)


def _is_vertexwise(settings: Settings) -> bool:
    """Whether subtasks of BATCH jobs are scheduled one by one (AdaptiveBatch). Other jobs are not affected."""
    option = SchedulingOptions.SCHEDULER
    name = settings.get(option)
    if name not in _SCHEDULERS:
        raise ConfigurationError(
            f"option '{option.key}' is '{name}', but it takes {', '.join(_SCHEDULERS)}. Change the setting."
        )
    return name == "AdaptiveBatch"


def _consume_constraint(settings: Settings) -> ConsumeConstraint:
    option = SchedulingOptions.HYBRID_CONSUME_CONSTRAINT
    name = settings.get(option) or ConsumeConstraint.UNFINISHED_PRODUCERS
    if name not in set(ConsumeConstraint):
        raise ConfigurationError(
            f"option '{option.key}' is '{name}', but it takes {', '.join(ConsumeConstraint)}. Change the "
            "setting."
        )
    return ConsumeConstraint(name)
