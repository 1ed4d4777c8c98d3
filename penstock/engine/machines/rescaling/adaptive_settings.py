"""The part of the configuration that elastic jobs need, in one frozen object.

Knows no layers of settings. Source: Flink AdaptiveScheduler.Settings (docs/spec/elasticity.md#options); differs: where
nothing is set, the profile `penstock` has shorter times, because a rescale takes about a second here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.engine.machines.rescaling.transition_manager import TransitionTimings
from penstock.engine.model.config import Settings
from penstock.engine.model.elastic import PENSTOCK_DEFAULTS
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.autoscaler import (
    AutoscalerOptions,
    ElasticOptions,
    ElasticProfile,
)
from penstock.engine.model.options.option import Option
from penstock.engine.model.options.scheduling import Scheduler, SchedulingOptions

_FOR_EVER: Final = -1
_SUBMISSION: Final = TransitionTimings(stabilization_ms=10_000)
_EXECUTING: Final = TransitionTimings(cooldown_ms=30_000, stabilization_ms=60_000)


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """`is_adaptive`: jobmanager.scheduler is Adaptive, the mode is reactive, or there is an autoscaler; for streaming jobs only.

    `wait_timeout_ms` None: a job waits for its slots for ever. `submission`, `executing`: of the transition manager
    while the job waits for slots, and while it runs.
    """

    is_adaptive: bool = False
    is_reactive: bool = False
    wait_timeout_ms: int | None = 300_000
    submission: TransitionTimings = _SUBMISSION
    executing: TransitionTimings = _EXECUTING
    max_checkpoint_failures: int = 2
    prefers_few_taskmanagers: bool = True
    history_size: int = 0


def adaptive_settings_of(
    settings: Settings, checkpoint_interval_ms: int | None = None
) -> AdaptiveSettings:
    """Read the options. `checkpoint_interval_ms` None: the job takes no checkpoints of its own.

    Raises: ConfigurationError: an unknown mode or profile, a value out of its range, or two that exclude each other.
    """
    is_reactive = settings.is_set(ElasticOptions.MODE)
    has_autoscaler = settings.get(AutoscalerOptions.ENABLED)
    if is_reactive and has_autoscaler:
        raise ConfigurationError(
            f"'{AutoscalerOptions.ENABLED.key}' is true and the job is reactive: then it takes all "
            "slots that there are, so the autoscaler could ask for nothing. Unset one of them."
        )
    profile = settings.get(ElasticOptions.PROFILE)
    unset: dict[Option[Any], int] = {}
    if profile is ElasticProfile.PENSTOCK:
        unset |= {one: one.parse(PENSTOCK_DEFAULTS[one.key]) for one in _QUICK}
    if is_reactive:
        unset |= {
            ElasticOptions.WAIT_TIMEOUT: _FOR_EVER,
            ElasticOptions.SUBMISSION_STABILIZATION: 0,
        }
    failures = settings.get(ElasticOptions.MAX_CHECKPOINT_FAILURES)
    wait_timeout_ms = _value(settings, ElasticOptions.WAIT_TIMEOUT, unset)
    return AdaptiveSettings(
        is_adaptive=is_reactive
        or has_autoscaler
        or settings.get(SchedulingOptions.SCHEDULER) is Scheduler.ADAPTIVE,
        is_reactive=is_reactive,
        wait_timeout_ms=None if wait_timeout_ms < 0 else wait_timeout_ms,
        submission=TransitionTimings(
            stabilization_ms=_value(settings, ElasticOptions.SUBMISSION_STABILIZATION, unset)
        ),
        executing=TransitionTimings(
            _value(settings, ElasticOptions.COOLDOWN, unset),
            _value(settings, ElasticOptions.EXECUTING_STABILIZATION, unset),
            _trigger_delay_ms(settings, unset, failures, checkpoint_interval_ms),
            waits_only_for_coming=profile is ElasticProfile.PENSTOCK
            and not settings.is_set(ElasticOptions.EXECUTING_STABILIZATION),
        ),
        max_checkpoint_failures=failures,
        prefers_few_taskmanagers=settings.get(ElasticOptions.PREFERS_FEW_TASKMANAGERS),
        history_size=_value(settings, ElasticOptions.HISTORY_SIZE, unset),
    )


_QUICK: Final[tuple[Option[Any], ...]] = (
    ElasticOptions.COOLDOWN,
    ElasticOptions.SUBMISSION_STABILIZATION,
    ElasticOptions.EXECUTING_STABILIZATION,
    ElasticOptions.MAX_TRIGGER_DELAY,
    ElasticOptions.HISTORY_SIZE,
)
"""The profile `penstock` has shorter times here than Flink, and keeps more."""


def _value(settings: Settings, option: Option[int], unset: Mapping[Option[Any], int]) -> int:
    """Return what the option or its older key is set to, or else what stands for an option that is not set."""
    value = settings.get(option)
    return value if settings.is_set(option) else unset.get(option, value)


def _trigger_delay_ms(
    settings: Settings,
    unset: Mapping[Option[Any], int],
    failures: int,
    checkpoint_interval_ms: int | None,
) -> int:
    option = ElasticOptions.MAX_TRIGGER_DELAY
    given = settings.get(option)
    if given is not None:
        return given
    if checkpoint_interval_ms is None:
        return 0
    return unset.get(option, (failures + 1) * checkpoint_interval_ms)
