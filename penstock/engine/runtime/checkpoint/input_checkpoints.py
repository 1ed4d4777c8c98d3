"""Barriers of all inputs of a task: turns what the channels deliver into elements for the task's mailbox.

There is one handler for all gates. Its decisions about channels are carried out here. Its decisions about the
task are returned as elements, which the task processes before it reads on: the barrier at which to take the snapshot,
or the marker to pass on. Source: Flink CheckpointedInputGate (docs/spec/tasks.md#network-input,
docs/spec/checkpoints.md#barriers).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from penstock.engine.model.messages import CheckpointFailureReason
from penstock.engine.runtime.checkpoint.barrier_handler import (
    Abort,
    Action,
    PersistStart,
    PersistStop,
    Prioritize,
    Resume,
    Trigger,
)
from penstock.engine.runtime.codecs.codec import ChannelDecoder, ChannelEncoder, size_of
from penstock.engine.runtime.codecs.events import Part
from penstock.engine.runtime.elements import (
    Batch,
    CancelCheckpointMarker,
    CheckpointBarrier,
    ColumnBatch,
    Element,
    RowBatch,
)
from penstock.engine.runtime.records.frozen import Dumps, plain_dumps

OnAbort: TypeAlias = Callable[[int, CheckpointFailureReason], None]
OnInFlight: TypeAlias = Callable[[int, Mapping[int, bytes]], None]
Overtaken: TypeAlias = Callable[[], Sequence[Batch]]


class BarrierHandler(Protocol):
    """What `SingleBarrierHandler` and `BarrierTracker` have in common."""

    timer_ms: int | None

    @property
    def is_overtaking(self) -> bool: ...
    def on_barrier(
        self, barrier: CheckpointBarrier, channel: int, now_ms: int, *, is_blocking: bool = True
    ) -> list[Action]: ...
    def on_announcement(
        self, barrier: CheckpointBarrier, channel: int, sequence: int
    ) -> list[Action]: ...
    def on_cancel(self, checkpoint_id: int, channel: int = 0) -> list[Action]: ...
    def on_end_of_partition(self, channel: int, now_ms: int) -> list[Action]: ...
    def on_timer(self, now_ms: int) -> list[Action]: ...


def _nothing_overtaken() -> Sequence[Batch]:
    """For a channel that keeps no data: what its barriers overtake lies at the producer."""
    return ()


class InputChannels(Protocol):
    """All channels of a task's inputs, numbered consecutively."""

    def resume(self, channel: int) -> None:
        """Let the channel's producer go on sending."""
        ...

    def prioritize(self, channel: int, sequence: int) -> None:
        """Let an announced barrier overtake the data before it."""
        ...

    def recovered(self) -> Iterable[tuple[int, Batch]]:
        """(channel, batch) of the data that inputs were restored with and that the task has not taken yet.

        If another input has its barrier already, this data is still in flight.
        """
        ...

    @property
    def bytes_in(self) -> int:
        """Bytes of everything that was read so far."""
        ...


def _notify_nobody(_checkpoint_id: int, _reason: CheckpointFailureReason) -> None:
    """Do nothing: whoever reads the elements sees the marker."""


def _keep_nothing(_checkpoint_id: int, _channels: Mapping[int, bytes]) -> None:
    """For a job whose checkpoints are all aligned."""


def _never(_at_ms: int) -> None:
    """For a handler that sets no timers."""


@dataclass(frozen=True, slots=True)
class InputHooks:
    """Callbacks for what the barriers cause.

    `on_abort`: this task will not take part in a checkpoint. `on_in_flight`: all barriers of an unaligned checkpoint have come;
    gets the data in flight by channel. `on_timer_set`: gets the time, on the `now_ms` clock, at which `on_timer` has to be called.
    """

    on_abort: OnAbort = _notify_nobody
    on_in_flight: OnInFlight = _keep_nothing
    on_timer_set: Callable[[int], None] = _never


NO_INPUT_HOOKS: Final = InputHooks()


@dataclass(slots=True)
class _Collecting:
    """A checkpoint whose barriers are coming in. `channels`: those that have delivered theirs.

    `first_ms`, `first_bytes`: when the first one came, and how much had been read by then.
    """

    barrier: CheckpointBarrier
    first_ms: int
    first_bytes: int
    channels: set[int] = field(default_factory=set)


