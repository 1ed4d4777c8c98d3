"""The log of a TaskManager: a file with every record and printed line, and the records that are
sent to the driver.

Penstock's own records go to the stderr of the Spark executor too, which Spark keeps. Nothing goes
to the process's own stderr: that is reported as its last words. Source: log4j as Flink configures
it (conf/log4j.properties).
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from penstock.engine.hosting.os.clock import monotonic_ms
from penstock.engine.hosting.os.interrupts import UninterruptibleLock
from penstock.engine.hosting.reporting.logs.folder import RollingFile
from penstock.engine.hosting.reporting.logs.lines import (
    FORMS,
    Folding,
    LogLine,
    Place,
    Take,
    hook,
    line_of,
    message_of,
    sameness_of,
)
from penstock.engine.hosting.reporting.logs.settings import LogSettings, stdout_path
from penstock.engine.hosting.taskmanager.services.user_output import SENT_FROM
from penstock.engine.hosting.taskmanager.task.thread import TaskThread
from penstock.engine.model.ids import AttemptId, ResourceId
from penstock.engine.model.messages import LogEvent, LogEvents
from penstock.engine.model.texts.bounded_text import MOST_OF_ERROR, cut
from penstock.engine.runtime.interruption import uninterruptible

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_OWN: Final = ("penstock.engine.hosting.taskmanager", "penstock.engine.hosting.jobmanager")
"""The console shows the warnings of these loggers in its own words."""
_WINDOW_MS: Final = 500
_MOST_EVENTS: Final = 100
_MOST_WAITING: Final = 10_000
"""Different lines in one window. A task that logs a line for each record must not fill the wire."""


class DescriptorHandler(logging.Handler):
    """Writes whole lines, unbuffered. Errors are ignored: a log that cannot be written must not disturb anything."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record) + "\n"
        with contextlib.suppress(OSError):  # Its reader is gone.
            os.write(self._descriptor, line.encode("utf-8", "backslashreplace"))


def log_to(descriptor: int) -> logging.Handler:
    """Log Penstock's messages from INFO on to this descriptor."""
    handler = DescriptorHandler(descriptor)
    handler.setFormatter(logging.Formatter(FORMAT))
    logger = logging.getLogger("penstock")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return handler


@dataclass(frozen=True, slots=True)
class Logging:
    """Who logs. `task` None: a thread of no task."""

    place: Place
    task: AttemptId | None = None


def of_task(job_id: str, task: TaskThread | None) -> Logging:
    """Return who logs while this task's thread runs; None: a thread of no task."""
    if task is None:
        return Logging(Place(job_id))
    attempt_id, parallelism = task.attempt_id, task.deployment.parallelism
    place = Place(job_id, task.operator, attempt_id.subtask + 1, parallelism, attempt_id.attempt)
    return Logging(place, attempt_id)


Here = Callable[[], Logging]
"""Returns who logs on the calling thread."""


class ProcessLog:
    """`user_output.PrintLog`, and the taker of the hook of all records. Any thread."""

    def __init__(
        self,
        settings: LogSettings,
        path: str,
        resource_id: ResourceId,
        here: Here,
        send: Callable[[object], None],
    ) -> None:
        """Raises: OSError: the files cannot be made."""
        self._me = resource_id
        self._pid = os.getpid()
        self._here = here
        self._send = send
        self._form = FORMS[settings.form]
        self._file = RollingFile(path, settings.max_bytes, settings.max_files)
        self._out = RollingFile(stdout_path(path), settings.max_bytes, settings.max_files)
        self.folding = Folding(_WINDOW_MS, most=_MOST_EVENTS)
        # A finalizer may log within any call, so that a record waits for no lock.
        self._waiting: queue.SimpleQueue[LogEvent] = queue.SimpleQueue()
        self._lock = UninterruptibleLock()

    # ------------------------------------------------------------------ what is logged

    def take(self, record: logging.LogRecord) -> bool:
        """Take a record; handlers get it too. Never raises."""
        if os.getpid() != self._pid:
            return True  # A function has forked, perhaps while another thread held our locks.
        with uninterruptible():
            try:
                who = self._here()
                line = line_of(record, who.place, self._me)
                self._file.write(self._form(line) + "\n")
                if record.levelno >= SENT_FROM and not _is_own_warning(record):
                    self._report(record, line, who)
            except Exception as error:  # A user's __str__, for example. The user's call continues.
                self._file.write(f"a line of {record.name} could not be logged: {error!r}\n")
        return True

    def printed(self, text: str, *, is_error: bool, is_logged: bool) -> None:
        if os.getpid() != self._pid:
            return
        self._out.write(text)
        if is_logged:
            return
        thread, now = threading.current_thread().name, time.time()
        name = "stderr" if is_error else "stdout"
        place = self._here().place
        lines = text.removesuffix("\n").split("\n")
        made = [LogLine(now, "INFO", name, thread, one, place, self._me) for one in lines]
        self._file.write("".join(f"{self._form(one)}\n" for one in made))

    def close(self) -> None:
        """The TaskManager is over. Drops what comes later."""
        self._file.close()
        self._out.close()

    # ------------------------------------------------------------------ what is sent to the driver

    def thread_ends(self) -> None:
        """A task ends: send what waits before its end is reported."""
        self.tick(is_all=True)

    def tick(self, *, is_all: bool = False) -> None:
        """Send the lines since the last call, folded. Called every half second."""
        with self._lock:
            firsts = [event for event in self._taken() if self.folding.take(event, monotonic_ms())]
            due = self.folding.due(monotonic_ms(), is_all=is_all)
            left_out, self.folding.left_out = self.folding.left_out, 0
        # The first line of each kind was sent already, so the last one counts as one of them.
        repeats = (replace(one.event, repeats=one.times - 1) for one in due)
        events = (*firsts, *repeats)
        if events or left_out:
            self._send(LogEvents(self._me, events, left_out))

    def _taken(self) -> Iterator[LogEvent]:
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._waiting.get_nowait()

    def _report(self, record: logging.LogRecord, line: LogLine, who: Logging) -> None:
        text = cut("\n".join(filter(None, (line.message, line.error))), MOST_OF_ERROR)
        event = LogEvent(
            int(record.created * 1000),
            record.levelno,
            record.levelname,
            record.name,
            who.task,
            who.place.operator,
            text,
            sameness_of(str(record.msg), has_arguments=bool(record.args), text=message_of(record)),
        )
        if self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(event)
        else:
            self.folding.left_out += 1


def install(settings: LogSettings, take: Take, executor_log: int | None) -> None:
    """Have this taker get all records of the process. `executor_log`: descriptor of the executor's stderr; None: it has none."""
    if executor_log is not None:
        log_to(executor_log)
    logging.root.setLevel(settings.level)
    for name, level in settings.levels:
        logging.getLogger(name).setLevel(level)
    hook(take)


def _is_own_warning(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR and record.name.startswith(_OWN)
