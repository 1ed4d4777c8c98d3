"""RemoteInputChannel: frames of a subpartition in another TaskManager, kept as bytes until the mailbox thread takes them.

Does not know sockets: a `PartitionClient` sends its messages. The network thread puts frames in,
the mailbox thread takes them out; the lock between them is never held while other objects are called.
Source: Flink RemoteInputChannel (docs/spec/exchange.md#channels, #a-partition-that-is-not-there,
#credit). Differs: a credit message waits until it brings at least as much credit as the sender has left.
A buffer is empty again when its frame is taken, so the one batch that the mailbox thread is processing
does not count. A barrier whose alignment can time out is announced outside the queue, not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from penstock.engine.model.errors import (
    BufferReordering,
    EngineBug,
    PartitionNotFound,
    ResultDataLost,
)
from penstock.engine.model.ids import ResultPartitionId, TaskManagerLocation
from penstock.engine.runtime.codecs.codec import ChannelDecoder
from penstock.engine.runtime.codecs.events import WITHOUT_CREDIT, FrameKind, decode_event
from penstock.engine.runtime.elements import Batch, CheckpointBarrier, ColumnBatch, RowBatch
from penstock.engine.runtime.network.gate.channel import ChannelOwner, InputChannel
from penstock.engine.runtime.network.gate.missing_partition import Backoff, ListenerBackoff
from penstock.engine.runtime.network.gate.ports import PartitionClient
from penstock.engine.runtime.network.network_memory import BufferListener, LocalBufferPool
from penstock.engine.runtime.network.prioritized_deque import PrioritizedDeque
from penstock.engine.runtime.network.subpartition_view import NextType, Polled, following, is_before


class ReceivedFrame(NamedTuple):
    """A frame that was received. `is_floating`: whether its buffer is floating; None: it has no buffer, as for events."""

    kind: int
    payload: bytes | memoryview
    sequence: int
    is_floating: bool | None


class RemoteInputChannel(InputChannel):
    """A channel from another TaskManager. `partition_id`, `subpartition`: what it reads; `location`: where that is."""

    __slots__ = (
        "_backoff",
        "_client",
        "_decoder",
        "_is_answered",
        "_lock",
        "credit",
        "expected",
        "frames",
        "location",
        "partition_id",
        "queued_bytes",
        "subpartition",
    )  # fmt: skip

    def __init__(
        self,
        gate: ChannelOwner,
        index: int,
        partition_id: ResultPartitionId,
        subpartition: int,
        location: TaskManagerLocation,
    ) -> None:
        """Takes its exclusive buffers from the network memory. Raises: InsufficientBuffers."""
        super().__init__(gate, index)
        context, settings = gate.context, gate.context.settings
        self.partition_id = partition_id
        self.subpartition = subpartition
        self.location = location
        self.queued_bytes = 0
        context.memory.reserve(gate.buffers.exclusive)
        most = frames_for(self.row_limit)
        self.credit = ReceiverCredit(
            gate.buffers.exclusive, gate.pool, self._on_floating_offered, most
        )
        self._lock: AbstractContextManager[Any] = context.new_lock()
        self.frames: PrioritizedDeque[ReceivedFrame] = PrioritizedDeque()
        self._decoder = ChannelDecoder(context.loads)
        self._client: PartitionClient | None = None
        self._is_answered = False
        self.expected = 0
        self._backoff = (
            ListenerBackoff(settings.request_timeout_ms, settings.max_backoff_ms)
            if settings.request_timeout_ms > 0
            else Backoff(settings.initial_backoff_ms, settings.max_backoff_ms)
        )

    # ------------------------------------------------------------------ asking for it

    @property
    def first_credit(self) -> int:
        """The credit that is sent with the request."""
        return self.credit.outstanding

    @property
    def frame_bytes(self) -> int:
        """The frame size that is sent with the request."""
        return self.gate.buffer_bytes

    @property
    def row_limit(self) -> int | None:
        """The limit of records in flight that is sent with the request."""
        return self.gate.context.in_flight.rows

    def request(self) -> None:
        if not self.is_released:
            self.gate.context.host.request(self, self.location)

    def on_connected(self, client: PartitionClient) -> bool:
        """Any thread, before the request is sent. False: the channel was released."""
        with self._lock:
            self._client = client
            self._is_answered = False
            return not self.is_released

    def on_not_found(self) -> None:
        """Any thread. The producer's TaskManager does not have the partition, although it has waited for it."""
        if not self.is_released:
            self.gate.context.host.ask_producer(self.partition_id, self.retry)

    def retry(self) -> None:
        """The producer may still register the partition: ask again, unless the time for that is over."""
        if not self._backoff.increase():
            self.on_error(
                PartitionNotFound(
                    f"partition {self.partition_id} was not found at {self.location.resource_id} "
                    f"({self.location.host}:{self.location.data_port}), and still not after "
                    f"{self._backoff.current_ms} ms. See why its producer is late, or raise "
                    "taskmanager.network.request-backoff.max."
                )
            )
        elif isinstance(self._backoff, ListenerBackoff):
            self.request()
        else:
            self.gate.context.host.call_later(self._backoff.current_ms, self.request)

    def on_error(self, error: Exception) -> None:
        if isinstance(error, PartitionNotFound | ResultDataLost):
            error.partition_id = self.partition_id
        super().on_error(error)

    # ------------------------------------------------------------------ network thread

    def on_frame(
        self,
        kind: int,
        sequence: int,
        payload: bytes | memoryview,
        backlog: int = 0,
        *,
        has_priority: bool = False,
    ) -> None:
        """`backlog`: data batches that wait after this frame at the sender."""
        takes_buffer = kind <= FrameKind.COLUMNS
        kind &= ~WITHOUT_CREDIT
        announced: CheckpointBarrier | None = None
        if kind == FrameKind.BARRIER:
            barrier = decode_event(kind, payload)
            assert isinstance(barrier, CheckpointBarrier), (
                "a frame of kind BARRIER holds a CheckpointBarrier"
            )
            has_priority = has_priority or barrier.has_priority
            announced = barrier if barrier.is_timeoutable else None
        try:
            with self._lock:
                if self.is_released or self._error is not None:
                    # Frames after an error are dropped: an end of the partition among them would
                    # hide the error.
                    return
                self._check_sequence(sequence)
                is_floating = self.credit.take() if takes_buffer else None
                frame = ReceivedFrame(kind, payload, sequence, is_floating)
                if has_priority:
                    self.frames.add_priority(frame)
                else:
                    self.frames.add(frame)
                is_first_priority = has_priority and self.frames.priority_count == 1
                self.queued_bytes += len(payload)
                self.credit.on_backlog(backlog)
                is_answer, self._is_answered = not self._is_answered, True
                credit = self._credit_to_announce()
        except (BufferReordering, EngineBug) as error:
            self.on_error(error)
            return
        if is_first_priority:
            self.notify_priority(sequence)
        else:
            self.notify_data()
        if announced is not None:
            self.gate.on_channel_announced(self, announced, sequence)
        self._announce_credit(credit)
        if is_answer:
            self._announce_changes()

    def on_backlog(self, backlog: int) -> None:
        """The sender has this number of data batches and no credit."""
        with self._lock:
            if self.is_released:
                return
            self.credit.on_backlog(backlog)
            is_answer, self._is_answered = not self._is_answered, True
            credit = self._credit_to_announce()
        self._announce_credit(credit)
        if is_answer:
            self._announce_changes()

    def _announce_changes(self) -> None:
        """The producer has answered the request. Before, it may have waited for its partition, and would have missed other frames."""
        if self.gate.context.in_flight.has_changed:
            self.announce_row_limit()

    def _check_sequence(self, sequence: int) -> None:
        if sequence != self.expected:
            raise BufferReordering(
                f"frame {sequence} of {self.partition_id} came where {self.expected} was due: a "
                f"frame was lost, repeated or overtaken on the way from {self.location.resource_id}"
            )
        self.expected = following(sequence)

    # ------------------------------------------------------------------ mailbox thread

    def poll(self) -> Polled | None:
        with self._lock:
            frame = self.frames.poll()
            if frame is not None:
                gives_back = self._on_taken(frame)
                credit = self._credit_to_announce()
                next_type = self._next_type()
                after = len(self.frames)
        if frame is None:
            # Only after the frames that came before the error.
            self.check_error()
            return None
        if gives_back:
            self.gate.pool.recycle()
        self._announce_credit(credit)
        self.buffers_in += 1
        self.bytes_in += len(frame.payload)
        element = self._decoder.decode(frame.kind, frame.payload)
        return Polled(element, after, next_type, frame.sequence)

    def overtaken(self, sequence: int) -> Sequence[Batch]:
        """Their buffers stay filled, because the batches are read later, in their turn."""
        with self._lock:
            frames = [one for one in self.frames if is_before(one.sequence, sequence)]
        decoder = self._decoder.ahead()
        found = (decoder.decode(one.kind, one.payload) for one in frames)
        return [one for one in found if isinstance(one, (RowBatch, ColumnBatch))]

    def prioritize(self, sequence: int) -> None:
        with self._lock:
            found = next((one for one in self.frames if one.sequence == sequence), None)
            if found is not None:
                self.frames.prioritize(found)
        if found is not None:
            self.gate.on_channel_priority(self, None)

    def _on_taken(self, frame: ReceivedFrame) -> bool:
        """The buffer of this frame is empty again. The lock is held. Returns whether a floating buffer goes back to the pool."""
        self.queued_bytes -= len(frame.payload)
        if frame.is_floating is None:
            return False
        self.credit.filled -= 1
        return frame.is_floating or self.credit.recycle_exclusive()[0]

    def _next_type(self) -> NextType:
        head = self.frames.peek()
        if head is None:
            return NextType.NONE if self._error is None else NextType.EVENT
        if self.frames.priority_count:
            return NextType.PRIORITY_EVENT
        return NextType.DATA if head.kind <= FrameKind.COLUMNS else NextType.EVENT

    @property
    def queued_buffers(self) -> int:
        return len(self.frames)

    @property
    def buffers_in_use(self) -> int:
        """Queued frames, and the sender's backlog beyond the exclusive buffers."""
        return len(self.frames) + max(0, self.credit.required - self.credit.exclusive)

    def resume(self) -> None:
        if self._client is not None:
            self._client.resume()

    def acknowledge_all_records(self) -> None:
        if self._client is not None:
            self._client.acknowledge_all_records()

    def send_task_event(self, event: Any) -> None:
        if self._client is not None:
            self._client.task_event(event)

    def announce_buffer_size(self, buffer_bytes: int) -> None:
        if self._client is not None:
            self._client.new_buffer_size(buffer_bytes)

    def announce_row_limit(self) -> None:
        limit: int | None = -1
        while limit != self.row_limit:  # Another thread may send a former one meanwhile.
            with self._lock:
                limit = self.row_limit
                self.credit.most = frames_for(limit)
                credit = self._credit_to_announce()
                client = self._client if self._is_answered else None
            if client is not None:
                client.limit_rows(limit)
            self._announce_credit(credit)

    def release(self) -> None:
        with self._lock:
            if self.is_released:
                return
            self.is_released = True
            floating = self.credit.release_floating()
            floating += sum(1 for frame in self.frames if frame.is_floating)
            self.frames.clear()
            self.queued_bytes = 0
            client = self._client
        for _ in range(floating):
            self.gate.pool.recycle()
        self.gate.context.memory.unreserve(self.credit.exclusive)
        if client is not None:
            client.cancel()

    # ------------------------------------------------------------------ credit

    def _on_floating_offered(self) -> bool:
        """The pool offers a buffer. Any thread."""
        with self._lock:
            if self.is_released:
                return False
            is_taken, _ = self.credit.on_floating_offered()
            credit = self._credit_to_announce()
        self._announce_credit(credit)
        return is_taken

    def _credit_to_announce(self) -> int:
        """The credit to announce now. The lock is held. Until the producer answers the request, nobody there would take it."""
        is_due = self._is_answered and self.credit.is_worth_telling
        return self.credit.announce() if is_due else 0

    def _announce_credit(self, credit: int) -> None:
        if credit and self._client is not None:
            self._client.add_credit(credit)


