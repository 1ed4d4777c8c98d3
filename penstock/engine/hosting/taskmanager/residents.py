"""The TaskManagers in one process, of one job or of several. Each has a thread, of which nothing
stays after its end.

They share modules, standard output and what `process_state.py` looks after, and nothing else. If
the tasks of a TaskManager cannot be ended, the whole process ends, as after a crash.

What a thread logs or prints goes to the TaskManager to which the thread belongs. What a thread of
no task logs, for example a thread that a library has started, goes to all of them, because its
owner is unknown.

The process reports to its supervisor with JSON lines on a pipe, which `child.py` reads.

{"progress": {start id: number}}                    often; left out when the pipe is full {"ended":
start id, "cause": ..., "was_refused": ...}   a TaskManager is over {"used_up": cause}
the process must not serve anybody else
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn

from penstock.engine.hosting.reporting.logs.settings import LogSettings
from penstock.engine.hosting.taskmanager.config import TaskManagerConfig
from penstock.engine.hosting.taskmanager.process_log import Logging, ProcessLog, of_task
from penstock.engine.hosting.taskmanager.process_state import ProcessState, SpareMemory
from penstock.engine.hosting.taskmanager.taskmanager import TaskManager
from penstock.engine.hosting.taskmanager.user_modules import SharedModules
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import AttemptId
from penstock.engine.model.texts.bounded_text import shortened


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


_MOST_OF_CAUSE: Final = 600
"""Characters. A line must fit the pipe's atomic size, so that it is written whole or not at all."""
_RETRY_S: Final = 0.01


class Reports:
    """The writing end. Any thread."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        os.set_blocking(pipe, False)

    def progress(self, numbers: Mapping[str, int]) -> None:
        """Report a number for each TaskManager that rises when its mailboxes turn. Raises: OSError:
        the supervisor is gone.
        """
        self._write({"progress": dict(numbers)})

    def ended(self, start_id: str, cause: str, *, was_refused: bool = False) -> None:
        """Raises: OSError: the supervisor is gone."""
        report = {
            "ended": start_id,
            "cause": shortened(cause, _MOST_OF_CAUSE),
            "was_refused": was_refused,
        }
        self._write_surely(report)

    def used_up(self, cause: str) -> None:
        """Raises: OSError: the supervisor is gone."""
        self._write_surely({"used_up": shortened(cause, _MOST_OF_CAUSE)})

    def _write_surely(self, report: Mapping[str, object]) -> None:
        while not self._write(report):
            time.sleep(_RETRY_S)  # A supervisor that was stopped does not read.

    def _write(self, report: Mapping[str, object]) -> bool:
        with self._lock:
            try:
                os.write(self._pipe, json.dumps(report).encode() + b"\n")
            except BlockingIOError:
                return False
        return True


_ENDS_BY_ITSELF_S: Final = 1.0
"""The JobManager orders a TaskManager to end, too. After this time in s, a TaskManager that has got
no order is ended.
"""


@dataclass(slots=True, eq=False)
class Resident:
    """`manager` None: it is being made. `ends_at`: when it must be ended; None: it may stay."""

    start_id: str
    manager: TaskManager | None = None
    output: Output | None = None
    ends_at: float | None = None


@dataclass(eq=False, repr=False)
class Residents:
    """Any thread."""

    _state: ProcessState
    _reports: Reports
    _outputs: Outputs
    _logs: LogSettings
    _modules: SharedModules
    _memory: SpareMemory = field(default_factory=SpareMemory)
    _here: dict[str, Resident] = field(default_factory=dict)
    _was_used: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def start(self, start_id: str, config: TaskManagerConfig) -> None:
        """Host a TaskManager, unless the process is outdated."""
        with self._lock:
            outdated = self._state.outdated() if self._was_used else ""
            if outdated:
                text = f"{outdated} may have changed since a job before imported it"
                self._reports.ended(start_id, text, was_refused=True)
                return
            self._was_used = True
            resident = self._here[start_id] = Resident(start_id)
        name = f"penstock-{config.resource_id}"
        threading.Thread(target=self._live, args=(resident, config), name=name, daemon=True).start()

    def end(self, start_id: str) -> None:
        """See that a TaskManager ends. It is reported."""
        resident = self._here.get(start_id)
        if resident is not None:
            resident.ends_at = time.monotonic() + _ENDS_BY_ITSELF_S

    def tick(self) -> None:
        """Report progress, and end those that are due. Raises: OSError: the supervisor is gone."""
        self._outputs.tick()
        now, progress = time.monotonic(), {}
        for resident in list(self._here.values()):
            if resident.manager is not None:
                progress[resident.start_id] = resident.manager.progress()
                if resident.ends_at is not None and now >= resident.ends_at:
                    resident.manager.abandon()
        self._reports.progress(progress)

    @property
    def is_empty(self) -> bool:
        return not self._here

    # ------------------------------------------------------------------ the TaskManager's own thread

    def _live(self, resident: Resident, config: TaskManagerConfig) -> None:
        try:
            cause = self._begun_and_ended(resident, config)
        except BaseException:  # Also SystemExit of user code: this process's end must be explained.
            _die(traceback.format_exc())
        with self._lock:
            del self._here[resident.start_id]
            self._clean()
            self._reports.ended(resident.start_id, cause)
        if self.is_empty:
            self._memory.give_back()

    def _begun_and_ended(self, resident: Resident, config: TaskManagerConfig) -> str:
        """Return why the TaskManager is over."""
        try:
            manager = TaskManager(config, self._modules)
        except (OSError, ExternalError) as error:
            return f"the TaskManager could not begin: {error}"
        try:
            make = partial(ProcessLog, self._logs, config.log_path, config.resource_id)
            resident.output = self._outputs.add(manager, make)
            resident.manager = manager
            cause = manager.run()
        finally:
            if resident.output is not None:
                self._outputs.remove(resident.output)
        stuck = manager.stuck()
        if stuck:
            _die(f"{cause}; these tasks do not end, so the process does: {', '.join(stuck)}")
        return cause

    def _clean(self) -> None:
        """Leave nothing of the job to the next one; report what cannot be helped."""
        left = self._state.left_over(is_idle=self.is_empty)
        self._state.note_files()
        if self.is_empty:
            self._state.put_back(self._modules.path)
        if left:
            self._reports.used_up(f"a job has left {left}")


def _die(text: str) -> NoReturn:
    """End the process. The supervisor reports what is written to the real stderr as the last words."""
    if sys.__stderr__ is not None:
        sys.__stderr__.write(text + "\n")
        sys.__stderr__.flush()
    os._exit(1)
