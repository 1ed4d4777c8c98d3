"""SingleInputGate: the channels of one consumed data set, read fairly.

Does not know operators or watermarks. Channels that have something to read stand in a queue; each
gives one element and goes to the tail. Producers and the network thread put channels in; everything
else belongs to the mailbox thread. Source: Flink SingleInputGate, InputGateWithMetrics
(docs/spec/exchange.md#input-gate). Differs: a channel object is made when it is first used, so that
a gate of ten thousand channels costs nothing until it is connected; availability is a property and
a call to the listener instead of a future; the listener gets a call for the first element, not for
each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from penstock.engine.model.deployment import ShuffleDescriptor
from penstock.engine.model.errors import EngineBug
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.runtime.elements import Batch, CheckpointBarrier, EndOfData, EndOfPartition
from penstock.engine.runtime.network.gate.channel import (
    InputChannel,
    LocalInputChannel,
    UnknownInputChannel,
)
from penstock.engine.runtime.network.gate.ports import GateContext, GateListener, InputClosed
from penstock.engine.runtime.network.gate.remote_channel import RemoteInputChannel
from penstock.engine.runtime.network.network_memory import LocalBufferPool, PoolLimits, gate_buffers
from penstock.engine.runtime.network.prioritized_deque import PrioritizedDeque
from penstock.engine.runtime.network.subpartition_view import NextType, Polled, is_not_after

Announced: TypeAlias = tuple[int, CheckpointBarrier, int]
"""Index of the channel in the gate, the barrier, its sequence number in the channel."""


class EndOfDataStatus(StrEnum):
    """The end of data over all channels together."""

    NOT_END_OF_DATA = "NOT_END_OF_DATA"
    DRAINED = "DRAINED"
    STOPPED = "STOPPED"


class SingleInputGate:
    """One gate. `index`: its index in its task. `channels`: their number. `last_channel`: index of the channel that
    was polled last.
    """

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
        """The gate can be read only after `setup`, and gets data only after `request_partitions`."""
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

        Raises: InsufficientBuffers: they do not fit into the network memory. EngineBug: it was called before.
        """
        if self._pool is not None:
            raise EngineBug(f"gate {self.index} was set up twice")
        limits = PoolLimits(self.buffers.required_floating, self.buffers.total_floating)
        self._pool = self.context.memory.create_pool(limits, on_resize=self._announce)

    @property
    def pool(self) -> LocalBufferPool:
        """The pool of the floating buffers. Raises: EngineBug: before `setup`."""
        if self._pool is None:
            raise EngineBug(f"gate {self.index} was used before it was set up")
        return self._pool

    # ------------------------------------------------------------------ channels

    def channel(self, place: int) -> InputChannel:
        """The channel with this index; it is unknown until `update_channel`. `place`: in [0, channels)."""
        if not self._made:
            self._made = [None] * self.channels
        made = self._made[place]
        if made is None:
            self._made[place] = made = UnknownInputChannel(self, place % self.channels)
        return made

    @property
    def made(self) -> Iterator[InputChannel]:
        """The channels that have been made so far."""
        return (channel for channel in self._made if channel is not None)

    def update_channel(self, place: int, descriptor: ShuffleDescriptor, subpartition: int) -> None:
        """The producer's location is known: make the channel local or remote. A second call does nothing.

        If the gate has requested its partitions, this one is requested at once. Raises: InsufficientBuffers.
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
        """Request all partitions with a known location. The others are requested when their location is known.

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
        """Send an event to all producers. Those with an unknown location get it later."""
        for place in range(self.channels):
            self.channel(place).send_task_event(event)

    def resume(self, place: int) -> None:
        """Go on with a channel after an element that blocked it. Raises: EngineBug: the gate is finished."""
        if self.is_finished:
            raise EngineBug(
                f"channel {place} of gate {self.index} has ended, so it cannot be resumed"
            )
        self.channel(place).resume()

    def overtaken(self, place: int, sequence: int) -> Sequence[Batch]:
        """See `InputChannel.overtaken`."""
        return self.channel(place).overtaken(sequence)

    def prioritize(self, place: int, sequence: int) -> None:
        """See `InputChannel.prioritize`."""
        self.channel(place).prioritize(sequence)

    def take_announced(self) -> Iterator[Announced]:
        """Barriers that were announced since the last call. Mailbox thread."""
        while self._announced:
            yield self._announced.popleft()

    @staticmethod
    def _request(channel: InputChannel) -> None:
        try:
            channel.request()
        except Exception as error:
            channel.on_error(error)  # raised when the channel is read

    # ------------------------------------------------------------------ reports of channels: any thread

    def on_channel_data(self, channel: InputChannel) -> None:
        """The channel may have something to read."""
        self._ready.offer(channel)

    def on_channel_priority(self, channel: InputChannel, sequence: int | None) -> None:
        """The element with this number has priority. Ignored if it was polled already. None: it was certainly not polled."""
        last = channel.last_priority
        if sequence is None or last is None or not is_not_after(sequence, last):
            self._ready.offer_priority(channel)

    def on_channel_announced(
        self, channel: InputChannel, barrier: CheckpointBarrier, sequence: int
    ) -> None:
        """A barrier with this number waits in the channel's queue, and its alignment can time out."""
        self._announced.append((channel.index, barrier, sequence))
        self.listener.notify_announced()

    @property
    def listener(self) -> GateListener:
        """The listener that is called when there is something to read."""
        return self._ready.listener

    # ------------------------------------------------------------------ reading: mailbox thread

    @property
    def is_finished(self) -> bool:
        """Whether every channel has ended."""
        return self._ended == self.channels

    @property
    def has_more(self) -> bool:
        """Whether some channel may have something to read."""
        return len(self._ready) > 0

    @property
    def has_priority(self) -> bool:
        return self._ready.has_priority

    @property
    def is_available(self) -> bool:
        """Whether polling is worth it. Stays true once the gate is finished, so that the reader finds out."""
        return len(self._ready) > 0 or self._ended == self.channels

    @property
    def end_of_data(self) -> EndOfDataStatus:
        if self._ended_data < self.channels:
            return EndOfDataStatus.NOT_END_OF_DATA
        return EndOfDataStatus.DRAINED if self._is_drained else EndOfDataStatus.STOPPED

    def poll(self) -> Polled | None:
        """Return one element of the channel that has waited longest; None: none for now.
        `last_channel` is that channel.

        Raises: the error of that channel; InputClosed: the gate was closed.
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
        # A finished channel is not queued again.
        channel.is_finished = True
        self._ready.remove(channel)
        channel.release()
        self._ended += 1
        if self._ended == self.channels:
            self.listener.notify_available()

    def close(self) -> None:
        """Release all channels and buffers. A thread that reads on gets InputClosed. May be called twice."""
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
        """The size that the producers' frames should have."""
        largest = self.largest_buffer_bytes
        return largest if self._wanted_bytes is None else min(self._wanted_bytes, largest)

    @property
    def largest_buffer_bytes(self) -> int:
        """The largest size that the pool allows."""
        return self.pool.buffer_bytes

    def debloat_to(self, buffer_bytes: int) -> None:
        """Ask all producers for buffers of this size from now on."""
        self._wanted_bytes = buffer_bytes
        self._announce()

    def _announce(self) -> None:
        """Any thread: the network memory also calls this when pools are created or destroyed."""
        if self._pool is not None:
            wanted = self.buffer_bytes
            for channel in self.made:
                channel.announce_buffer_size(wanted)

    @property
    def bytes_in(self) -> int:
        return sum(channel.bytes_in for channel in self.made)

    @property
    def remote_bytes_in(self) -> int:
        """Bytes that were received from other TaskManagers."""
        remote = (channel for channel in self.made if isinstance(channel, RemoteInputChannel))
        return sum(channel.bytes_in for channel in remote)

    @property
    def queued_buffers(self) -> int:
        """Buffers that wait for the reader, as far as they are here or were announced."""
        return sum(channel.queued_buffers for channel in self.made)

    @property
    def buffers_in_use(self) -> int:
        """Data buffers that wait for the reader, including those that senders have announced."""
        return sum(channel.buffers_in_use for channel in self.made)


