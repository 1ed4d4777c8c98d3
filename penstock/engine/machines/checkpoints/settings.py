"""The part of the configuration that the checkpoint coordinator needs, in one frozen object.

Knows no layers of settings. Source: Flink CheckpointCoordinatorConfiguration, CheckpointConfig
(docs/spec/checkpoints.md#coordinator, docs/spec/options.md#runtime).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from penstock.engine.model.checkpoints import INLINE_BYTES
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.autoscaler import ElasticOptions
from penstock.engine.model.options.checkpoints import CheckpointOptions, RecoveryOptions
from penstock.engine.model.options.option import Option

T = TypeVar("T")

_LEAST_INTERVAL_MS: Final = 10
_CLAIM_MODES: Final = ("CLAIM", "NO_CLAIM")
_MOST_INLINE_BYTES: Final = 1 << 20
_EXACTLY_ONCE, _AT_LEAST_ONCE = "EXACTLY_ONCE", "AT_LEAST_ONCE"


class Retention(StrEnum):
    """What becomes of completed checkpoints when the job ends."""

    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"


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
    """Read the options. Raises: ConfigurationError: an unknown claim mode, or a threshold that is too large."""
    option = settings.chosen(RecoveryOptions.CLAIM_MODE)
    mode = settings.get(option).upper()
    if mode not in _CLAIM_MODES:
        raise ConfigurationError(
            f"option '{option.key}' is '{mode}', but it takes {', '.join(_CLAIM_MODES)}. Change the setting."
        )
    threshold = settings.chosen(CheckpointOptions.DATA_INLINE_THRESHOLD)
    inline_bytes = settings.get(threshold)
    if inline_bytes > _MOST_INLINE_BYTES:
        raise ConfigurationError(
            f"option '{threshold.key}' is {inline_bytes:,} bytes, but it takes at most "
            f"{_MOST_INLINE_BYTES:,}, because inline state passes through the driver. Change "
            "the setting."
        )
    return CheckpointPlaces(
        settings.get(CheckpointOptions.DIR),
        settings.get(CheckpointOptions.SAVEPOINT_DIR),
        inline_bytes,
        settings.get(RecoveryOptions.PATH),
        mode == "CLAIM",
        settings.get(CheckpointOptions.INCREMENTAL),
        settings.get(ElasticOptions.KEPT_STATE),
    )


def checkpoint_settings_of(
    settings: Settings, draw: Callable[[], float] | None = None, first_id: int = 1
) -> CheckpointSettings:
    """Read the options. Raises: ConfigurationError: a value is out of range, or two values exclude each other."""
    interval_ms = interval_ms_of(settings)
    min_pause_ms = settings.get(CheckpointOptions.MIN_PAUSE)
    is_unaligned = settings.get(CheckpointOptions.UNALIGNED_ENABLED)
    read = CheckpointSettings(
        interval_ms=None if interval_ms is None else max(interval_ms, min_pause_ms),
        min_pause_ms=min_pause_ms,
        timeout_ms=_at_least(settings, CheckpointOptions.TIMEOUT, 10),
        max_concurrent=_at_least(settings, CheckpointOptions.MAX_CONCURRENT, 1),
        tolerable_failures=_at_least(settings, CheckpointOptions.TOLERABLE_FAILURES, 0),
        num_retained=_at_least(settings, CheckpointOptions.NUM_RETAINED, 1),
        retention=_retention(settings),
        is_exactly_once=_is_exactly_once(settings),
        aligned_timeout_ms=_aligned_timeout(settings) if is_unaligned else None,
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
            f"{_AT_LEAST_ONCE} exclude each other, because nothing is aligned in that mode. "
            "Change one of them."
        )
    if settings.max_concurrent > 1:
        raise ConfigurationError(
            f"'{CheckpointOptions.UNALIGNED_ENABLED.key}' takes '{CheckpointOptions.MAX_CONCURRENT.key}' 1, got "
            f"{settings.max_concurrent}. Change one of them."
        )


def _at_least(settings: Settings, wanted: Option[int], least: int) -> int:
    option = settings.chosen(wanted)
    value = settings.get(option)
    if value < least:
        raise ConfigurationError(
            f"option '{option.key}' is {value}, but it takes at least {least}. Change the setting."
        )
    return value


def _aligned_timeout(settings: Settings) -> int:
    return settings.get(CheckpointOptions.ALIGNED_CHECKPOINT_TIMEOUT)


def _retention(settings: Settings) -> Retention:
    option = CheckpointOptions.RETENTION
    name = settings.get(option)
    if name not in set(Retention):
        raise ConfigurationError(
            f"option '{option.key}' is '{name}', but it takes {', '.join(Retention)}. Change the setting."
        )
    return Retention(name)


def _is_exactly_once(settings: Settings) -> bool:
    option = CheckpointOptions.MODE
    name = settings.get(option)
    if name not in {_EXACTLY_ONCE, _AT_LEAST_ONCE}:
        raise ConfigurationError(
            f"option '{option.key}' is '{name}', but it takes {_EXACTLY_ONCE} or {_AT_LEAST_ONCE}. "
            "Change the setting."
        )
    return name == _EXACTLY_ONCE
