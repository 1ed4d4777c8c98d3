"""InputChannel: what a gate sees of each kind of channel; and UnknownInputChannel, the placeholder.

Does not know where elements come from. Source: Flink InputChannel, UnknownInputChannel
(docs/spec/exchange.md#channels).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.engine.model.errors import EngineBug, ExternalError, UserCodeError
from penstock.engine.runtime.elements import Batch, CheckpointBarrier
from penstock.engine.runtime.network.gate.ports import GateContext
from penstock.engine.runtime.network.network_memory import GateBuffers, LocalBufferPool
from penstock.engine.runtime.network.subpartition_view import Polled


class ChannelOwner(Protocol):
    """The gate as its channels see it. The `on_...` methods may be called from any thread."""

    index: int
    context: GateContext
    buffers: GateBuffers

    @property
    def pool(self) -> LocalBufferPool: ...
    @property
    def buffer_bytes(self) -> int: ...
    def on_channel_data(self, channel: InputChannel) -> None: ...
    def on_channel_priority(self, channel: InputChannel, sequence: int | None) -> None: ...
    def on_channel_announced(
        self, channel: InputChannel, barrier: CheckpointBarrier, sequence: int
    ) -> None: ...


class InputChannel(ABC):
    """One consumed subpartition. `bytes_in`, `buffers_in`: polled so far, including events.

    The gate's own marks on its channels are kept here, so that channels that were never made need no memory for them:
    `is_queued`, `is_finished` (end of partition), `has_ended_data`, `last_priority` (sequence number).
    """

    __slots__ = (
        "_error", "buffers_in", "bytes_in", "gate", "has_ended_data", "index", "is_finished",
        "is_queued", "is_released", "last_priority",
    )  # fmt: skip

    def __init__(self, gate: ChannelOwner, index: int) -> None:
        self.gate = gate
        self.index = index
        self.is_queued = False
        self.is_finished = False
        self.is_released = False
        self.has_ended_data = False
        self.last_priority: int | None = None
        self.bytes_in = 0
        self.buffers_in = 0
        self._error: Exception | None = None

    def request(self) -> None:
        """Ask the producer for the subpartition. Errors are kept for `poll`."""

    @abstractmethod
    def poll(self) -> Polled | None:
        """The next element, or None for now. Mailbox thread. Raises: the error of this channel."""

    def on_error(self, error: Exception) -> None:
        """Keep an error for the reader's next poll. Only the first one counts; errors of unknown classes are wrapped. Any thread."""
        if self._error is None:
            is_known = isinstance(error, ExternalError | UserCodeError | EngineBug)
            self._error = error if is_known else _wrapped(error)
        self.gate.on_channel_data(self)

    def notify_data(self) -> None:
        """There may be data. A call without new data costs one empty poll. Any thread."""
        # `poll` clears the mark before it looks for data, so no data is missed.
        if not self.is_queued:
            self.gate.on_channel_data(self)

    def notify_priority(self, sequence: int) -> None:
        """The element with this number has priority. Any thread."""
        self.gate.on_channel_priority(self, sequence)

    def overtaken(self, sequence: int) -> Sequence[Batch]:
        """The records in this channel that came before the element with this number and that it has overtaken. Mailbox thread."""
        return ()

    def prioritize(self, sequence: int) -> None:
        """Move the announced barrier with this number ahead of all data, unless it has been polled. Mailbox thread.

        Does nothing in a channel that keeps no data: nothing is announced there, because its producer handles such barriers.
        """

    def resume(self) -> None:
        """Go on after an element that blocked the channel."""

    def acknowledge_all_records(self) -> None:
        """Tell the producer that its last record was read."""

    def send_task_event(self, event: Any) -> None:
        """Send an event to the producer, against the direction of the data."""

    def announce_buffer_size(self, buffer_bytes: int) -> None:
        """Ask the producer for buffers of at most this size from now on."""

    def announce_row_limit(self) -> None:
        """Tell the producer how many records may wait from now on: `gate.context.in_flight`."""

    @property
    def queued_buffers(self) -> int:
        """How many buffers wait here for the reader."""
        return 0

    @property
    def buffers_in_use(self) -> int:
        """`queued_buffers`, and the buffers that the sender has announced."""
        return self.queued_buffers

    def release(self) -> None:
        """Stop reading and give all buffers back. Mailbox thread; may be called twice."""
        self.is_released = True

    def check_error(self) -> None:
        """Raise the error that `on_error` kept, if any."""
        if self._error is not None:
            raise self._error


class UnknownInputChannel(InputChannel):
    """A channel whose producer's location is not known yet, so it cannot be read or requested."""

    __slots__ = ("task_events",)

    def __init__(self, gate: ChannelOwner, index: int) -> None:
        super().__init__(gate, index)
        self.task_events: list[Any] = []

    def poll(self) -> Polled | None:
        self.check_error()
        raise EngineBug(
            f"input channel {self.index} of gate {self.gate.index} was read before its producer's "
            "location was known"
        )

    def send_task_event(self, event: Any) -> None:
        """Keep the event until the producer is known."""
        self.task_events.append(event)


def _wrapped(error: Exception) -> ExternalError:
    wrapped = ExternalError(f"an input channel failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
