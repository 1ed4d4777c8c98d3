"""Decides when a task with several channels takes its snapshot: aligned, unaligned, or aligned until a timeout.

Barriers go in, actions come out. Knows channels only by their numbers, and neither a clock nor data. Source: Flink
SingleCheckpointBarrierHandler and its BarrierHandlerStates (docs/spec/checkpoints.md#barriers).
Differs: a cancellation marker also ends a checkpoint whose barriers have only been announced. They will never all
come, and a channel that one of them blocks would stand still until the next checkpoint.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from penstock.engine.model.errors import EngineBug
from penstock.engine.model.messages import CheckpointFailureReason
from penstock.engine.runtime.elements import CheckpointBarrier

NONE = -1


class Alignment(StrEnum):
    """ALTERNATING: a checkpoint begins aligned, and becomes unaligned when the alignment takes too long."""

    ALIGNED = "ALIGNED"
    UNALIGNED = "UNALIGNED"
    ALTERNATING = "ALTERNATING"


class SingleBarrierHandler:
    """Handles one checkpoint at a time; a barrier of a newer checkpoint ends the current one.

    `timer_ms`: when `on_timer` has to be called; None while no alignment can time out.
    """

    def __init__(
        self, channels: int, alignment: Alignment, *, checkpoints_after_finish: bool = True
    ) -> None:
        self._alignment = alignment
        self._checkpoints_after_finish = checkpoints_after_finish
        self._open_channels = channels
        self._current = NONE
        # The newest checkpoint that was completed or given up.
        self._settled = NONE
        self._barrier: CheckpointBarrier | None = None
        self._aligned: set[int] = set()
        self._target = 0
        self._actions: list[Action] = []
        self.timer_ms: int | None = None
        self._start_over()

    # ------------------------------------------------------------------ what happens

    def on_barrier(
        self, barrier: CheckpointBarrier, channel: int, now_ms: int, *, is_blocking: bool = True
    ) -> list[Action]:
        """`is_blocking` False: the barrier did not come through the channel but from a trigger outside, so it blocks nothing."""
        self._actions = []
        if self._is_obsolete(barrier.checkpoint_id):
            if not barrier.is_unaligned:
                self._actions.append(Resume((channel,)))
            return self._actions
        self._check_new(barrier)
        self._aligned.add(channel)
        self._barrier_received(barrier, channel, now_ms, is_blocking=is_blocking)
        self._check_all_received()
        return self._actions

    def on_announcement(
        self, barrier: CheckpointBarrier, channel: int, sequence: int
    ) -> list[Action]:
        """A barrier waits in the queue of this channel, after data."""
        self._actions = []
        self._check_new(barrier)
        if not self._is_obsolete(barrier.checkpoint_id) and channel not in self._aligned:
            if self._is_unaligned:
                self._actions.append(Prioritize(((channel, sequence),)))
            else:
                self._announced[channel] = sequence
        return self._actions

    def on_cancel(self, checkpoint_id: int, channel: int = 0) -> list[Action]:
        """A marker came in place of a barrier: a task upstream gave the checkpoint up."""
        del channel
        self._actions = []
        is_current = checkpoint_id == self._current and self._is_pending
        if checkpoint_id > self._current or is_current:
            self._abort(checkpoint_id, CheckpointFailureReason.ON_CANCELLATION_BARRIER)
        return self._actions

    def on_end_of_partition(self, channel: int, now_ms: int) -> list[Action]:
        """A channel that has ended counts as having delivered its barrier. Later checkpoints do not count the channel at all."""
        self._actions = []
        self._open_channels -= 1
        if not self._is_pending:
            return self._actions
        if not self._checkpoints_after_finish:
            self._abort(self._current, CheckpointFailureReason.INPUT_END_OF_STREAM)
            return self._actions
        self._aligned.add(channel)
        self._end_received(channel, now_ms)
        self._check_all_received()
        return self._actions

    def on_timer(self, now_ms: int) -> list[Action]:
        """Make the alignment unaligned if the time in `timer_ms` has come."""
        self._actions = []
        if self.timer_ms is not None and now_ms >= self.timer_ms:
            self.timer_ms = None
            if self._is_pending and not self._is_unaligned:
                self._time_out()
        return self._actions

    @property
    def is_overtaking(self) -> bool:
        """Whether a checkpoint is pending and no longer aligned."""
        return self._is_pending and self._is_unaligned

    # ------------------------------------------------------------------ which checkpoint

    @property
    def _is_pending(self) -> bool:
        return self._current not in (self._settled, NONE)

    def _is_obsolete(self, checkpoint_id: int) -> bool:
        return checkpoint_id < self._current or (
            checkpoint_id == self._current and not self._is_pending
        )

    def _check_new(self, barrier: CheckpointBarrier) -> None:
        if barrier.checkpoint_id <= self._current:
            return
        if self._is_pending:
            self._abort(self._current, CheckpointFailureReason.SUBSUMED)
        self._current = barrier.checkpoint_id
        self._barrier = barrier
        self._aligned.clear()
        self._target = self._open_channels
        self.timer_ms = self._late_from_ms(barrier)

    def _check_all_received(self) -> None:
        if self._is_pending and self._has_all:
            self._aligned.clear()
            self._settled = self._current
            self.timer_ms = None

    def _abort(self, checkpoint_id: int, reason: CheckpointFailureReason) -> None:
        self._current = max(checkpoint_id, self._current)
        self._settled = max(checkpoint_id, self._settled)
        self._barrier = None
        self._aligned.clear()
        self._target = 0
        self.timer_ms = None
        if self._is_unaligned and self._is_collecting:
            self._actions.append(PersistStop(checkpoint_id))
        self._finish()
        self._actions.append(Abort(checkpoint_id, reason))

    # ------------------------------------------------------------------ how far it is

    def _start_over(self) -> None:
        self._is_unaligned = self._alignment is Alignment.UNALIGNED
        self._is_collecting = False
        self._blocked: dict[int, None] = {}
        self._announced: dict[int, int] = {}

    @property
    def _has_all(self) -> bool:
        return len(self._aligned) == self._target

    def _barrier_received(
        self, barrier: CheckpointBarrier, channel: int, now_ms: int, *, is_blocking: bool
    ) -> None:
        is_blocking = is_blocking and not barrier.is_unaligned
        if barrier.is_unaligned and not self._is_unaligned:
            self._time_out()
        if is_blocking:
            self._blocked[channel] = None
            self._actions.append(Block(channel))
        if self._is_unaligned:
            self._collect_unaligned()
            return
        self._announced.pop(channel, None)
        self._collect_aligned(now_ms)

    def _end_received(self, channel: int, now_ms: int) -> None:
        self._blocked.pop(channel, None)
        self._announced.pop(channel, None)
        if not self._is_collecting:
            # Barriers are only announced: the first of them triggers, as in Flink's two states of waiting for it.
            return
        if self._is_unaligned:
            self._collect_unaligned()
        else:
            self._collect_aligned(now_ms)

    def _collect_aligned(self, now_ms: int) -> None:
        if self._has_all:
            if self._alignment is Alignment.ALTERNATING:
                self._actions.append(InitInputSnapshot(self._current))
            self._actions.append(Trigger(self._current, is_unaligned=False))
            self._finish()
        elif self._is_late(now_ms):
            self._time_out()
            self._collect_unaligned()
        else:
            self._is_collecting = True

    def _collect_unaligned(self) -> None:
        if not self._is_collecting:
            self._start_unaligned()
        if self._has_all:
            self._actions.append(PersistStop(self._current))
            self._finish()

    def _is_late(self, now_ms: int) -> bool:
        late_from_ms = None if self._barrier is None else self._late_from_ms(self._barrier)
        return late_from_ms is not None and now_ms > late_from_ms

    def _late_from_ms(self, barrier: CheckpointBarrier) -> int | None:
        """When the alignment times out; None: never."""
        if self._alignment is not Alignment.ALTERNATING or not barrier.is_timeoutable:
            return None
        return barrier.timestamp_ms + (barrier.aligned_timeout_ms or 0)

    def _time_out(self) -> None:
        """Go from aligned to unaligned. If a barrier has come already, take the snapshot at once."""
        if self._alignment is not Alignment.ALTERNATING:
            raise EngineBug(
                f"an unaligned barrier of checkpoint {self._current} came to a task that only aligns"
            )
        if self._announced:
            self._actions.append(Prioritize(tuple(sorted(self._announced.items()))))
        self._is_unaligned = True
        if self._is_collecting:
            self._start_unaligned()

    def _start_unaligned(self) -> None:
        self._is_collecting = True
        self._actions += (
            InitInputSnapshot(self._current),
            PersistStart(self._current),
            Trigger(self._current, is_unaligned=True),
        )

    def _finish(self) -> None:
        if self._blocked:
            self._actions.append(Resume(tuple(self._blocked)))
        self._start_over()


@dataclass(frozen=True, slots=True)
class Block:
    """The actions that a barrier handler decides on. The task carries them out in order. Plain data.

    Source: Flink CheckpointBarrierHandler and its listeners (docs/spec/checkpoints.md#barriers).

    Read nothing from this channel until it is resumed; its producer stops sending.
    """

    channel: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on reading these channels."""

    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trigger:
    """Take the snapshot of this checkpoint now, before anything else is read."""

    checkpoint_id: int
    is_unaligned: bool


@dataclass(frozen=True, slots=True)
class Abort:
    """Abort this checkpoint, and notify the tasks downstream."""

    checkpoint_id: int
    reason: CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class InitInputSnapshot:
    """In-flight data of the inputs is about to be persisted."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class PersistStart:
    """Persist the data in the channels, and the data that comes before their barriers."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class PersistStop:
    """Stop persisting: all barriers have come, or the checkpoint is given up."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Prioritize:
    """Let announced barriers overtake the data before them. `announced`: (channel, sequence number) of each."""

    announced: tuple[tuple[int, int], ...]


Action: TypeAlias = (
    Block | Resume | Trigger | Abort | InitInputSnapshot | PersistStart | PersistStop | Prioritize
)


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
    """Barriers for at-least-once: no channel is blocked, and a checkpoint is taken when all channels have delivered its
    barrier.

    Source: Flink CheckpointBarrierTracker (docs/spec/checkpoints.md#barriers). Knows channels only by
    their numbers.

    Tracks up to 50 checkpoints at a time. When one is complete, older ones are dropped without an action.
    """

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
