"""The log of this driver: one file for all its jobs, and threads that belong to a job.

It has Penstock's own records from `env.log.level` on, and those of the program that its loggers let pass. What the program
itself sees of logging does not change. Source: the JobManager's log of a Flink cluster.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.engine.hosting.os.private_files import OwnFolder
from penstock.engine.hosting.reporting.logs.folder import LogFolder, RollingFile
from penstock.engine.hosting.reporting.logs.lines import FORMS, Place, hook, line_of
from penstock.engine.hosting.reporting.logs.settings import LogSettings, is_marked, marked

_LOG: Final = logging.getLogger(__name__)
_OURS: Final = logging.getLogger("penstock")
_OWN: Final = OwnFolder("penstock-driver-")
_PROCESS: Final = "driver"


@dataclass(slots=True)
class _Started:
    """The log of this process. `undo`: takes it away."""

    file: RollingFile
    undo: Callable[[], None]


class _Here:
    lock: Final = threading.Lock()
    log: _Started | None = None
    pid: int = 0


class _Thread(threading.local):
    job_id: str = ""


_THREAD: Final = _Thread()


def thread_belongs_to(job_id: str) -> None:
    """From now on lines of the calling thread belong to this job."""
    _THREAD.job_id = job_id


def job_of_thread() -> str:
    """Return the job to which the calling thread belongs; "": none."""
    return _THREAD.job_id


def start(settings: LogSettings) -> str:
    """Begin the log of this process, unless it has begun. Returns: its path; "": it cannot be written, and a warning says why."""
    with _Here.lock:
        if _Here.log is not None and _Here.pid == os.getpid():
            return _Here.log.file.path
        name = f"penstock-jobmanager-{os.getpid()}.log"
        try:
            folder = settings.directory or str(_OWN.made() / "log")
            path = os.path.join(folder, name)
            file = RollingFile(path, settings.max_bytes, settings.max_files)
        except OSError as error:
            text = (
                "the driver has no log file: %s. Set env.log.dir to a folder that can be written."
            )
            _LOG.warning(text, error)
            return ""
        _Here.log, _Here.pid = _Started(file, _take_all(settings, file)), os.getpid()
        return path


def log_folder() -> LogFolder:
    """Return the folder of the driver's log; without a log it has no files."""
    log = _Here.log
    return LogFolder("" if log is None else log.file.path)


def stop() -> None:
    """End the log of this process. For tests: a program's goes with it."""
    with _Here.lock:
        if _Here.log is not None:
            _Here.log.undo()
            _Here.log.file.close()
            _Here.log = None


def _take_all(settings: LogSettings, file: RollingFile) -> Callable[[], None]:
    """Take all records of this process. Returns: what undoes it."""
    form = FORMS[settings.form]
    former = _OURS.level
    own_level = former or dict(settings.levels).get(_OURS.name, settings.level)

    def take(record: logging.LogRecord) -> bool:
        is_ours = record.name.partition(".")[0] == _OURS.name
        if record.levelno >= (own_level if is_ours else settings.level):
            with contextlib.suppress(Exception):  # A user's __str__ may raise.
                file.write(form(line_of(record, Place(_THREAD.job_id), _PROCESS)) + "\n")
        return not is_ours or record.levelno >= _level_of_program(record.name)

    if not former:
        _OURS.setLevel(marked(own_level))
    undo = hook(take)

    def undo_all() -> None:
        undo()
        if is_marked(_OURS.level):
            _OURS.setLevel(former)

    return undo_all


def _level_of_program(name: str) -> int:
    """Return the level that counts for a logger of Penstock as the program has set levels, without ours."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if logger.level and not is_marked(logger.level):
            return logger.level
        logger = logger.parent
    return logging.NOTSET
