"""Barriers of all inputs of a task: from what its channels say to the elements that its mailbox acts on.

One handler for all gates. What it decides about channels is carried out here; what concerns the task comes out in
band, as the barrier to snapshot at or the marker to pass on, before anything else is read.
Source: Flink CheckpointedInputGate (spec 5.1, 10.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.runtime.checkpoint.actions import Abort, Action, Resume, Trigger
from penstock.runtime.elements import CancelCheckpointMarker, CheckpointBarrier, Element


class BarrierHandler(Protocol):
    """`SingleBarrierHandler` or `BarrierTracker`."""

    def on_barrier(
        self, barrier: CheckpointBarrier, channel: int, now_ms: int, *, is_blocking: bool = True
    ) -> list[Action]: ...
    def on_cancel(self, checkpoint_id: int, channel: int = 0) -> list[Action]: ...
    def on_end_of_partition(self, channel: int, now_ms: int) -> list[Action]: ...


class InputCheckpoints:
    """Channels are numbered through all inputs of the task. Mailbox thread."""

    def __init__(
        self, handler: BarrierHandler, now_ms: Callable[[], int], resume: Callable[[int], None]
    ) -> None:
        """`resume(channel)`: its producer may send on."""
        self._handler = handler
        self._now_ms = now_ms
        self._resume = resume
        self._barrier: CheckpointBarrier | None = None

    def on_barrier(self, barrier: CheckpointBarrier, channel: int) -> Sequence[Element]:
        """Came through this channel. Returns: what the task has to do before it reads on."""
        if self._barrier is None or barrier.checkpoint_id > self._barrier.checkpoint_id:
            self._barrier = barrier
        return self._perform(self._handler.on_barrier(barrier, channel, self._now_ms()))

    def on_cancel(self, marker: CancelCheckpointMarker, channel: int) -> Sequence[Element]:
        return self._perform(self._handler.on_cancel(marker.checkpoint_id, channel))

    def on_end_of_partition(self, channel: int) -> Sequence[Element]:
        return self._perform(self._handler.on_end_of_partition(channel, self._now_ms()))

    def _perform(self, actions: list[Action]) -> Sequence[Element]:
        elements: list[Element] = []
        for action in actions:
            if isinstance(action, Resume):
                for channel in action.channels:
                    self._resume(channel)
            elif isinstance(action, Trigger):
                assert self._barrier is not None
                elements.append(self._barrier)
            elif isinstance(action, Abort):
                elements.append(CancelCheckpointMarker(action.checkpoint_id))
        return elements
