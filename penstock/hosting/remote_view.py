"""Producer's end of a remote channel: takes from a subpartition while the consumer has granted credit.

Source: Flink CreditBasedSequenceNumberingViewReader. Credit is one data frame. Events are free.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.hosting.closures import dumps_records
from penstock.hosting.data_connection import DataConnection
from penstock.hosting.data_frames import FrameType
from penstock.runtime.codec import ChannelEncoder, FrameKind, Parts, size_of
from penstock.runtime.elements import ColumnBatch, RowBatch
from penstock.runtime.result_partition import Subpartition

RECORD_ERROR: Final = (
    1  # kind of a FAILED frame: a record could not be encoded; its text names the operator
)


class RemoteView:
    """Producer's end: takes from a subpartition while the consumer has granted credit."""

    def __init__(self, subpartition: Subpartition, connection: DataConnection, channel: int, credit: int,
                 on_error: Callable[[Exception], None], count_bytes: Callable[[int], None]) -> None:  # fmt: skip
        self._subpartition = subpartition
        self._connection = connection
        self._channel = channel
        self._credit = credit
        self._on_error = on_error
        self._count_bytes = count_bytes
        self._encoder = ChannelEncoder(dumps_records)
        self._encoded: deque[tuple[FrameKind, Parts]] = deque()
        self._sequence = 0
        self._lock = threading.Lock()
        self._again = False
        self._is_broken = False

    def add_credit(self, frames: int) -> None:
        """Network thread only."""
        with self._lock:
            self._credit += frames
        self.pump()

    def pump(self) -> None:
        """Send what may be sent. Any thread; whoever holds the lock takes the others' news along."""
        self._again = True
        while self._again and not self._is_broken and self._lock.acquire(blocking=False):
            try:
                self._again = False
                self._drain()
            except Exception as error:
                self._is_broken = True  # what follows must not arrive as if nothing were missing
                self._on_error(error)
            finally:
                self._lock.release()

    def _drain(self) -> None:
        connection = self._connection
        while not connection.is_closed:
            if connection.is_congested:
                connection.stall(self)
                if connection.is_congested:
                    return
            if not self._encoded and not self._encode_next():
                return
            if self._encoded[0][0].is_data:
                if self._credit <= 0:
                    return
                self._credit -= 1
            kind, parts = self._encoded.popleft()
            self._count_bytes(size_of(parts))
            header = (int(kind), self._sequence, self._subpartition.backlog)
            self._sequence = (self._sequence + 1) & 0xFFFFFFFF
            connection.send(FrameType.DATA, self._channel, parts, header)

    def _encode_next(self) -> bool:
        head = self._subpartition.peek()
        if head is None:
            return False
        if isinstance(head, (RowBatch, ColumnBatch)):
            if self._credit <= 0:
                return False
            self._subpartition.poll()
            frames = self._encoder.encode_to_size(head, self._subpartition.frame_bytes)
            rows = max(1, len(head))
            size = sum(size_of(parts) for _, parts, _ in frames)
            self._subpartition.bytes_per_row = max(1.0, size / rows)
            self._encoded.extend((kind, parts) for kind, parts, _ in frames)
            return True
        self._subpartition.poll()
        self._encoded.append(self._encoder.encode(head))
        return True

    def release(self) -> None:
        """The consumer cancelled or has read the end."""
        self._subpartition.release()