class InputCheckpoints:
    """Handles the barriers of all inputs. Channels are numbered consecutively through the inputs. Mailbox thread.

    `alignment_ms`, `processed_bytes`: of the newest checkpoint with a snapshot, the time from its first barrier to its last one,
    and what was read meanwhile; as long as barriers overtake data, up to the snapshot. `in_flight`: what is being recorded;
    None: nothing.
    """

    def __init__(
        self,
        handler: BarrierHandler,
        now_ms: Callable[[], int],
        channels: InputChannels,
        hooks: InputHooks,
        dumps: Dumps = plain_dumps,
    ) -> None:
        """`dumps`: pickles the records in flight."""
        self.alignment_ms = 0
        self.processed_bytes = 0
        self.in_flight: InputsInFlight | None = None
        self._handler = handler
        self._now_ms = now_ms
        self._channels = channels
        self._hooks = hooks
        self._dumps = dumps
        self._barriers: dict[int, _Collecting] = {}
        self._last_id = -1
        self._newest: _Collecting | None = None
        self._timer_ms: int | None = None

    @property
    def alignment_so_far_ms(self) -> int:
        """The time of the alignment that lasts, or of the last one. Any thread."""
        began_ms = [one.first_ms for one in list(self._barriers.values())]
        return max(0, self._now_ms() - min(began_ms)) if began_ms else self.alignment_ms

    def on_barrier(
        self, barrier: CheckpointBarrier, channel: int, overtaken: Overtaken = _nothing_overtaken
    ) -> Sequence[Element]:
        """A barrier came through this channel, ahead of the `overtaken` data. Returns what the task has to do before it reads on."""
        checkpoint_id = barrier.checkpoint_id
        collecting = self._collecting(barrier)
        actions = self._handler.on_barrier(barrier, channel, self._now_ms())

        def record() -> None:
            if self.in_flight is not None and self.in_flight.checkpoint_id == checkpoint_id:
                self.in_flight.on_barrier(channel, overtaken)

        elements = self._perform(actions, record)
        record()
        if collecting is not None and not barrier.is_unaligned:
            collecting.channels.add(channel)
        self._watch_timer()
        return elements

    def on_announcement(
        self, barrier: CheckpointBarrier, channel: int, sequence: int
    ) -> Sequence[Element]:
        """A barrier waits in this channel's queue. Returns as `on_barrier`."""
        self._collecting(barrier)
        elements = self._perform(self._handler.on_announcement(barrier, channel, sequence))
        self._watch_timer()
        return elements

    def _collecting(self, barrier: CheckpointBarrier) -> _Collecting | None:
        """The barriers so far. None: the snapshot of this checkpoint or of a newer one was taken before."""
        checkpoint_id = barrier.checkpoint_id
        if checkpoint_id > self._last_id and checkpoint_id not in self._barriers:
            now_ms, bytes_in = self._now_ms(), self._channels.bytes_in
            self._barriers[checkpoint_id] = _Collecting(barrier, now_ms, bytes_in)
        return self._barriers.get(checkpoint_id)

    def _watch_timer(self) -> None:
        timer_ms = self._handler.timer_ms
        if timer_ms is not None and timer_ms != self._timer_ms:
            self._timer_ms = timer_ms
            self._hooks.on_timer_set(timer_ms)

    @property
    def is_overtaking(self) -> bool:
        """Whether the barriers of the pending checkpoint go ahead of all data."""
        return self._handler.is_overtaking

    def is_recording(self, checkpoint_id: int) -> bool:
        """Whether some barriers of the checkpoint are still to come, so that data before them belongs to it."""
        return self.in_flight is not None and self.in_flight.checkpoint_id == checkpoint_id

    def forget(self, checkpoint_id: int) -> None:
        """The checkpoint was aborted: stop recording its data in flight, even if its barriers come much later."""
        if self.is_recording(checkpoint_id):
            self.in_flight = None

    def on_cancel(self, marker: CancelCheckpointMarker, channel: int) -> Sequence[Element]:
        return self._perform(self._handler.on_cancel(marker.checkpoint_id, channel))

    def on_end_of_partition(self, channel: int) -> Sequence[Element]:
        return self._perform(self._handler.on_end_of_partition(channel, self._now_ms()))

    def on_timer(self) -> Sequence[Element]:
        """Act on an alignment that has timed out. Returns as `on_barrier`."""
        return self._perform(self._handler.on_timer(self._now_ms()))

    def _perform(
        self, actions: list[Action], record: Callable[[], None] | None = None
    ) -> Sequence[Element]:
        """Carry the actions out. `record`: records what this barrier has overtaken; called before the recording ends."""
        elements: list[Element] = []
        aborted = {one.checkpoint_id for one in actions if isinstance(one, Abort)}
        for action in actions:
            if isinstance(action, Resume):
                for channel in action.channels:
                    self._channels.resume(channel)
            elif isinstance(action, Trigger):
                elements.append(self._collected(action))
            elif isinstance(action, Prioritize):
                for channel, sequence in action.announced:
                    self._channels.prioritize(channel, sequence)
            elif isinstance(action, PersistStart):
                arrived = self._barriers[action.checkpoint_id].channels
                self.in_flight = InputsInFlight(action.checkpoint_id, arrived, self._dumps)
                for channel, batch in self._channels.recovered():
                    self.in_flight.keep(channel, batch)
            elif isinstance(action, PersistStop):
                if record is not None:
                    record()
                self._stop_recording(action.checkpoint_id, aborted)
            elif isinstance(action, Abort):
                self._barriers.pop(action.checkpoint_id, None)
                self._hooks.on_abort(action.checkpoint_id, action.reason)
                elements.append(CancelCheckpointMarker(action.checkpoint_id))
        return elements

    def _collected(self, action: Trigger) -> CheckpointBarrier:
        """The barrier to take the snapshot at, and to pass on. Earlier checkpoints will not be taken any more."""
        checkpoint_id = action.checkpoint_id
        found = self._barriers[checkpoint_id]
        self._last_id = checkpoint_id
        self._barriers = {i: b for i, b in self._barriers.items() if i > checkpoint_id}
        self._newest = found
        self._measure(found)
        is_late = action.is_unaligned and not found.barrier.is_unaligned
        return found.barrier.as_unaligned() if is_late else found.barrier.after_forced_aligned()

    def _measure(self, found: _Collecting) -> None:
        self.alignment_ms = max(0, self._now_ms() - found.first_ms)
        self.processed_bytes = self._channels.bytes_in - found.first_bytes

    def _stop_recording(self, checkpoint_id: int, aborted: set[int]) -> None:
        newest = self._newest
        if newest is not None and newest.barrier.checkpoint_id == checkpoint_id:
            self._measure(newest)
        recorded, self.in_flight = self.in_flight, None
        is_this = recorded is not None and recorded.checkpoint_id == checkpoint_id
        if recorded is not None and is_this and checkpoint_id not in aborted:
            self._hooks.on_in_flight(checkpoint_id, recorded.channels())


