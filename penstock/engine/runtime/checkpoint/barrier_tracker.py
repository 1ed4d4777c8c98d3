"""Barriers for at-least-once: no channel is blocked, and a checkpoint is taken when all channels have delivered its barrier.

Source: Flink CheckpointBarrierTracker (docs/spec/checkpoints.md#barriers). Knows channels only by
their numbers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.model.messages import CheckpointFailureReason
from penstock.engine.runtime.checkpoint.actions import Abort, Action, Trigger
from penstock.engine.runtime.elements import CheckpointBarrier

MAX_TRACKED: Final = 50


@dataclass(slots=True)
class _Count:
    """The barriers of one checkpoint. `target`: how many channels were open when its first barrier came."""

    checkpoint_id: int
    target: int
    channels: set[int] = field(default_factory=set)
    is_aborted: bool = False

    def mark(self, channel: int) -> bool:
        """Note a channel. Returns whether all channels have delivered now."""
        self.channels.add(channel)
        return len(self.channels) == self.target

    def abort(self) -> bool:
        """Mark as aborted. False: it was aborted before."""
        was_aborted, self.is_aborted = self.is_aborted, True
        return not was_aborted


class BarrierTracker:
    """Tracks up to 50 checkpoints at a time. When one is complete, older ones are dropped without an action."""

    def __init__(self, channels: int, *, checkpoints_after_finish: bool = True) -> None:
        self._checkpoints_after_finish = checkpoints_after_finish
        self._open_channels = channels
        self._pending: deque[_Count] = deque()
        self._latest = -1
        self.timer_ms: int | None = None

    @property
    def is_overtaking(self) -> bool:
        """Always False: no barrier overtakes."""
        return False

    def on_barrier(
        self, barrier: CheckpointBarrier, channel: int, now_ms: int, *, is_blocking: bool = True
    ) -> list[Action]:
        """As `SingleBarrierHandler.on_barrier`."""
        del now_ms, is_blocking
        checkpoint_id = barrier.checkpoint_id
        if self._is_alone(checkpoint_id):
            return [Trigger(checkpoint_id, is_unaligned=False)]
        known = next((one for one in self._pending if one.checkpoint_id == checkpoint_id), None)
        if known is not None:
            return self._complete(known) if known.mark(channel) else []
        if checkpoint_id > self._latest:
            self._latest = checkpoint_id
            self._pending.append(_Count(checkpoint_id, self._open_channels, {channel}))
            if len(self._pending) > MAX_TRACKED:
                self._pending.popleft()
        return []

    def on_announcement(
        self, barrier: CheckpointBarrier, channel: int, sequence: int
    ) -> list[Action]:
        """Does nothing: no barrier overtakes."""
        del barrier, channel, sequence
        return []

    def on_cancel(self, checkpoint_id: int, channel: int = 0) -> list[Action]:
        """Gives up the checkpoint, and all earlier ones."""
        if self._is_alone(checkpoint_id):
            return [_aborted(checkpoint_id)]
        actions: list[Action] = []
        pending = self._pending
        while pending and pending[0].checkpoint_id < checkpoint_id:
            earlier = pending.popleft()
            if earlier.abort():
                actions.append(_aborted(earlier.checkpoint_id))
        if pending and pending[0].checkpoint_id == checkpoint_id:
            if pending[0].abort():
                actions.append(_aborted(checkpoint_id))
            if pending[0].mark(channel):
                pending.popleft()
        elif checkpoint_id > self._latest:
            self._latest = checkpoint_id
            actions.append(_aborted(checkpoint_id))
            marker = _Count(checkpoint_id, self._open_channels, {channel}, is_aborted=True)
            pending.appendleft(marker)
        return actions

    def on_end_of_partition(self, channel: int, now_ms: int) -> list[Action]:
        """As `SingleBarrierHandler.on_end_of_partition`."""
        del now_ms
        self._open_channels -= 1
        actions: list[Action] = []
        if not self._checkpoints_after_finish:
            while self._pending:
                given_up = self._pending.popleft()
                if given_up.abort():
                    reason = CheckpointFailureReason.INPUT_END_OF_STREAM
                    actions.append(Abort(given_up.checkpoint_id, reason))
            return actions
        for newest_first in reversed(self._pending):
            if newest_first.mark(channel):
                return self._complete(newest_first)
        return actions

    def on_timer(self, now_ms: int) -> list[Action]:
        """Does nothing: there is no alignment that could time out."""
        del now_ms
        return []

    def _is_alone(self, checkpoint_id: int) -> bool:
        """Whether the only open channel decides: nothing is pending of this checkpoint or of a newer one."""
        return self._open_channels == 1 and checkpoint_id > self._latest

    def _complete(self, complete: _Count) -> list[Action]:
        while self._pending.popleft() is not complete:
            pass
        if complete.is_aborted:
            return []
        return [Trigger(complete.checkpoint_id, is_unaligned=False)]


def _aborted(checkpoint_id: int) -> Abort:
    return Abort(checkpoint_id, CheckpointFailureReason.ON_CANCELLATION_BARRIER)
