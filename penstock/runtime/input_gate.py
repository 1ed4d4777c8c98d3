"""Input side of a task: channels, fair reading, watermark valve per logical input.

Source: Flink SingleInputGate, UnionInputGate, StreamTaskNetworkInput, StatusWatermarkValve. Differs: the gates
of a task share one ready-queue (round robin over all channels, one frame a turn), and channels of several
gates with one `input_index` form one logical input, as a union does. A channel is made when somebody asks for
it, so that a gate of ten thousand costs nothing until it is connected.

Producers and the network thread call `InputChannel.notify`; everything else belongs to the mailbox thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, overload

from penstock.model.errors import EngineBug
from penstock.runtime.elements import (
    ColumnBatch,
    Element,
    EndOfData,
    EndOfPartition,
    LatencyMarker,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from penstock.runtime.watermark_valve import StatusWatermarkValve


class ChannelSource(Protocol):
    """Where a channel's frames come from: a local subpartition or a connection."""

    def poll(self) -> Element | None: ...
    def release(self) -> None: ...


class InputChannel:
    """One consumed subpartition. Unknown until `connect` gives it a source."""

    __slots__ = ("_gates", "index", "is_finished", "is_queued", "logical", "source")

    def __init__(self, gates: InputGates, logical: LogicalInput, index: int) -> None:
        self._gates = gates
        self.logical = logical
        self.index = index
        self.source: ChannelSource | None = None
        self.is_queued = False
        self.is_finished = False

    def connect(self, source: ChannelSource) -> None:
        """The producer's place is known: from now on the channel can be read."""
        self.source = source
        self.notify()

    def notify(self) -> None:
        """There may be data. Any thread; a spurious call costs one empty poll."""
        if not self.is_queued:
            self.is_queued = True
            self._gates.enqueue(self)

    def poll(self) -> Element | None:
        return None if self.source is None else self.source.poll()

    def release(self) -> None:
        if self.source is not None:
            self.source.release()


class GateChannels(Sequence[InputChannel]):
    """Channels of one gate. Mailbox thread only."""

    __slots__ = ("_count", "_first", "_gates", "_logical", "_made")

    def __init__(self, gates: InputGates, logical: LogicalInput, count: int) -> None:
        self._gates = gates
        self._logical = logical
        self._first = logical.channels
        self._count = count
        self._made: list[InputChannel | None] = []

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> InputChannel: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[InputChannel]: ...
    def __getitem__(self, place: int | slice) -> InputChannel | Sequence[InputChannel]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(self._count))]
        if not self._made:
            self._made = [None] * self._count
        channel = self._made[place]
        if channel is None:
            at = place % self._count
            self._made[at] = channel = InputChannel(self._gates, self._logical, self._first + at)
        return channel

    @property
    def made(self) -> Iterator[InputChannel]:
        """Those that somebody has asked for."""
        return (channel for channel in self._made if channel is not None)


class LogicalInput:
    """One input of the head operator: all its gates, their `channels` (count), and their valve."""

    __slots__ = (
        "channels",
        "ended_data",
        "ended_partitions",
        "gates",
        "index",
        "is_ended",
        "valve",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.channels = 0
        self.gates: list[GateChannels] = []
        self.ended_data = 0
        self.ended_partitions = 0
        self.is_ended = False
        self.valve: StatusWatermarkValve | None = None


class InputGates:
    """All gates of one task."""

    is_source = False

    def __init__(self, wake: Callable[[], None]) -> None:
        self._ready: deque[InputChannel] = deque()
        self._wake = wake
        self._unfinished = 0
        self.inputs: dict[int, LogicalInput] = {}
        self.records_in = 0

    def add_gate(self, input_index: int, channels: int) -> GateChannels:
        """New channels of a logical input; before `start`."""
        logical = self.inputs.setdefault(input_index, LogicalInput(input_index))
        added = GateChannels(self, logical, channels)
        logical.gates.append(added)
        logical.channels += channels
        self._unfinished += channels
        return added

    def start(self) -> None:
        for logical in self.inputs.values():
            logical.valve = StatusWatermarkValve(logical.channels)

    def enqueue(self, channel: InputChannel) -> None:
        self._ready.append(channel)
        self._wake()

    @property
    def is_finished(self) -> bool:
        """Every channel has ended."""
        return self._unfinished == 0

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def poll(self) -> tuple[int, Sequence[Element]] | None:
        """Elements for the head operator with their logical input, or None for now.

        EndOfData comes out once per logical input, when its last channel has it.
        """
        while self._ready:
            channel = self._ready.popleft()
            channel.is_queued = False  # before polling: what arrives after this queues it again
            if channel.is_finished:
                continue
            element = channel.poll()
            if element is None:
                continue
            if not channel.is_queued:  # else: its producer has queued it in the meantime
                channel.is_queued = True  # to the tail: one frame a turn
                self._ready.append(channel)
            outputs = self._accept(channel, element)
            if outputs:
                return channel.logical.index, outputs
        return None

    def release(self) -> None:
        for logical in self.inputs.values():
            for gate in logical.gates:
                for channel in gate.made:
                    channel.release()

    def _accept(self, channel: InputChannel, element: Element) -> Sequence[Element]:
        logical = channel.logical
        if isinstance(element, (RowBatch, ColumnBatch)):
            self.records_in += len(element)
            return (element,)
        if logical.valve is None:
            raise EngineBug("a gate was polled before it was started")
        if isinstance(element, Watermark):
            return logical.valve.input_watermark(element.timestamp_ms, channel.index)
        if isinstance(element, WatermarkStatus):
            return logical.valve.input_status(element, channel.index)
        if isinstance(element, LatencyMarker):
            return (element,)
        if isinstance(element, EndOfData):
            return self._end_of_data(logical, element)
        if isinstance(element, EndOfPartition):
            self._end_of_partition(channel)
            return ()
        raise EngineBug(f"unexpected element {element!r} on channel {channel.index}")

    def _end_of_data(self, logical: LogicalInput, end: EndOfData) -> Sequence[Element]:
        logical.ended_data += 1
        if logical.ended_data < logical.channels:
            return ()
        logical.is_ended = True
        return (end,)

    def _end_of_partition(self, channel: InputChannel) -> None:
        channel.is_finished = True
        channel.release()
        channel.logical.ended_partitions += 1
        self._unfinished -= 1
