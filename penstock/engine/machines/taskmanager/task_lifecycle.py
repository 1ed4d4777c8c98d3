"""The states of one task inside its TaskManager, and the effect of a cancel, a failure or an error
of its own.

Knows no thread; the host calls it under its lock, so that each move happens once. Source: Flink
Task (states, cancelOrFailAndCancelInvokable, the handler of run's errors),
docs/spec/tasks.md#states-on-the-taskmanager, #cancel.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.model.errors import IllegalTransition
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
