"""The TaskManagers in one process, of one job or of several: each has a thread, and leaves nothing behind.

They share modules, standard output and what `process_state.py` looks after, and nothing else. A TaskManager whose tasks cannot be
ended takes the process with it, as a crash would.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn

from penstock.engine.hosting.reporting.logs.settings import LogSettings
from penstock.engine.hosting.taskmanager.config import TaskManagerConfig
from penstock.engine.hosting.taskmanager.outputs import Output, Outputs
from penstock.engine.hosting.taskmanager.process_log import ProcessLog
from penstock.engine.hosting.taskmanager.process_state import ProcessState, SpareMemory
from penstock.engine.hosting.taskmanager.reports import Reports
from penstock.engine.hosting.taskmanager.taskmanager import TaskManager
from penstock.engine.hosting.taskmanager.user_modules import SharedModules
from penstock.engine.model.errors import ExternalError

_ENDS_BY_ITSELF_S: Final = 1.0
"""The JobManager tells a TaskManager to end, too. One that has not been told by then is ended."""


@dataclass(slots=True, eq=False)
class Resident:
    """`manager` None: it is being made. `ends_at`: when it must be ended; None: it may stay."""

    start_id: str
    manager: TaskManager | None = None
    output: Output | None = None
    ends_at: float | None = None


class Residents:
    """Any thread."""

    def __init__(
        self,
        state: ProcessState,
        reports: Reports,
        outputs: Outputs,
        logs: LogSettings,
        modules: SharedModules,
    ) -> None:
        self._state = state
        self._reports = reports
        self._outputs = outputs
        self._logs = logs
        self._modules = modules
        self._memory = SpareMemory()
        self._here: dict[str, Resident] = {}
        self._was_used = False
        self._lock = threading.RLock()

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
