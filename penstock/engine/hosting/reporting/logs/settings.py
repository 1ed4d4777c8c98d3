"""What the configuration and the program say of logs: plain data that goes to each TaskManager."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.task import LogOptions

_JOB_DIGITS: Final = 8
_PYTHONS_DEFAULT: Final = logging.WARNING


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`directory`, `path`: as configured, None: not. `level`: of the root. `levels`: of loggers that have one of their own.

    `max_files`: older files that are kept next to the present one. `slow_checkpoint_ms`: longer ones are warned of; 0: none.
    """

    directory: str | None = None
    path: str | None = None
    level: int = logging.INFO
    levels: tuple[tuple[str, int], ...] = ()
    form: str = "text"
    max_bytes: int = 100 << 20
    max_files: int = 10
    slow_checkpoint_ms: int = 30_000


def log_settings_of(settings: Settings) -> LogSettings:
    """Read the configuration, and the levels that the program of this process has set.

    The level of the program's root logger counts where `env.log.level` is not set and it is not Python's default.
    Raises: ConfigurationError.
    """
    configured = level_of(settings.get(LogOptions.LEVEL))
    root = logging.root.level
    is_configured = settings.is_set(LogOptions.LEVEL) or root in {logging.NOTSET, _PYTHONS_DEFAULT}
    return LogSettings(
        directory=settings.get(LogOptions.DIR),
        path=settings.get(LogOptions.TASKMANAGER_PATH),
        level=configured if is_configured else root,
        levels=_levels_here(configured),
        form=settings.get(LogOptions.FORMAT),
        max_bytes=settings.get(LogOptions.MAX_SIZE),
        max_files=settings.get(LogOptions.MAX),
        slow_checkpoint_ms=settings.get(LogOptions.SLOW_CHECKPOINT),
    )


def level_of(name: str) -> int:
    """Return a level by its name; Flink's names are known too. Raises: ConfigurationError."""
    text = {"WARN": "WARNING", "TRACE": "DEBUG", "FATAL": "CRITICAL"}.get(
        name.upper(), name.upper()
    )
    level = logging.getLevelNamesMapping().get(text)
    if level is None:
        expected = "DEBUG, INFO, WARNING, ERROR or CRITICAL"
        raise ConfigurationError(
            f"{LogOptions.LEVEL.key}: expected {expected}, got {name!r}. Change the setting."
        )
    return level


def _levels_here(configured: int) -> tuple[tuple[str, int], ...]:
    """Return the loggers of this process that have a level of their own; Penstock's always has one."""
    found = {"penstock": configured}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level and not is_marked(logger.level):
            found[name] = logger.level
    return tuple(sorted(found.items()))


def marked(level: int) -> int:
    """Return a level that lets the same records pass, and that no program sets: so it differs from
    a program's.
    """
    return level - 1


def is_marked(level: int) -> bool:
    """Whether `marked` made this level."""
    return level % 10 == 9


def taskmanager_log_path(logs: LogSettings, own_folder: str, job_id: str, resource_id: str) -> str:
    """Return the path of a TaskManager's log. `own_folder`: where it lies if nothing is configured."""
    name = f"{job_id[:_JOB_DIGITS]}-{resource_id}"
    if logs.path is not None:
        start, ending = os.path.splitext(logs.path)
        return f"{start}-{name}{ending or '.log'}"
    return os.path.join(logs.directory or own_folder, f"penstock-taskmanager-{name}.log")


def stdout_path(log_path: str) -> str:
    """Return the file with what is printed, which lies next to a log (Flink: the same name, ending `out`)."""
    return f"{os.path.splitext(log_path)[0]}.out"
