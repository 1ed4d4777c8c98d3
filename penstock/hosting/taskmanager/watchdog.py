"""Interrupts cancelled tasks until they end, and names calls that have not returned.

Runs on the TaskManager's main thread. A C call that holds the GIL stops this thread too, so the
JobManager ends a TaskManager whose task does not end. Source: Flink TaskInterrupter.
"""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.hosting.task.thread import TaskThread
from penstock.machines.taskmanager.cancellation import CancellationSchedule, CancelStep
from penstock.model.ids import AttemptId
from penstock.model.own_places import is_ours

LEAVES_BY_ITSELF_MS: Final = 50
"""Wait before the first interrupt. A task between two slices sees its cancel at once; only a user
function that has not returned needs the interrupt.
"""
_LOOK_EVERY_MS: Final = 500


@dataclass(slots=True)
class _Turn:
    """The last turn of a task that was seen: when it began, and when to report it next."""

    progress: int
    since_ms: int
    speak_at_ms: int


class TaskWatchdog:
    """Args: say: (task, text) for the user's eyes. slow_ms: a call that takes this long is named; 0: never."""

    def __init__(
        self, interval_ms: int, slow_ms: int, say: Callable[[TaskThread, str], None]
    ) -> None:
        self._interval_ms = interval_ms
        self._slow_ms = slow_ms
        self._say = say
        self._cancelled: dict[AttemptId, tuple[TaskThread, CancellationSchedule]] = {}
        self._turns: dict[AttemptId, _Turn] = {}
        self._look_at_ms = 0

    def cancelled(self, task: TaskThread, now_ms: int) -> None:
        """Watch a task that was cancelled while its code ran."""
        begins_ms = now_ms + LEAVES_BY_ITSELF_MS
        schedule = CancellationSchedule(begins_ms, self._interval_ms, 0)
        self._cancelled.setdefault(task.attempt_id, (task, schedule))

    def tick(self, now_ms: int, tasks: list[TaskThread]) -> int:
        """Interrupt the tasks that are due. Returns: when to call again."""
        for attempt_id, (task, schedule) in list(self._cancelled.items()):
            if task.state.is_terminal and not task.is_alive:
                del self._cancelled[attempt_id]
            elif CancelStep.INTERRUPT in schedule.due(now_ms):
                task.interrupt()
        if now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + _LOOK_EVERY_MS
            self._look_for_slow_calls(now_ms, tasks)
        return min((s.next_ms for _, s in self._cancelled.values()), default=self._look_at_ms)

    def _look_for_slow_calls(self, now_ms: int, tasks: list[TaskThread]) -> None:
        if not self._slow_ms:
            return
        seen: dict[AttemptId, _Turn] = {}
        for task in tasks:
            turn = self._turns.get(task.attempt_id)
            if turn is None or turn.progress != task.progress or task.is_waiting:
                turn = _Turn(task.progress, now_ms, now_ms + self._slow_ms)
            elif now_ms >= turn.speak_at_ms:
                lasts_ms = now_ms - turn.since_ms
                turn.speak_at_ms = now_ms + lasts_ms  # Report it less and less often.
                self._say(task, slow_call_text(task, lasts_ms))
            seen[task.attempt_id] = turn
        self._turns = seen


def slow_call_text(task: TaskThread, lasts_ms: int) -> str:
    """Return where the task's thread is, with the user's frames only."""
    where = stack_of(task.thread_id) or " (it has just returned)\n"
    return (
        f"one call of {task.operator or 'an operator'} has taken {lasts_ms / 1000:.0f} s so "
        f"far, and this subtask can do nothing else meanwhile:\n{where.rstrip()}"
    )


def stack_of(thread_id: int | None) -> str:
    """Return a thread's stack as Python prints it, from where user code begins; empty if the thread has ended."""
    frame = sys._current_frames().get(thread_id) if thread_id is not None else None
    if frame is None:
        return ""
    frames = traceback.extract_stack(frame)
    are_ours = [is_ours(one.filename) for one in frames]
    calls = itertools.pairwise(are_ours)
    first_of_user = next(
        (at for at, (caller, callee) in enumerate(calls, 1) if caller and not callee), 0
    )
    return "".join(traceback.format_list(frames[first_of_user:]))
