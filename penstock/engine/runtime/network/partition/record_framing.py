"""Serialized records in buffers of one size. A record, and even its length, may begin and end anywhere in a buffer.

Does not know files. Source: Flink SpanningRecordSerializer, SpillingAdaptiveSpanningRecordDeserializer
(docs/spec/exchange.md#records-in-buffers). A record is 4 bytes of length, big-endian, and that many
bytes. What Flink calls a record is a whole encoded batch here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.codecs.events import Part

_LENGTH: Final = struct.Struct("!I")


class RecordSerializer:
    """Fills buffers of `buffer_size` bytes. A buffer is handed out when it is full; `flush` hands out the last one."""

    def __init__(self, buffer_size: int) -> None:
        self._buffer_size = buffer_size
        self._buffer = bytearray()

    def add(self, parts: Sequence[Part]) -> Iterator[bytearray]:
        """Add one record made of these parts. Yields the buffers that become full; take them all before the next call."""
        views = [memoryview(part).cast("B") for part in parts]
        length = _LENGTH.pack(sum(view.nbytes for view in views))
        for view in (memoryview(length), *views):
            at, size = 0, view.nbytes
            while at < size:
                room = self._buffer_size - len(self._buffer)
                self._buffer += view[at : at + room]
                at += room
                if len(self._buffer) == self._buffer_size:
                    yield self._take()

    def limit(self, buffer_size: int) -> None:
        """Make the buffers no larger than this. Called while there is no unfinished one."""
        self._buffer_size = min(self._buffer_size, buffer_size)

    def flush(self) -> bytearray | None:
        """The unfinished buffer, if it holds anything."""
        return self._take() if self._buffer else None

    def _take(self) -> bytearray:
        full, self._buffer = self._buffer, bytearray()
        return full


class RecordDeserializer:
    """Takes buffers in order and gives records.

    A record inside one buffer is a view of the buffer if that is `bytes`. From any other buffer the record is copied, because
    such a buffer may be reused, or be a mapped file that somebody cuts short.
    """

    def __init__(self) -> None:
        self._rest: bytearray | None = None

    def feed(self, buffer: Part) -> Iterator[Part]:
        """The records that end in this buffer; take them all before the next call."""
        view = memoryview(buffer).cast("B")
        is_stable = type(buffer) is bytes
        at, size = 0, view.nbytes
        while at < size:
            if self._rest is not None:
                at += self._go_on(self._rest, view[at:])
                if self._is_whole(self._rest):
                    record, self._rest = memoryview(self._rest)[_LENGTH.size :], None
                    yield record
                continue
            end = self._end_of(view, at)
            if end is None or end > size:
                self._rest = bytearray(view[at:])
                return
            record = view[at + _LENGTH.size : end]
            yield record if is_stable else bytes(record)
            at = end

    @staticmethod
    def _end_of(view: memoryview, at: int) -> int | None:
        """Where the record that begins there ends; None if its length is cut off by the end of the buffer."""
        if at + _LENGTH.size > view.nbytes:
            return None
        length: int = _LENGTH.unpack_from(view, at)[0]
        return at + _LENGTH.size + length

    def _go_on(self, rest: bytearray, view: memoryview) -> int:
        """Complete the unfinished record, its length first. Returns how many bytes were used."""
        wanted = _LENGTH.size
        if len(rest) >= _LENGTH.size:
            wanted += _LENGTH.unpack_from(rest)[0]
        taken = min(wanted - len(rest), view.nbytes)
        rest += view[:taken]
        return taken

    @staticmethod
    def _is_whole(rest: bytearray) -> bool:
        if len(rest) < _LENGTH.size:
            return False
        length: int = _LENGTH.unpack_from(rest)[0]
        return len(rest) == _LENGTH.size + length

    def finish(self) -> None:
        """Raises: EngineBug: the buffers ended inside a record."""
        if self._rest is not None:
            raise EngineBug(f"the buffers end inside a record, after {len(self._rest)} bytes of it")
