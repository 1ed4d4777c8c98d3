"""Consumer's ends of a subpartition: in another TaskManager, in this one, or nowhere.

Source: Flink RemoteInputChannel, LocalInputChannel. The consumer grants `FIRST_CREDIT` with the request and
gives back what it has taken in lots of half of that.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.hosting.closures import loads_records
from penstock.hosting.data_connection import DataConnection
from penstock.hosting.data_frames import FrameType, PartitionRequest
from penstock.model.errors import ExternalError, PartitionConnectionError, UserCodeError
from penstock.runtime.codec import ChannelDecoder, FrameKind
from penstock.runtime.elements import Element
from penstock.runtime.partition.result_partition import ResultPartition
from penstock.runtime.subpartition_view import NextType

FIRST_CREDIT: Final = 4
_RETURN_CREDIT_AT: Final = 2


class RemoteChannel:
    """Consumer's end: frames wait as bytes until the mailbox decodes them."""

    def __init__(
        self, connection: DataConnection, channel: int, notify: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._notify = notify
        self._frames: deque[tuple[int, bytes | bytearray]] = deque()
        self._decoder = ChannelDecoder(loads_records)
        self._expected = 0
        self._to_return = 0
        self._failure: PartitionConnectionError | UserCodeError | None = None
        self.bytes_in = 0

    def request(self, request: PartitionRequest) -> None:
        self._connection.channels[self._channel] = self
        body = pickle.dumps(request, protocol=5)
        self._connection.send(FrameType.REQUEST, self._channel, [body])

    def on_frame(self, kind: int, sequence: int, payload: bytes | bytearray) -> None:
        """Network thread."""
        if sequence != self._expected:
            self.fail(f"frame {sequence} came where {self._expected} was due (reordered)")
            return
        self._expected = (self._expected + 1) & 0xFFFFFFFF
        self.bytes_in += len(payload)
        self._frames.append((kind, payload))
        self._notify()

    def fail(self, cause: str, *, is_user_code: bool = False) -> None:
        """Network thread: the task finds it at its next poll, after what had come in order."""
        if self._failure is None:
            self._failure = (
                UserCodeError(cause) if is_user_code else PartitionConnectionError(cause)
            )
        self._notify()

    def poll(self) -> Element | None:
        """Mailbox thread."""
        try:
            kind, payload = self._frames.popleft()
        except IndexError:
            if self._failure is not None:
                raise self._failure from None
            return None
        if kind <= FrameKind.COLUMNS:
            self._to_return += 1
            if self._to_return >= _RETURN_CREDIT_AT:
                credit = self._to_return.to_bytes(4, "big")
                self._to_return = 0
                self._connection.send(FrameType.CREDIT, self._channel, [credit])
        return self._decoder.decode(kind, payload)

    def release(self) -> None:
        """Mailbox thread: nothing more is wanted."""
        if self._connection.channels.pop(self._channel, None) is not None:
            self._frames.clear()
            if not self._connection.is_closed:
                self._connection.send(FrameType.CANCEL, self._channel, [])


class LocalChannel:
    """Consumer's end of a subpartition in the same TaskManager: batches pass as they are."""

    def __init__(
        self, partition: ResultPartition, subpartition: int, notify: Callable[[], None]
    ) -> None:
        self._notify = notify
        self._has_news = True
        self._view = partition.create_view(subpartition, self)

    def notify_data(self) -> None:
        """Producer's thread."""
        self._has_news = True
        self._notify()

    def notify_priority(self, sequence: int) -> None:
        """Producer's thread."""
        self.notify_data()

    def poll(self) -> Element | None:
        """Mailbox thread. Without news the view is left alone: it would give what is still being gathered."""
        if not self._has_news:
            return None
        self._has_news = False  # before polling: what comes after this sets it again
        polled = self._view.poll()
        if polled is None:
            return None
        if polled.next is not NextType.NONE:
            self._has_news = True
        return polled.element

    def release(self) -> None:
        self._view.release()


class FailedChannel:
    """A channel whose producer cannot be reached: the task finds the reason at its next poll."""

    def __init__(self, error: ExternalError) -> None:
        self._error = error

    def poll(self) -> None:
        raise self._error

    def release(self) -> None:
        """Nothing to give back."""
