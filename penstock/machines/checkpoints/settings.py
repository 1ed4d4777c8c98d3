"""What the checkpoint coordinator needs of the configuration, in one frozen object.

Knows no layers of settings. Source: Flink CheckpointCoordinatorConfiguration, CheckpointConfig (spec 10.1, 12).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError

_PREFIX: Final = "execution.checkpointing."
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
    """`interval_ms` None: none but those a user asks for. `draw`: numbers in [-1, 1] for the first delay.

    `aligned_timeout_ms`: None: never unaligned; 0: from the start. `first_id`: of the next checkpoint.
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
    first_id: int = 1
    draw: Callable[[], float] = field(default=_no_chance)

    @property
    def is_unaligned(self) -> bool:
        return self.aligned_timeout_ms is not None

    def first_delay_ms(self) -> int:
        """Anywhere between the least pause and the interval, so that jobs do not all checkpoint at once."""
        assert self.interval_ms is not None
        share = (self.draw() + 1) / 2
        return self.min_pause_ms + int(share * max(0, self.interval_ms - self.min_pause_ms))


def checkpoint_settings_of(
    settings: Settings, draw: Callable[[], float] | None = None, first_id: int = 1
) -> CheckpointSettings:
    """Read the options. Raises: ConfigurationError: a value out of range, or two that exclude each other."""
    interval_ms = settings.get_optional_int(_PREFIX + "interval") or None
    min_pause_ms = settings.get_int(_PREFIX + "min-pause")
    is_unaligned = settings.get_bool(_PREFIX + "unaligned.enabled")
    read = CheckpointSettings(
        interval_ms=None if interval_ms is None else max(interval_ms, min_pause_ms),
        min_pause_ms=min_pause_ms,
        timeout_ms=_at_least(settings, "timeout", 10),
        max_concurrent=_at_least(settings, "max-concurrent-checkpoints", 1),
        tolerable_failures=_at_least(settings, "tolerable-failed-checkpoints", 0),
        num_retained=_at_least(settings, "num-retained", 1),
        retention=_retention(settings),
        is_exactly_once=_is_exactly_once(settings),
        aligned_timeout_ms=_aligned_timeout(settings) if is_unaligned else None,
        are_finished_tasks_allowed=settings.get_bool(_PREFIX + "checkpoints-after-tasks-finish"),
        is_unclaimed_state_ignored=settings.get_bool(
            "execution.state-recovery.ignore-unclaimed-state"
        ),
        first_id=first_id,
        draw=draw or _no_chance,
    )
    _check_unaligned(read)
    return read


def _check_unaligned(settings: CheckpointSettings) -> None:
    if not settings.is_unaligned:
        return
    if not settings.is_exactly_once:
        raise ConfigurationError(
            f"'{_PREFIX}unaligned.enabled' and '{_PREFIX}mode' {_AT_LEAST_ONCE} exclude each "
            "other: nothing is aligned in that mode. Change one of them."
        )
    if settings.max_concurrent > 1:
        raise ConfigurationError(
            f"'{_PREFIX}unaligned.enabled' takes '{_PREFIX}max-concurrent-checkpoints' 1, got "
            f"{settings.max_concurrent}. Change one of them."
        )


def _at_least(settings: Settings, name: str, least: int) -> int:
    value = settings.get_int(_PREFIX + name)
    if value < least:
        raise ConfigurationError(
            f"option '{_PREFIX}{name}' is {value}, but it takes at least {least}. "
            "Change the setting."
        )
    return value


def _aligned_timeout(settings: Settings) -> int:
    return settings.get_optional_int(_PREFIX + "aligned-checkpoint-timeout") or 0


def _retention(settings: Settings) -> Retention:
    key = _PREFIX + "externalized-checkpoint-retention"
    name = settings.get_str(key) or ""
    if name not in set(Retention):
        raise ConfigurationError(
            f"option '{key}' is '{name}', but it takes {', '.join(Retention)}. Change the setting."
        )
    return Retention(name)


def _is_exactly_once(settings: Settings) -> bool:
    key = _PREFIX + "mode"
    name = settings.get_str(key) or ""
    if name not in {_EXACTLY_ONCE, _AT_LEAST_ONCE}:
        raise ConfigurationError(
            f"option '{key}' is '{name}', but it takes {_EXACTLY_ONCE} or {_AT_LEAST_ONCE}. "
            "Change the setting."
        )
    return name == _EXACTLY_ONCE
