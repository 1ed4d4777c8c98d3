"""Turns the bytes of a data connection into frames, and copies each payload once. Knows no socket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.engine.hosting.network.frames import HEADER_BYTES, read_header

_READ_SIZE: Final = 256 * 1024
_GLANCE: Final = 4096
"""Behind a long payload there is often another one: so little is read, and copied, to see its length."""


@dataclass(slots=True)
class DataFrame:
    """A complete frame. `payload` belongs to the receiver."""

    frame_type: int
    kind: int
    channel: int
    sequence: int
    backlog: int
    payload: bytes | memoryview


class FrameParser:
    """Turns bytes of a socket into frames. Read into `buffer()`, then call `advance(count)`.

    Small frames are cut out of a reused buffer; a long payload is received straight into its own
    memory.
    """

    def __init__(self) -> None:
        self._buffer = bytearray(_READ_SIZE)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._room = _READ_SIZE
        self._large: memoryview | None = None
        self._large_filled = 0
        self._large_fields: tuple[int, ...] = ()

    def buffer(self) -> memoryview:
        """Return the memory to receive into; never empty."""
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._view[self._end : self._end + self._room]

    def advance(self, count: int) -> Iterator[DataFrame]:
        """`count` bytes were received. Raises ExternalError: nothing that follows can be read."""
        if self._large is not None:
            self._large_filled += count
            if self._large_filled < len(self._large):
                return
            payload, self._large = self._large, None
            self._room = _GLANCE
            yield _frame(self._large_fields, payload)
            return
        self._end += count
        self._room = _READ_SIZE
        yield from self._cut()

    def _cut(self) -> Iterator[DataFrame]:
        while self._end - self._start >= HEADER_BYTES:
            body = self._start + HEADER_BYTES
            fields = read_header(self._view[self._start : body])
            end = body + fields[0]
            if end > len(self._buffer):
                self._begin_large(fields, body)
                return
            if end > self._end:
                break
            self._start = end
            yield _frame(fields, bytes(self._view[body:end]))
        self._compact()

    def _begin_large(self, fields: tuple[int, ...], body: int) -> None:
        have = self._end - body
        # A bytearray would be zeroed first.
        self._large = memoryview(pa.allocate_buffer(fields[0])).cast("B")
        self._large[:have] = self._view[body : self._end]
        self._large_filled = have
        self._large_fields = fields
        self._start = self._end = 0

    def _compact(self) -> None:
        if self._start == 0:
            return
        rest = self._end - self._start
        self._buffer[:rest] = bytes(self._view[self._start : self._end])
        self._start, self._end = 0, rest


def _frame(fields: tuple[int, ...], payload: bytes | memoryview) -> DataFrame:
    _size, frame_type, kind, channel, sequence, backlog = fields
    return DataFrame(frame_type, kind, channel, sequence, backlog, payload)
