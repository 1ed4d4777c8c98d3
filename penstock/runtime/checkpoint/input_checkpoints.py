"""Barriers of all inputs of a task: from what its channels say to the elements that its mailbox acts on.

One handler for all gates. What it decides about channels is carried out here; what concerns the task comes out in
band, as the barrier to snapshot at or the marker to pass on, before anything else is read.
Source: Flink CheckpointedInputGate (spec 5.1, 10.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from penstock.model.messages import CheckpointFailureReason
from penstock.runtime.checkpoint.actions import Abort, Action, Resume, Trigger
from penstock.runtime.elements import CancelCheckpointMarker, CheckpointBarrier, Element

OnAbort: TypeAlias = Callable[[int, CheckpointFailureReason], None]


class BarrierHandler(Protocol):
    """`SingleBarrierHandler` or `BarrierTracker`."""

    def on_barrier(
        self, barrier: CheckpointBarrier, channel: int, now_ms: int, *, is_blocking: bool = True
    ) -> list[Action]: ...
    def on_cancel(self, checkpoint_id: int, channel: int = 0) -> list[Action]: ...
    def on_end_of_partition(self, channel: int, now_ms: int) -> list[Action]: ...


class InputCheckpoints:
    """Channels are numbered through all inputs of the task. Mailbox thread.

    `alignment_ms`: of the newest checkpoint that all barriers are there of, from its first one to its last. `on_abort`: told
    of a checkpoint that this task will not take part in.
    """

    def __init__(
        self, handler: BarrierHandler, now_ms: Callable[[], int], resume: Callable[[int], None]
    ) -> None:
        """`resume(channel)`: its producer may send on."""
        self.alignment_ms = 0
        self.on_abort: OnAbort = _tell_nobody
        self._handler = handler
        self._now_ms = now_ms
        self._resume = resume
        self._barriers: dict[int, tuple[CheckpointBarrier, int]] = {}
        self._last_id = -1

    def on_barrier(self, barrier: CheckpointBarrier, channel: int) -> Sequence[Element]:
        """Came through this channel. Returns: what the task has to do before it reads on."""
        checkpoint_id = barrier.checkpoint_id
        if checkpoint_id > self._last_id and checkpoint_id not in self._barriers:
            self._barriers[checkpoint_id] = barrier, self._now_ms()
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
                elements.append(self._collected(action.checkpoint_id))
            elif isinstance(action, Abort):
                self._barriers.pop(action.checkpoint_id, None)
                self.on_abort(action.checkpoint_id, action.reason)
                elements.append(CancelCheckpointMarker(action.checkpoint_id))
        return elements

    def _collected(self, checkpoint_id: int) -> CheckpointBarrier:
        """All barriers of this one are there; those before it will not be taken any more."""
        barrier, first_ms = self._barriers[checkpoint_id]
        self._last_id = checkpoint_id
        self._barriers = {i: b for i, b in self._barriers.items() if i > checkpoint_id}
        self.alignment_ms = max(0, self._now_ms() - first_ms)
        return barrier


def _tell_nobody(_checkpoint_id: int, _reason: CheckpointFailureReason) -> None:
    """Who reads the elements sees the marker."""
