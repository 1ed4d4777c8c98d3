"""InputChannel: what all kinds of channels are to their gate; and UnknownInputChannel, the placeholder.

Knows no place where elements come from. Source: Flink InputChannel, UnknownInputChannel
(docs/spec/exchange.md#channels).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.model.errors import EngineBug, ExternalError, UserCodeError
from penstock.runtime.elements import Batch, CheckpointBarrier
from penstock.runtime.network.gate.ports import GateContext
from penstock.runtime.network.network_memory import GateBuffers, LocalBufferPool
from penstock.runtime.network.subpartition_view import Polled


class ChannelOwner(Protocol):
    """The gate as its channels see it. `on_...`: any thread."""

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
    """One consumed subpartition. `bytes_in`, `buffers_in`: polled so far, events too.

    The gate's own notes on its channels stand here, so that a channel that nobody made costs nothing:
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
        """Next element, or None for now. Mailbox thread. Raises: what went wrong on the channel."""

    def on_error(self, error: Exception) -> None:
        """Any thread: the reader finds it at its next poll. The first one counts; strangers are wrapped."""
        if self._error is None:
            is_known = isinstance(error, ExternalError | UserCodeError | EngineBug)
            self._error = error if is_known else _wrapped(error)
        self.gate.on_channel_data(self)

    def notify_data(self) -> None:
        """Any thread: there may be data. A call without news costs one empty poll."""
        if not self.is_queued:  # who clears the mark looks for data only after that
            self.gate.on_channel_data(self)

    def notify_priority(self, sequence: int) -> None:
        """Any thread: the element with this number has priority."""
        self.gate.on_channel_priority(self, sequence)

    def overtaken(self, sequence: int) -> Sequence[Batch]:
        """Records that came here before the element of this number, which went before them. Mailbox thread."""
        return ()

    def prioritize(self, sequence: int) -> None:
        """The barrier with this number, which was announced, goes before the data ahead of it; unless it has been polled.
        Mailbox thread. Where nothing is kept nothing is announced: its producer sees to that.
        """

    def resume(self) -> None:
        """Go on after an element that blocks the channel."""

    def acknowledge_all_records(self) -> None:
        """Tell the producer that its last record was read."""

    def send_task_event(self, event: Any) -> None:
        """To the producer, against the flow."""

    def announce_buffer_size(self, buffer_bytes: int) -> None:
        """Ask the producer for buffers of at most this size from now on."""

    @property
    def queued_buffers(self) -> int:
        """What waits here for the reader."""
        return 0

    @property
    def buffers_in_use(self) -> int:
        """The same with what the sender has told us of."""
        return self.queued_buffers

    def release(self) -> None:
        """Nothing more is wanted. Mailbox thread; may be called twice."""
        self.is_released = True

    def check_error(self) -> None:
        """Raises: what was kept by `on_error`."""
        if self._error is not None:
            raise self._error


class UnknownInputChannel(InputChannel):
    """The producer's place is not known yet: nothing to read, nothing to ask for."""

    __slots__ = ("task_events",)

    def __init__(self, gate: ChannelOwner, index: int) -> None:
        super().__init__(gate, index)
        self.task_events: list[Any] = []

    def poll(self) -> Polled | None:
        self.check_error()
        raise EngineBug(
            f"input channel {self.index} of gate {self.gate.index} was read before its producer's "
            "place was known"
        )

    def send_task_event(self, event: Any) -> None:
        """Kept until there is somebody to send it to."""
        self.task_events.append(event)


def _wrapped(error: Exception) -> ExternalError:
    wrapped = ExternalError(f"an input channel failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