_FRAME: Final = struct.Struct("<BQ")  # kind, length in bytes


class RecordedChannel:
    """Batches of one channel, encoded at once, because user code may change their records afterwards."""

    __slots__ = ("_encoder", "data")

    def __init__(self, dumps: Dumps) -> None:
        self._encoder = ChannelEncoder(dumps)
        self.data = bytearray()

    def add(self, batch: Batch) -> None:
        """Raises: what `dumps` raises."""
        kind, parts = self._encoder.encode(batch)
        self.data += _FRAME.pack(kind, size_of(parts))
        for part in parts:
            self.data += memoryview(part)


def recorded(batches: Iterable[Batch], dumps: Dumps = plain_dumps) -> bytes:
    """The batches as bytes, in order; empty if there are none."""
    channel = RecordedChannel(dumps)
    for batch in batches:
        channel.add(batch)
    return bytes(channel.data)


def replayed(data: bytes, loads: Callable[[Part], Any]) -> Iterator[Batch]:
    """The batches that were recorded."""
    decoder, view, position = ChannelDecoder(loads), memoryview(data), 0
    while position < len(view):
        kind, size = _FRAME.unpack_from(view, position)
        position += _FRAME.size
        element = decoder.decode(kind, bytes(view[position : position + size]))
        assert isinstance(element, (RowBatch, ColumnBatch)), "only records are kept in flight"
        yield element
        position += size


class InputsInFlight:
    """Data in flight of an unaligned checkpoint: data that barriers overtake. It is kept with the state and replayed
    before new data.

    Each channel has one byte string with whole batches in order. Knows channels only by their numbers, and no files.
    Source: Flink ChannelStateWriter, ChannelStatePersister, RecoveredInputChannel
    (docs/spec/checkpoints.md#data-in-flight). Differs: the mailbox thread does the recording, in two cases: when it
    reads data that was sent before the barrier, and when it reads a barrier that has overtaken data.

    What one checkpoint records per channel: data that was sent before the barrier and not processed before the
    snapshot.
    """

    def __init__(self, checkpoint_id: int, arrived: Iterable[int], dumps: Dumps) -> None:
        """`arrived`: channels whose barrier came in order, after its data, so that nothing of them
        is in flight.
        """
        self.checkpoint_id = checkpoint_id
        self._arrived = set(arrived)
        self._dumps = dumps
        self._channels: dict[int, RecordedChannel] = {}

    def keep(self, channel: int, batch: Batch) -> None:
        """Record data that the restored checkpoint had in flight and that is not processed yet. Comes before all other calls."""
        self._of(channel).add(batch)

    def on_data(self, channel: int, batch: Batch) -> None:
        """Record data that is read after the snapshot, unless the barrier of this channel has come."""
        if channel not in self._arrived:
            self._of(channel).add(batch)

    def on_barrier(self, channel: int, overtaken: Callable[[], Sequence[Batch]]) -> None:
        """The barrier has come, ahead of the `overtaken` data. Only the first barrier of a channel counts."""
        if channel in self._arrived:
            return
        self._arrived.add(channel)
        for batch in overtaken():
            self._of(channel).add(batch)

    def channels(self) -> dict[int, bytes]:
        """The recorded bytes by channel, without the channels that had nothing."""
        return {channel: bytes(one.data) for channel, one in self._channels.items()}

    def _of(self, channel: int) -> RecordedChannel:
        found = self._channels.get(channel)
        if found is None:
            found = self._channels[channel] = RecordedChannel(self._dumps)
        return found
