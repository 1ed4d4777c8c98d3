"""SingleInputGate: the channels of one consumed data set, read fairly.

Knows no operator and no watermark. Channels that have something stand in a queue; each gives one
element a turn and goes to its tail. Producers and the network thread put channels in; everything
else belongs to the mailbox thread. Source: Flink SingleInputGate, InputGateWithMetrics
(docs/spec/exchange.md#input-gate). Differs: a channel is made when somebody asks for it, so that a
gate of ten thousand costs nothing until it is connected; availability is a property and a call to
the listener instead of a future; the listener is told of the first element, not of each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

from penstock.model.deployment import ShuffleDescriptor
from penstock.model.errors import EngineBug
from penstock.model.graph.job_graph import ResultPartitionType
from penstock.runtime.elements import Batch, CheckpointBarrier, EndOfData, EndOfPartition
from penstock.runtime.network.gate.channel import InputChannel, UnknownInputChannel
from penstock.runtime.network.gate.local_channel import LocalInputChannel
from penstock.runtime.network.gate.ports import GateContext, GateListener, InputClosed
from penstock.runtime.network.gate.ready_queue import ReadyQueue
from penstock.runtime.network.gate.remote_channel import RemoteInputChannel
from penstock.runtime.network.network_memory import LocalBufferPool, PoolLimits, gate_buffers
from penstock.runtime.network.sequence import is_not_after
from penstock.runtime.network.subpartition_view import NextType, Polled

Announced: TypeAlias = tuple[int, CheckpointBarrier, int]
"""Channel of the gate, barrier, its number there."""


class EndOfDataStatus(StrEnum):
    """What all channels together have said of the end of their data."""

    NOT_END_OF_DATA = "NOT_END_OF_DATA"
    DRAINED = "DRAINED"
    STOPPED = "STOPPED"


class SingleInputGate:
    """`index`: of the gate in its task. `channels`: count. `last_channel`: index of the one polled last."""

    __slots__ = (
        "_announced", "_ended", "_ended_data", "_has_requested", "_is_drained", "_made", "_pool",
        "_ready", "_wanted_bytes", "buffers", "channels", "context", "index",
        "is_closed", "last_channel",
    )  # fmt: skip

    def __init__(
        self,
        index: int,
        channels: int,
        context: GateContext,
        listener: GateListener,
        result_type: ResultPartitionType = ResultPartitionType.PIPELINED_BOUNDED,
    ) -> None:
        """Nothing can be read before `setup`, nothing comes before `request_partitions`."""
        settings = context.settings
        self.index = index
        self.channels = channels
        self.context = context
        self.last_channel = -1
        self.is_closed = False
        self.buffers = gate_buffers(
            channels,
            per_channel=settings.exclusive_of(channels),
            floating=settings.floating_per_gate,
            max_required=settings.required_cap(result_type),
        )
        self._pool: LocalBufferPool | None = None
        self._wanted_bytes: int | None = None
        self._ready: ReadyQueue[InputChannel] = ReadyQueue(context.new_lock(), listener)
        self._made: list[InputChannel | None] = []
        self._has_requested = False
        self._announced: deque[Announced] = deque()
        self._ended = 0
        self._ended_data = 0
        self._is_drained = True

    def setup(self) -> None:
        """Get the floating buffers.

        Raises: InsufficientBuffers: they do not fit into the network memory. EngineBug: a second time.
        """
        if self._pool is not None:
            raise EngineBug(f"gate {self.index} was set up twice")
        limits = PoolLimits(self.buffers.required_floating, self.buffers.total_floating)
        self._pool = self.context.memory.create_pool(limits, on_resize=self._announce)

    @property
    def pool(self) -> LocalBufferPool:
        """Of the floating buffers. Raises: EngineBug: before `setup`."""
        if self._pool is None:
            raise EngineBug(f"gate {self.index} was used before it was set up")
        return self._pool

    # ------------------------------------------------------------------ channels

    def channel(self, place: int) -> InputChannel:
        """The channel, unknown if it was not updated. `place`: in [0, channels)."""
        if not self._made:
            self._made = [None] * self.channels
        made = self._made[place]
        if made is None:
            self._made[place] = made = UnknownInputChannel(self, place % self.channels)
        return made

    @property
    def made(self) -> Iterator[InputChannel]:
        """Those that there are already."""
        return (channel for channel in self._made if channel is not None)

    def update_channel(self, place: int, descriptor: ShuffleDescriptor, subpartition: int) -> None:
        """The producer's place is known: the channel becomes local or remote. Once it is, nothing happens.

        If the gate has requested its partitions this one is asked for at once. Raises: InsufficientBuffers.
        """
        location, partition_id = descriptor.location, descriptor.result_partition_id
        former = self.channel(place)
        if self.is_closed or location is None or partition_id is None:
            return
        if not isinstance(former, UnknownInputChannel):
            return
        channel: InputChannel
        if location.resource_id == self.context.resource_id:
            channel = LocalInputChannel(self, former.index, partition_id, subpartition)
        else:
            channel = RemoteInputChannel(self, former.index, partition_id, subpartition, location)
        self._made[place] = channel
        if self._has_requested:
            self._request(channel)
        for event in former.task_events:
            channel.send_task_event(event)

    def request_partitions(self) -> None:
        """Ask for everything that is known; what becomes known later is asked for then.

        Raises: EngineBug: the gate is closed.
        """
        if self.is_closed:
            raise EngineBug(f"gate {self.index} was asked for its partitions after it was closed")
        if self._has_requested:
            return
        self._has_requested = True
        for channel in self.made:
            self._request(channel)

    def send_task_event(self, event: Any) -> None:
        """To all producers; to those that are not known yet, later."""
        for place in range(self.channels):
            self.channel(place).send_task_event(event)

    def resume(self, place: int) -> None:
        """Go on with a channel after an element that blocks it. Raises: EngineBug: the gate is finished."""
        if self.is_finished:
            raise EngineBug(f"channel {place} of gate {self.index} has ended; nothing to resume")
        self.channel(place).resume()

    def overtaken(self, place: int, sequence: int) -> Sequence[Batch]:
        """See `InputChannel.overtaken`."""
        return self.channel(place).overtaken(sequence)

    def prioritize(self, place: int, sequence: int) -> None:
        """See `InputChannel.prioritize`."""
        self.channel(place).prioritize(sequence)

    def take_announced(self) -> Iterator[Announced]:
        """Barriers that have come to stand in queues since the last call. Mailbox thread."""
        while self._announced:
            yield self._announced.popleft()

    @staticmethod
    def _request(channel: InputChannel) -> None:
        try:
            channel.request()
        except Exception as error:
            channel.on_error(error)  # surfaces where the channel is read

    # ------------------------------------------------------------------ who has something: any thread

    def on_channel_data(self, channel: InputChannel) -> None:
        """The channel may have something."""
        self._ready.offer(channel)

    def on_channel_priority(self, channel: InputChannel, sequence: int | None) -> None:
        """The element with this number has priority; ignored when that one was polled already. None: surely not polled."""
        last = channel.last_priority
        if sequence is None or last is None or not is_not_after(sequence, last):
            self._ready.offer_priority(channel)

    def on_channel_announced(
        self, channel: InputChannel, barrier: CheckpointBarrier, sequence: int
    ) -> None:
        """A barrier with this number stands in the channel's queue, and may become late there."""
        self._announced.append((channel.index, barrier, sequence))
        self.listener.notify_announced()

    @property
    def listener(self) -> GateListener:
        """Who is told that there is something to read."""
        return self._ready.listener

    def report_to(self, listener: GateListener) -> None:
        """From now on it is told. For the union that reads this gate."""
        self._ready.listener = listener

    # ------------------------------------------------------------------ reading: mailbox thread

    @property
    def is_finished(self) -> bool:
        """Every channel has ended."""
        return self._ended == self.channels

    @property
    def has_more(self) -> bool:
        """Some channel has announced something."""
        return len(self._ready) > 0

    @property
    def has_priority(self) -> bool:
        return self._ready.has_priority

    @property
    def is_available(self) -> bool:
        """Worth polling. For ever, once it is finished: the reader has to learn that."""
        return len(self._ready) > 0 or self._ended == self.channels

    @property
    def end_of_data(self) -> EndOfDataStatus:
        if self._ended_data < self.channels:
            return EndOfDataStatus.NOT_END_OF_DATA
        return EndOfDataStatus.DRAINED if self._is_drained else EndOfDataStatus.STOPPED

    def poll(self) -> Polled | None:
        """One element of the channel that waits longest, or None for now; `last_channel` says whose it is.

        Raises: what went wrong on that channel; InputClosed: the gate was closed.
        """
        ready = self._ready
        while True:
            has_priority = ready.has_priority
            channel = ready.take()
            if channel is None:
                break
            polled = channel.poll()
            if polled is None:
                continue
            if has_priority:
                channel.last_priority = polled.sequence
            if polled.next is not NextType.NONE:
                ready.put_back(channel, has_priority=polled.next is NextType.PRIORITY_EVENT)
            element = polled.element
            if type(element) is EndOfData:
                self._on_end_of_data(channel, element)
            elif type(element) is EndOfPartition:
                self._on_end_of_partition(channel)
            self.last_channel = channel.index
            return polled
        if self.is_closed:
            raise InputClosed
        return None

    def _on_end_of_data(self, channel: InputChannel, end: EndOfData) -> None:
        if channel.has_ended_data:
            raise EngineBug(f"channel {channel.index} of gate {self.index} ended its data twice")
        channel.has_ended_data = True
        self._ended_data += 1
        self._is_drained = self._is_drained and end.drain
        channel.acknowledge_all_records()

    def _on_end_of_partition(self, channel: InputChannel) -> None:
        channel.is_finished = True  # from now on it is not queued again
        self._ready.remove(channel)
        channel.release()
        self._ended += 1
        if self._ended == self.channels:
            self.listener.notify_available()

    def close(self) -> None:
        """Release all channels and buffers; who reads on is unwound. May be called twice."""
        if self.is_closed:
            return
        self.is_closed = True
        for channel in self.made:
            channel.release()
        self._ready.clear()
        if self._pool is not None:
            self._pool.destroy()
        self.listener.notify_available()

    # ------------------------------------------------------------------ buffers and metrics

    @property
    def buffer_bytes(self) -> int:
        """How large the producers' frames should be."""
        largest = self.largest_buffer_bytes
        return largest if self._wanted_bytes is None else min(self._wanted_bytes, largest)

    @property
    def largest_buffer_bytes(self) -> int:
        """What the pool allows."""
        return self.pool.buffer_bytes

    def debloat_to(self, buffer_bytes: int) -> None:
        """Ask all producers for buffers of this size from now on."""
        self._wanted_bytes = buffer_bytes
        self._announce()

    def _announce(self) -> None:
        """Any thread: also from the network memory, as pools come and go."""
        if self._pool is not None:
            wanted = self.buffer_bytes
            for channel in self.made:
                channel.announce_buffer_size(wanted)

    @property
    def bytes_in(self) -> int:
        return sum(channel.bytes_in for channel in self.made)

    @property
    def remote_bytes_in(self) -> int:
        """Bytes that came over a socket."""
        remote = (channel for channel in self.made if isinstance(channel, RemoteInputChannel))
        return sum(channel.bytes_in for channel in remote)

    @property
    def queued_buffers(self) -> int:
        """What waits for the reader, as far as it is here or was told."""
        return sum(channel.queued_buffers for channel in self.made)

    @property
    def buffers_in_use(self) -> int:
        """Data buffers on their way to the reader, those that senders have announced too."""
        return sum(channel.buffers_in_use for channel in self.made)
