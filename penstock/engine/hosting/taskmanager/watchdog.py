"""Interrupts cancelled tasks until they end, and names tasks that do nothing although they have something to do.

A task does nothing when one of its calls does not return, or when its input waits and it takes none of it, for example
because as many asynchronous calls are open as may be. Runs on the TaskManager's main thread. A C call that holds the GIL
stops this thread too, so the JobManager ends a TaskManager whose task does not end. Source: Flink TaskInterrupter and
TaskCancelerWatchDog. Differs: Flink does not look for tasks that do nothing.
"""

from __future__ import annotations

import itertools
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.hosting.os.thread_stacks import thread_frames
from penstock.engine.hosting.taskmanager.task.thread import TaskThread
from penstock.engine.hosting.taskmanager_order import WatchSettings
from penstock.engine.machines.taskmanager.task_lifecycle import CancellationSchedule, CancelStep
from penstock.engine.model.errors import NoProgress
from penstock.engine.model.ids import AttemptId
from penstock.engine.model.messages import LogEvent
from penstock.engine.model.own_places import is_ours
from penstock.engine.model.states import ExecutionState

LEAVES_BY_ITSELF_MS: Final = 50
"""Wait before the first interrupt. A task between two slices sees its cancel at once; only a user
function that has not returned needs the interrupt.
"""
_LOG: Final = logging.getLogger(__name__)
_LOOK_EVERY_MS: Final = 500


@dataclass(slots=True)
class _Sign:
    """The last sign of progress of a task: what was seen, when first, and whether the lack of
    progress was logged.
    """

    seen: tuple[str, int]
    since_ms: int
    has_warned: bool = False


@dataclass(eq=False, repr=False)
class TaskWatchdog:
    """Args: say: (task, text) for the user's eyes. give_up: ends the TaskManager, for a cause."""

    _settings: WatchSettings
    _say: Callable[[TaskThread, str], None]
    _give_up: Callable[[str], None]
    _cancelled: dict[AttemptId, tuple[TaskThread, CancellationSchedule]] = field(
        default_factory=dict
    )
    _signs: dict[AttemptId, _Sign] = field(default_factory=dict)
    _look_at_ms: int = 0

    def cancelled(self, task: TaskThread, now_ms: int, timeout_ms: int = 0) -> None:
        """Watch a task that was cancelled, or failed, while its code ran. `timeout_ms`: when the TaskManager ends, as the
        JobManager does not know of it; 0: never.
        """
        begins_ms = now_ms + LEAVES_BY_ITSELF_MS
        schedule = CancellationSchedule(
            begins_ms, self._settings.cancellation_interval_ms, timeout_ms
        )
        self._cancelled.setdefault(task.attempt_id, (task, schedule))

    def tick(self, now_ms: int, tasks: list[TaskThread]) -> int:
        """Interrupt the tasks that are due. Returns: when to call again."""
        for attempt_id, (task, schedule) in list(self._cancelled.items()):
            if task.state.is_terminal and not task.is_alive:
                del self._cancelled[attempt_id]
                continue
            due = list(schedule.due(now_ms))
            if CancelStep.INTERRUPT in due:
                task.interrupt()
            elif CancelStep.FATAL in due:
                del self._cancelled[attempt_id]
                timeout_s = self._settings.cancellation_timeout_ms / 1000
                self._give_up(
                    f"{task.deployment.title} did not end within {timeout_s:g} s after it had "
                    "failed for lack of progress (task.cancellation.timeout)"
                )
        if now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + _LOOK_EVERY_MS
            self._look_for_progress(now_ms, tasks)
        return min((s.next_ms for _, s in self._cancelled.values()), default=self._look_at_ms)

    def _look_for_progress(self, now_ms: int, tasks: list[TaskThread]) -> None:
        if not self._settings.progress_timeout_ms:
            return
        former, self._signs = self._signs, {}
        for task in tasks:
            seen = sign_of(task)
            if seen is None:
                continue
            sign = former.get(task.attempt_id)
            if sign is None or sign.seen != seen:
                sign = _Sign(seen, now_ms)
            self._signs[task.attempt_id] = sign
            lasts_ms = now_ms - sign.since_ms
            if lasts_ms >= self._settings.progress_timeout_ms and not sign.has_warned:
                sign.has_warned = True
                self._no_progress(task, lasts_ms, now_ms)

    def _no_progress(self, task: TaskThread, lasts_ms: int, now_ms: int) -> None:
        """Log a task without progress once, and fail it if it is to fail. A task that restores its
        state may take any time.
        """
        text = stall_text(task, lasts_ms)
        title = task.deployment.title
        _LOG.warning("attempt=%s task=%s NO_PROGRESS: %s", task.attempt_id, title, text)
        if not self._settings.fails_without_progress or task.state is not ExecutionState.RUNNING:
            self._say(task, text)
        elif task.fail(NoProgress(f"{title}: {text}")):
            self.cancelled(task, now_ms, self._settings.cancellation_timeout_ms)


def sign_of(task: TaskThread) -> tuple[str, int] | None:
    """Return what changes when the task does something; None: it has nothing to do."""
    if not task.is_waiting:
        return "turns", task.progress
    waiting = task.waiting_input
    return None if waiting is None else ("records", waiting)


def stall_text(task: TaskThread, lasts_ms: int) -> str:
    """Return since when the task does nothing and where its thread is, with the user's frames only."""
    where = (stack_of(task.thread_id) or " (it has just returned)\n").rstrip()
    operator, lasts = task.operator or "an operator", f"{lasts_ms / 1000:.0f} s"
    if task.is_waiting:
        return (
            f"input waits, but this subtask has taken none of it for {lasts}; the last operator "
            f"that ran is {operator}, and the task's thread is here:\n{where}"
        )
    return (
        f"one call of {operator} has taken {lasts} so far, and this subtask can do nothing else "
        f"meanwhile:\n{where}"
    )


def stall_event(task: TaskThread, text: str) -> LogEvent:
    """Return the warning as the console shows it."""
    level, attempt_id = logging.WARNING, task.attempt_id
    return LogEvent(
        wall_ms(), level, "WARNING", "penstock", attempt_id, task.operator, text, str(attempt_id)
    )


def stack_of(thread_id: int | None) -> str:
    """Return a thread's stack as Python prints it, from where user code begins; empty if the thread has ended."""
    frame = thread_frames().get(thread_id) if thread_id is not None else None
    if frame is None:
        return ""
    frames = traceback.extract_stack(frame)
    are_ours = [is_ours(one.filename) for one in frames]
    calls = itertools.pairwise(are_ours)
    first_of_user = next(
        (at for at, (caller, callee) in enumerate(calls, 1) if caller and not callee), 0
    )
    return "".join(traceback.format_list(frames[first_of_user:]))
