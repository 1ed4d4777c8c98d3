"""The states of one task inside its TaskManager, and the effect of a cancel, a failure or an error
of its own.

Knows no thread; the host calls it under its lock, so that each move happens once. Source: Flink
Task (states, cancelOrFailAndCancelInvokable, the handler of run's errors),
docs/spec/tasks.md#states-on-the-taskmanager, #cancel.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from penstock.engine.model.errors import ConfigurationError, IllegalTransition
from penstock.engine.model.messages import CheckpointFailureReason
from penstock.engine.model.states import ExecutionState as S

_NEXT: Final = {
    S.CREATED: S.DEPLOYING,
    S.DEPLOYING: S.INITIALIZING,
    S.INITIALIZING: S.RUNNING,
    S.RUNNING: S.FINISHED,
}
_EXECUTING: Final = frozenset({S.INITIALIZING, S.RUNNING})


class TaskLifecycle:
    """`state` starts at CREATED; FINISHED, CANCELED and FAILED are final."""

    __slots__ = ("_is_canceler_started", "state")

    def __init__(self, state: S = S.CREATED) -> None:
        self.state = state
        self._is_canceler_started = False

    # ------------------------------------------------------------------ from outside

    def cancel(self) -> bool:
        """Cancel the task. Returns: whether running code must be interrupted now; at most once for a task."""
        return self._leave(S.CANCELING)

    def fail(self) -> bool:
        """Fail the task for an error outside of its code. Ignored if it is cancelling or has ended."""
        return self._leave(S.FAILED)

    def _leave(self, target: S) -> bool:
        if self.state.is_terminal or self.state is S.CANCELING:
            return False
        was_executing = self.state in _EXECUTING
        self.state = target
        if not was_executing or self._is_canceler_started:
            return False
        self._is_canceler_started = True
        return True

    # ------------------------------------------------------------------ by its own thread

    def advance(self, to: S) -> bool:
        """Go to the next state in order. False: the task was cancelled or failed in the meantime, and must unwind."""
        if _NEXT.get(self.state) is to:
            self.state = to
            return True
        if self.state in (S.CANCELING, S.FAILED):
            return False
        raise IllegalTransition(f"a task cannot go from {self.state} to {to}")

    def ended_with(self, *, is_cancel_signal: bool) -> S:
        """The task's code has raised. Returns: the final state; a cancelling task becomes CANCELED
        whatever was raised.
        """
        if self.state is S.CANCELING or (is_cancel_signal and not self.state.is_terminal):
            self.state = S.CANCELED
        elif not self.state.is_terminal:
            self.state = S.FAILED
        return self.state


def refusal_of_checkpoint(state: S) -> CheckpointFailureReason | None:
    """Return why a task in this state cannot take a checkpoint now; None: it can."""
    return None if state is S.RUNNING else CheckpointFailureReason.TASK_NOT_READY


class CancelStep(StrEnum):
    """INTERRUPT: raise in the task's thread. FATAL: the task did not end in time, so its process must end."""

    INTERRUPT = "INTERRUPT"
    FATAL = "FATAL"


def fatal_at(started_ms: int, timeout_ms: int) -> int | None:
    """Return when a cancelled task must have ended (task.cancellation.timeout); None: never, for a timeout of 0."""
    return started_ms + timeout_ms if timeout_ms else None


class CancellationSchedule:
    """When a cancelled task that does not end is interrupted again, and when its TaskManager must end.

    Knows no clock and no thread. Source: Flink TaskInterrupter and TaskCancelerWatchDog,
    docs/spec/tasks.md#cancel.

    The schedule of one task. Args: interval_ms: between interrupts, above 0. timeout_ms: 0: never fatal.
    """

    __slots__ = ("_interval_ms", "_next_interrupt_ms", "fatal_at_ms")

    def __init__(self, started_ms: int, interval_ms: int, timeout_ms: int) -> None:
        if interval_ms <= 0 or timeout_ms < 0:
            raise ConfigurationError(
                f"task.cancellation.interval must be above 0 and task.cancellation.timeout at least 0 ms; got {interval_ms} and "
                f"{timeout_ms} ms."
            )
        self._interval_ms = interval_ms
        self._next_interrupt_ms = started_ms
        self.fatal_at_ms = fatal_at(started_ms, timeout_ms)

    @property
    def next_ms(self) -> int:
        """When `due` next returns something."""
        if self.fatal_at_ms is None:
            return self._next_interrupt_ms
        return min(self._next_interrupt_ms, self.fatal_at_ms)

    def due(self, now_ms: int) -> Iterator[CancelStep]:
        """Return what is due since the last call: one interrupt for all that were missed; FATAL
        each time after the timeout.
        """
        if self.fatal_at_ms is not None and now_ms >= self.fatal_at_ms:
            yield CancelStep.FATAL
            return
        if now_ms >= self._next_interrupt_ms:
            missed = (now_ms - self._next_interrupt_ms) // self._interval_ms
            self._next_interrupt_ms += (missed + 1) * self._interval_ms
            yield CancelStep.INTERRUPT
