"""What happens to the messages between tasks and driver in an audited run: the right ones late, in vain, or twice.

Each is what a network or a slow disk can do, and what a correct engine has to get over.
"""

import threading
from pathlib import Path

from audit.event_log import LogWriter, Plan
from penstock.engine.hosting.taskmanager.task.checkpoints import TaskCheckpoints
from penstock.engine.hosting.taskmanager.taskmanager import TaskManager
from penstock.engine.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointFailureReason,
    DeclineCheckpoint,
)
from tests.audit import sabotage

BLOCKS_EACH = 3


class GrowingLog:
    """Of one run. Any thread."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._writer = LogWriter(folder, plan)
        self._lock = threading.Lock()
        self._is_closed = False
        self.grow()

    def grow(self, *, fails: bool = False) -> bool:
        """More records; with the first of them, or one before, a task fails. False: there are no more."""
        with self._lock:
            if not self._is_closed:
                if fails:
                    sabotage.arm()
                self._writer.append(BLOCKS_EACH)
            return not self._is_closed

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._writer.close()


class Disturbance:
    """Of one task each: the acknowledgement of every fifth checkpoint is held up and a task fails; it comes ahead of one
    of a later checkpoint. Every seventh checkpoint is declined, and after each other one of those a task fails when it has
    heard so. Every third completion is told twice. Of every fourth one no task hears, and one fails.
    """

    def __init__(self, log: GrowingLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._late: list[AcknowledgeCheckpoint] = []
        self._touched: set[int] = set()
        self._heard: set[int] = set()
        self._unheard: set[int] = set()
        self._is_stale_sent = False

    def install(self, monkeypatch) -> None:
        send, completed = TaskManager.send, TaskCheckpoints.completed
        aborted, this = TaskCheckpoints.aborted, self

        def sends(self, message):
            for one in this._instead_of(message):
                send(self, one)

        def hears(self, message):
            for _ in range(this._times(message.checkpoint_id)):
                completed(self, message)

        def is_told(self, message):
            aborted(self, message)
            this._on_aborted(message.checkpoint_id)

        monkeypatch.setattr(TaskManager, "send", sends)
        monkeypatch.setattr(TaskCheckpoints, "completed", hears)
        monkeypatch.setattr(TaskCheckpoints, "aborted", is_told)

    def was_stale_sent(self) -> bool:
        """Once for each time."""
        with self._lock:
            found, self._is_stale_sent = self._is_stale_sent, False
        return found

    def _instead_of(self, message: object) -> list[object]:
        if not isinstance(message, AcknowledgeCheckpoint):
            return [message]
        number = message.checkpoint_id
        with self._lock:
            is_first = number not in self._touched
            self._touched.add(number)
            late = [one for one in self._late if one.checkpoint_id < number]
            self._late = [one for one in self._late if one not in late]
            self._is_stale_sent = self._is_stale_sent or bool(late)
        if is_first and number % 5 == 0 and self._log.grow(fails=True):
            with self._lock:
                self._late.append(message)
            return late
        if is_first and (number % 7 == 0 or number % 5 == 0):
            reason = CheckpointFailureReason.ASYNC_EXCEPTION
            return [*late, DeclineCheckpoint(message.attempt_id, number, reason, "on purpose")]
        return [*late, message]

    def _on_aborted(self, number: int) -> None:
        with self._lock:
            is_due = number % 14 == 7 and number not in self._heard
            self._heard.add(number)
        if is_due:
            self._log.grow(fails=True)

    def _times(self, number: int) -> int:
        """How often a task hears of a completion."""
        often = 2 if number % 3 == 0 else 1
        with self._lock:
            if number % 4 or number in self._heard:
                return often
            if number in self._unheard:
                return 0
            self._unheard.add(number)
        if self._log.grow(fails=True):
            return 0
        with self._lock:
            self._heard.add(number)
        return often
