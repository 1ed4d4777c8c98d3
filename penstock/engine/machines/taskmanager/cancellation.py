"""When a cancelled task that does not end is interrupted again, and when its TaskManager must end.

Knows no clock and no thread. Source: Flink TaskInterrupter and TaskCancelerWatchDog,
docs/spec/tasks.md#cancel.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from penstock.engine.model.errors import ConfigurationError


class CancelStep(StrEnum):
    """INTERRUPT: raise in the task's thread. FATAL: the task did not end in time, so its process must end."""

    INTERRUPT = "INTERRUPT"
    FATAL = "FATAL"


def fatal_at(started_ms: int, timeout_ms: int) -> int | None:
    """Return when a cancelled task must have ended (task.cancellation.timeout); None: never, for a timeout of 0."""
    return started_ms + timeout_ms if timeout_ms else None


class CancellationSchedule:
    """The schedule of one task. Args: interval_ms: between interrupts, above 0. timeout_ms: 0: never fatal."""

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