_LEAST_LOT: Final = 2
_MOST_LIMITED: Final = 4
"""Frames that may wait for a task whose records are limited: a producer puts a quarter of them into a frame."""


def frames_for(row_limit: int | None) -> int | None:
    """Return how many frames of a channel may wait here or be in flight, if `row_limit` records may
    wait at the producer.
    """
    return None if row_limit is None else min(row_limit, _MOST_LIMITED)


class ReceiverCredit:
    """The receiver's half of credit-based flow control: which buffers a remote channel has, and how
    much credit it grants.

    One credit is the right to send one data frame of at most a buffer's size; events need no
    credit. Does not know the network or bytes, and takes no lock: its channel does. Source: Flink
    BufferManager, RemoteInputChannel (docs/spec/exchange.md#credit).

    An empty buffer that waits for a frame is `available`. For each of them the sender has a credit,
    or will get it. Exclusive buffers belong to the channel, floating ones come from the gate's
    pool.


    `required`: buffers that the sender's backlog asks for. `unannounced`: credit that the sender
    has not got yet. `outstanding`: credit that the sender has got and, as far as is known here, has
    not used. `filled`: buffers whose frames wait for the task. `most`: how many frames may wait or
    be outstanding; None: as many as there are buffers.
    """

    __slots__ = (
        "_listener", "_pool", "available_exclusive", "available_floating", "exclusive", "filled",
        "is_waiting", "most", "outstanding", "required", "unannounced",
    )  # fmt: skip

    def __init__(
        self,
        exclusive: int,
        pool: LocalBufferPool,
        listener: BufferListener,
        most: int | None = None,
    ) -> None:
        """`exclusive`: number of exclusive buffers, which is also the first credit, sent with the request, unless that is limited by
        `most`. `listener`: called by the pool when it has a buffer for this channel; it has to call `on_floating_offered`.
        """
        self.exclusive = exclusive
        self._pool = pool
        self._listener = listener
        self.available_exclusive = exclusive
        self.available_floating = 0
        self.required = 0
        self.filled = 0
        self.most = most
        self.outstanding = exclusive if most is None else min(exclusive, most)
        self.unannounced = exclusive - self.outstanding
        self.is_waiting = False

    @property
    def available(self) -> int:
        return self.available_exclusive + self.available_floating

    def on_backlog(self, backlog: int) -> bool:
        """The sender has `backlog` data batches waiting. Returns whether a credit message has become due."""
        self.required = backlog + self.exclusive
        return self.gain(self._request_floating())

    def take(self) -> bool:
        """A data frame came and fills a buffer. Returns whether that is a floating one, which
        `recycle` has to know.

        Raises: EngineBug: the sender had no credit.
        """
        self.required -= 1
        self.outstanding -= 1
        self.filled += 1
        if self.available_floating:
            self.available_floating -= 1
            return True
        if not self.available_exclusive:
            raise EngineBug("a data frame came without credit")
        self.available_exclusive -= 1
        return False

    def recycle_exclusive(self) -> tuple[bool, bool]:
        """An exclusive buffer is empty again.

        Returns whether a floating buffer has to be given back to the pool instead of granting credit, and whether a
        credit message has become due.
        """
        self.available_exclusive += 1
        if self.available > self.required and self.available_floating:
            self.available_floating -= 1
            return True, False
        return False, self.gain(1)

    def on_floating_offered(self) -> tuple[bool, bool]:
        """The pool offers a buffer. Returns whether it was taken, and whether a credit message has become due."""
        is_wanted, self.is_waiting = self.is_waiting, False
        if not is_wanted or self.available >= self.required:
            return False, False
        self.available_floating += 1
        return True, self.gain(1 + self._request_floating())

    def gain(self, credit: int) -> bool:
        """Add credit to announce. Returns True only if there was none to announce before."""
        was_silent = self.unannounced == 0
        self.unannounced += credit
        return was_silent and credit > 0

    @property
    def is_worth_telling(self) -> bool:
        """Whether to send a credit message now: the sender has no credit left, or the message would bring at least as much as it has left
        (and at least 2).

        Otherwise waiting lets one message carry more credit. The sender uses up its credit with frames, and after each frame this is
        checked again.
        """
        if self.most is not None:
            return self._announceable > 0
        if self.outstanding == 0:
            return self.unannounced > 0
        return self.unannounced >= max(self.outstanding, _LEAST_LOT)

    def announce(self) -> int:
        """Take the credit that has come together, as far as it may be announced, to announce it in one message."""
        credit = self._announceable
        self.unannounced -= credit
        self.outstanding += credit
        return credit

    @property
    def _announceable(self) -> int:
        if self.most is None:
            return self.unannounced
        return max(0, min(self.unannounced, self.most - self.outstanding - self.filled))

    def release_floating(self) -> int:
        """Take all available floating buffers, because the channel is blocked or released. The caller recycles them."""
        floating, self.available_floating = self.available_floating, 0
        if self.is_waiting:
            self.is_waiting = False
            self._pool.remove_listener(self._listener)
        return floating

    def _request_floating(self) -> int:
        got = 0
        pool = self._pool
        while self.available < self.required and not self.is_waiting and not pool.is_destroyed:
            if pool.request():
                self.available_floating += 1
                got += 1
            else:
                # False: a buffer has come back in the meantime.
                self.is_waiting = pool.add_listener(self._listener)
        return got
