"""Who gets what is logged and printed in a process with several TaskManagers: the one to which the calling thread belongs.

What a thread of no task says, for example one that a library has started, goes to all of them: nobody knows whose it is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.engine.hosting.taskmanager.process_log import Logging, ProcessLog, of_task
from penstock.engine.hosting.taskmanager.taskmanager import TaskManager
from penstock.engine.model.ids import AttemptId


class _Thread(threading.local):
    """`output`: to whom the lines of the calling thread belong, if it is a TaskManager's own."""

    output: Output | None = None


MakeLog = Callable[[Callable[[], Logging], Callable[[object], None]], ProcessLog]
"""From who logs on the calling thread, and the way to the driver."""


@dataclass(slots=True, eq=False)
class Output:
    """A TaskManager and its log."""

    manager: TaskManager
    log: ProcessLog


@dataclass(slots=True)
class Outputs:
    """All of a process: the taker of log records, the place of printed lines, and `user_output.PrintLog`. Any thread."""

    _all: tuple[Output, ...] = ()
    _thread: _Thread = field(default_factory=_Thread)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, manager: TaskManager, make: MakeLog) -> Output:
        """Add the TaskManager whose own thread this is. Raises: OSError: the files of its log cannot be made."""
        job_id = manager.config.credentials.cluster_id
        log = make(lambda: of_task(job_id, manager.running_task()), manager.send)
        output = self._thread.output = Output(manager, log)
        with self._lock:
            self._all = (*self._all, output)
        return output

    def remove(self, output: Output) -> None:
        """Its TaskManager is over."""
        with self._lock:
            self._all = tuple(one for one in self._all if one is not output)
        output.log.close()

    def of_this_thread(self) -> tuple[Output, ...]:
        if self._thread.output in self._all:
            assert self._thread.output is not None
            return (self._thread.output,)
        running = (one for one in self._all if one.manager.running_task() is not None)
        found = next(running, None)
        return self._all if found is None else (found,)

    # ------------------------------------------------------------------ log records

    def take(self, record: logging.LogRecord) -> bool:
        for output in self.of_this_thread():
            output.log.take(record)
        return True

    def tick(self) -> None:
        for output in self._all:
            output.log.tick()

    # ------------------------------------------------------------------ what is printed

    def operator(self) -> tuple[AttemptId | None, str]:
        found = self.of_this_thread()
        return found[0].manager.running_operator() if found else (None, "")

    def send(self, message: object) -> None:
        for output in self.of_this_thread():
            output.manager.send(message)

    def printed(self, text: str, *, is_error: bool, is_logged: bool) -> None:
        for output in self.of_this_thread():
            output.log.printed(text, is_error=is_error, is_logged=is_logged)

    def thread_ends(self) -> None:
        for output in self.of_this_thread():
            output.log.thread_ends()
