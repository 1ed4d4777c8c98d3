"""Turns the bytes of a data connection into frames, and copies each payload once. Knows no socket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.hosting.network.frame_tags import FrameTags
from penstock.hosting.network.frames import HEADER_BYTES, read_fields, read_header
from penstock.hosting.wire.sealing import TAG_BYTES, Seal

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

    def __init__(self, seal: Seal) -> None:
        """`seal`: of the direction from the other end."""
        self._tags = FrameTags(seal)
        self._buffer = bytearray(_READ_SIZE)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._room = _READ_SIZE
        self._large: memoryview | None = None
        self._large_filled = 0
        self._large_header = b""

    @property
    def is_in_long_payload(self) -> bool:
        """Whether what comes next belongs to a payload that is received into its own memory."""
        return self._large is not None

    def buffer(self) -> memoryview:
        """Return the memory to receive into; never empty."""
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._view[self._end : self._end + self._room]

    def advance(self, count: int) -> Iterator[DataFrame]:
        """`count` bytes were received. Raises DamagedFrame: nothing that follows can be read."""
        if self._large is not None:
            payload, tag = self._large[:-TAG_BYTES], self._large[-TAG_BYTES:]
            self._tags.add(payload[self._large_filled : self._large_filled + count])
            self._large_filled += count
            if self._large_filled < len(self._large):
                return
            self._large = None
            self._room = _GLANCE
            self._tags.check(tag)
            yield _frame(self._large_header, payload)
            return
        self._end += count
        self._room = _READ_SIZE
        yield from self._cut()

    def _cut(self) -> Iterator[DataFrame]:
        while self._end - self._start >= HEADER_BYTES:
            body = self._start + HEADER_BYTES
            head = bytes(self._view[self._start : body])
            size = read_header(head)[0]
            end = body + size + TAG_BYTES
            if end <= self._end:
                self._start = end
                self._tags.begin(head)
                self._tags.add(self._view[body : body + size])
                self._tags.check(self._view[body + size : end])
                yield _frame(head, bytes(self._view[body : body + size]))
                continue
            if end > len(self._buffer):
                self._begin_large(head, size, body)
                return
            break
        self._compact()

    def _begin_large(self, head: bytes, size: int, body: int) -> None:
        have = self._end - body
        # A bytearray would be zeroed first.
        self._large = memoryview(pa.allocate_buffer(size + TAG_BYTES)).cast("B")
        self._large[:have] = self._view[body : self._end]
        self._large_filled = have
        self._large_header = head
        self._start = self._end = 0
        self._tags.begin(head)
        self._tags.add(self._large[: min(have, size)])

    def _compact(self) -> None:
        if self._start == 0:
            return
        rest = self._end - self._start
        self._buffer[:rest] = bytes(self._view[self._start : self._end])
        self._start, self._end = 0, rest


def _frame(head: bytes, payload: bytes | memoryview) -> DataFrame:
    _size, frame_type, kind, channel, sequence, backlog = read_fields(head)
    return DataFrame(frame_type, kind, channel, sequence, backlog, payload)