GateMaker: TypeAlias = Callable[[GateListener], SingleInputGate]
"""Makes a gate that calls this listener."""


class Entry(Protocol):
    """`is_queued`: the queue's own mark. `is_finished`: the entry is never queued again."""

    is_queued: bool

    @property
    def is_finished(self) -> bool: ...


E = TypeVar("E", bound=Entry)


class ReadyQueue(Generic[E]):
    """Which channels of a gate, or which gates of a union, have something to read, in fair turns.

    Producers and the network thread put entries in, the mailbox thread takes them out. The listener
    is called outside the lock. Source: Flink SingleInputGate.inputChannelsWithData,
    UnionInputGate.inputGatesWithData (docs/spec/exchange.md#input-gate, #union-of-gates).

    Holds each entry at most once. `listener`: called for the first entry, and for the first one with priority.
    """

    __slots__ = ("_entries", "_lock", "listener")

    def __init__(self, lock: AbstractContextManager[Any], listener: GateListener) -> None:
        self.listener = listener
        self._lock = lock
        self._entries: PrioritizedDeque[E] = PrioritizedDeque()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def has_priority(self) -> bool:
        return self._entries.priority_count > 0

    def offer(self, entry: E) -> None:
        """The entry may have something to read. Any thread."""
        with self._lock:
            if entry.is_queued or entry.is_finished:
                return
            entry.is_queued = True
            self._entries.add(entry)
            is_first = len(self._entries) == 1
        if is_first:
            self.listener.notify_available()

    def offer_priority(self, entry: E) -> None:
        """The entry has an element with priority, so it goes before all entries without one. Any thread."""
        with self._lock:
            if entry.is_finished or not self._prioritize(entry):
                return
            is_first = len(self._entries) == 1
            is_first_priority = self._entries.priority_count == 1
        if is_first_priority:
            self.listener.notify_priority()
        if is_first:
            self.listener.notify_available()

    def take(self) -> E | None:
        """Remove and return the first entry. It may be offered again from now on, so look for its data only after this call."""
        with self._lock:
            entry = self._entries.poll()
            if entry is not None:
                entry.is_queued = False
            return entry

    def put_back(self, entry: E, *, has_priority: bool) -> None:
        """The entry has more: put it at the tail, or among those with priority. Calls no listener, because the reader is running."""
        with self._lock:
            if has_priority:
                self._prioritize(entry)
            elif not entry.is_queued:
                # Otherwise it was offered in the meantime.
                entry.is_queued = True
                self._entries.add(entry)

    def remove(self, entry: E) -> None:
        with self._lock:
            if entry.is_queued:
                entry.is_queued = False
                self._entries.remove(entry)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def _prioritize(self, entry: E) -> bool:
        """Give the entry priority. The lock is held. Returns whether it had none before."""
        if not entry.is_queued:
            entry.is_queued = True
            self._entries.add_priority(entry)
            return True
        if self._entries.has_priority(entry):
            return False
        self._entries.prioritize(entry)
        return True
