"""The part of the configuration that the checkpoint coordinator needs, in one frozen object.

Knows no layers of settings. Source: Flink CheckpointCoordinatorConfiguration, CheckpointConfig
(docs/spec/checkpoints.md#coordinator, docs/spec/options.md#runtime).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.model.checkpoints import INLINE_BYTES
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.autoscaler import ElasticOptions
from penstock.engine.model.options.checkpoints import (
    CLAIM,
    EXACTLY_ONCE,
    CheckpointOptions,
    RecoveryOptions,
    Retention,
)

_LEAST_INTERVAL_MS: Final = 10


def _no_chance() -> float:
    return 1.0


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """`interval_ms` None: only checkpoints that a user asks for. `draw`: gives numbers in [-1, 1]
    for the first delay.

    `aligned_timeout_ms`: None: never unaligned; 0: unaligned from the start. `first_id`: of the
    next checkpoint.
    """

    interval_ms: int | None = None
    min_pause_ms: int = 0
    timeout_ms: int = 600_000
    max_concurrent: int = 1
    tolerable_failures: int = 0
    num_retained: int = 1
    retention: Retention = Retention.NO_EXTERNALIZED_CHECKPOINTS
    is_exactly_once: bool = True
    aligned_timeout_ms: int | None = None
    are_finished_tasks_allowed: bool = True
    is_unclaimed_state_ignored: bool = False
    allows_double: bool = False
    first_id: int = 1
    draw: Callable[[], float] = field(default=_no_chance)

    @property
    def is_unaligned(self) -> bool:
        return self.aligned_timeout_ms is not None

    @property
    def is_periodic(self) -> bool:
        return self.interval_ms is not None

    @property
    def holds_results(self) -> bool:
        """Whether the program gets rows only when a checkpoint covers them, so that a restart repeats none."""
        return self.is_periodic and self.is_exactly_once

    @property
    def has_final_checkpoint(self) -> bool:
        """Whether a task that has read all its input can rely on one more checkpoint."""
        return self.is_periodic and self.are_finished_tasks_allowed

    def first_delay_ms(self) -> int:
        """Return a random delay between the least pause and the interval, so that jobs do not all
        checkpoint at once.
        """
        assert self.interval_ms is not None
        share = (self.draw() + 1) / 2
        return self.min_pause_ms + int(share * max(0, self.interval_ms - self.min_pause_ms))


@dataclass(frozen=True, slots=True)
class CheckpointPlaces:
    """The configured paths or URIs of checkpoints; None: not set. `inline_bytes`: smaller state is
    put into the metadata.

    `restored`: the savepoint or checkpoint to begin with. `is_claimed`: it belongs to the job from
    then on. `is_incremental`: unchanged files of a TaskManager's disk are not written again.
    `kept_bytes`: of the state of a handover, which a TaskManager keeps.
    """

    directory: str | None = None
    savepoints: str | None = None
    inline_bytes: int = INLINE_BYTES
    restored: str | None = None
    is_claimed: bool = False
    is_incremental: bool = False
    kept_bytes: int = 0


def checkpoint_places_of(settings: Settings) -> CheckpointPlaces:
    """Read the options."""
    return CheckpointPlaces(
        settings.get(CheckpointOptions.DIR),
        settings.get(CheckpointOptions.SAVEPOINT_DIR),
        settings.get(CheckpointOptions.DATA_INLINE_THRESHOLD),
        settings.get(RecoveryOptions.PATH),
        settings.get(RecoveryOptions.CLAIM_MODE) == CLAIM,
        settings.get(CheckpointOptions.INCREMENTAL),
        settings.get(ElasticOptions.KEPT_STATE),
    )


def checkpoint_settings_of(
    settings: Settings, draw: Callable[[], float] | None = None, first_id: int = 1
) -> CheckpointSettings:
    """Read the options. Raises: ConfigurationError: a value is out of range, or two values exclude each other."""
    interval_ms = interval_ms_of(settings)
    min_pause_ms = settings.get(CheckpointOptions.MIN_PAUSE)
    read = CheckpointSettings(
        interval_ms=None if interval_ms is None else max(interval_ms, min_pause_ms),
        min_pause_ms=min_pause_ms,
        timeout_ms=settings.get(CheckpointOptions.TIMEOUT),
        max_concurrent=settings.get(CheckpointOptions.MAX_CONCURRENT),
        tolerable_failures=settings.get(CheckpointOptions.TOLERABLE_FAILURES),
        num_retained=settings.get(CheckpointOptions.NUM_RETAINED),
        retention=settings.get(CheckpointOptions.RETENTION),
        is_exactly_once=settings.get(CheckpointOptions.MODE) == EXACTLY_ONCE,
        aligned_timeout_ms=settings.get(CheckpointOptions.ALIGNED_CHECKPOINT_TIMEOUT)
        if settings.get(CheckpointOptions.UNALIGNED_ENABLED)
        else None,
        are_finished_tasks_allowed=settings.get(CheckpointOptions.AFTER_TASKS_FINISH),
        is_unclaimed_state_ignored=settings.get(RecoveryOptions.IGNORE_UNCLAIMED_STATE),
        allows_double=settings.get(RecoveryOptions.ALLOW_INT_TO_DOUBLE),
        first_id=first_id,
        draw=draw or _no_chance,
    )
    _check_unaligned(read)
    return read


def interval_ms_of(settings: Settings) -> int | None:
    """Return the time between two checkpoints; None: none is taken periodically. Raises:
    ConfigurationError: below 10 ms.
    """
    interval_ms = settings.get(CheckpointOptions.INTERVAL) or None
    if interval_ms is not None and interval_ms < _LEAST_INTERVAL_MS:
        raise ConfigurationError(
            f"option '{CheckpointOptions.INTERVAL.key}' is {interval_ms} ms, but it takes at least "
            f"{_LEAST_INTERVAL_MS} ms. Change the setting."
        )
    return interval_ms


def _check_unaligned(settings: CheckpointSettings) -> None:
    if not settings.is_unaligned:
        return
    if not settings.is_exactly_once:
        raise ConfigurationError(
            f"'{CheckpointOptions.UNALIGNED_ENABLED.key}' and '{CheckpointOptions.MODE.key}' "
            "AT_LEAST_ONCE exclude each other, because nothing is aligned in that mode. "
            "Change one of them."
        )
    if settings.max_concurrent > 1:
        raise ConfigurationError(
            f"'{CheckpointOptions.UNALIGNED_ENABLED.key}' takes '{CheckpointOptions.MAX_CONCURRENT.key}' 1, got "
            f"{settings.max_concurrent}. Change one of them."
        )
