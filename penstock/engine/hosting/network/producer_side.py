"""The producer's end of a remote channel: reads a subpartition as long as the consumer has granted
credit.

Source: Flink CreditBasedSequenceNumberingViewReader. One unit of credit allows one data frame.
Events need no credit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.engine.hosting.network.connection import DataConnection
from penstock.engine.hosting.network.frames import FailureKind, FrameType
from penstock.engine.hosting.shipping.pickling import dumps_records
from penstock.engine.model.errors import ExternalError, ProducerFailed, ResultDataLost
from penstock.engine.runtime.codecs.codec import ChannelEncoder, EncodedFrame, size_of
from penstock.engine.runtime.codecs.events import WITHOUT_CREDIT, FrameKind, Parts
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.engine.runtime.network.partition.subpartition import FrameView
from penstock.engine.runtime.network.subpartition_view import NextType
from penstock.engine.runtime.network.subpartition_view import following as next_number


def failure_kind(error: ExternalError) -> FailureKind:
    """Return how the error is reported to the consumer."""
    if isinstance(error, ResultDataLost):
        return FailureKind.DATA_LOST
    is_producers = isinstance(error, ProducerFailed)
    return FailureKind.PRODUCER if is_producers else FailureKind.CONNECTION


class RemoteView:
    """The producer's end. It may be used after `start`, and then listens to its subpartition's view."""

    def __init__(
        self,
        connection: DataConnection,
        channel: int,
        credit: int,
        on_error: Callable[[Exception], None],
        count_bytes: Callable[[int], None],
    ) -> None:
        """`on_error`: called when a record could not be encoded; nothing follows it. `credit`: in data frames."""
        self._view: FrameView | None = None
        self._connection = connection
        self._channel = channel
        self.credit = credit
        self._on_error = on_error
        self._count_bytes = count_bytes
        self._encoder = ChannelEncoder(dumps_records)
        self._encoded: deque[tuple[FrameKind, Parts]] = deque()
        self._sequence = 0
        self._backlog = 0
        self._announces_backlog = credit == 0
        self._announced = 0
        self._lock = threading.Lock()
        self._again = False
        self._is_broken = False

    def start(self, view: FrameView, frame_bytes: int | None = None) -> None:
        """Start with a view and the consumer's wish for the size of frames. Sends what is there already."""
        if frame_bytes is not None:
            view.new_buffer_size(frame_bytes)
        self._view = view
        self.pump()

    def notify_data(self) -> None:
        """There is data. On the producer's thread, or on any thread that releases the partition."""
        self.pump()

    def notify_priority(self, sequence: int) -> None:
        """An element with priority is at the head; it needs no credit. On the producer's thread.

        Frames that are encoded already are sent before it, also without credit: on this side they
        could not be saved with the data that it overtakes.
        """
        self.pump()

    def add_credit(self, frames: int) -> None:
        """Add credit. Network thread only."""
        with self._lock:
            if self._view is not None:
                self._view.grant()
            self.credit += frames
            self._announced = 0
        self.pump()

    def resume(self) -> None:
        """The consumer continues after an element that blocks its channel. Network thread."""
        if self._view is not None:
            self._view.resume()
            self.pump()

    def acknowledge_all_records(self) -> None:
        """The consumer has read the last record. Network thread."""
        if self._view is not None:
            self._view.acknowledge_all_records()

    def new_buffer_size(self, frame_bytes: int) -> None:
        """The consumer wants frames of this size. Network thread."""
        if self._view is not None:
            self._view.new_buffer_size(frame_bytes)

    def limit_rows(self, rows: int | None) -> None:
        """The consumer lets `rows` records wait; None: any number. Network thread."""
        if self._view is not None:
            self._view.limit_rows(rows)

    def pump(self) -> None:
        """Send what may be sent. Any thread; the thread that holds the lock also sends for the others."""
        self._again = True
        while self._again and not self._is_broken and self._lock.acquire(blocking=False):
            try:
                self._again = False
                if self._view is not None:
                    self._drain(self._view)
            except ExternalError as error:
                # An error of the view: its producer failed, or its data is gone.
                self._is_broken = True
                text = str(error).encode()
                kind = (failure_kind(error), 0, 0)
                self._connection.send(FrameType.FAILED, self._channel, [text], kind)
            except Exception as error:
                self._is_broken = True  # Later data must not arrive as if nothing were missing.
                self._on_error(error)
            finally:
                self._lock.release()

    def _drain(self, view: FrameView) -> None:
        connection = self._connection
        following: NextType | None = None  # Not known yet, so the view has to be asked.
        while not connection.is_closed:
            if connection.is_congested:
                connection.stall(self)
                if connection.is_congested:
                    return
            if not self._encoded:
                following = self._encode_next(view, following)
                if following is None:
                    self._announce_backlog(view)
                    return
            is_data, mark = self._encoded[0][0].is_data, 0
            if is_data and self.credit > 0:
                self.credit -= 1
            elif is_data and view.has_priority:
                mark = WITHOUT_CREDIT
            elif is_data:
                self._announce_backlog(view)
                return
            kind, parts = self._encoded.popleft()
            self._count_bytes(size_of(parts))
            header = (int(kind) | mark, self._sequence, self._backlog + len(self._encoded))
            self._sequence = next_number(self._sequence)
            connection.send(FrameType.DATA, self._channel, parts, header)

    def _encode_next(self, view: FrameView, following: NextType | None) -> NextType | None:
        """Poll an element, if it may be sent, and encode it. Returns: the type of the next one;
        None if nothing was polled.

        `following`: what the last call returned.
        """
        has_credit = self.credit > 0
        if following is None:
            if not view.is_available(has_credit=has_credit):
                return None
        elif following is NextType.NONE or (following is NextType.DATA and not has_credit):
            return None
        # A consumer without own buffers gives credit for what is announced, not for what it has taken.
        is_last = self.credit == 1 and not self._announces_backlog
        polled = view.poll_last() if is_last else view.poll()
        if polled is None:
            return None
        self._backlog = polled.backlog
        element: Any = polled.element
        if isinstance(element, EncodedFrame):
            self._encoded.append((element.kind, [element.payload]))
        elif isinstance(element, (RowBatch, ColumnBatch)):
            frames = self._encoder.encode_to_size(element, view.frame_bytes)
            size = sum(size_of(parts) for _, parts, _ in frames)
            view.measured(len(element), size)
            self._encoded.extend((kind, parts) for kind, parts, _ in frames)
        else:
            self._encoded.append(self._encoder.encode(element))
        return polled.next

    def _announce_backlog(self, view: FrameView) -> None:
        """Announce the backlog to a consumer without own buffers: it grants credit only for announced data."""
        if not self._announces_backlog or self.credit > 0:
            return
        waiting = len(self._encoded) + self._backlog
        if not waiting and view.is_available(has_credit=True):
            waiting = 1  # There is at least one buffer, although none has been polled yet.
        if waiting > self._announced:
            self._announced = waiting
            self._connection.send(FrameType.BACKLOG, self._channel, [], (0, 0, waiting))

    def disconnect(self) -> None:
        """The connection is lost. The JobMaster decides about the consumer."""
        if self._view is not None:
            self._view.disconnect()

    def release(self) -> None:
        """The consumer has cancelled or has read the end."""
        if self._view is not None:
            self._view.release()
