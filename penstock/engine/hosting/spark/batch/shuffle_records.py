"""The records that Spark shuffles: (reduce partition, bytes), few and large. Each can be read
without the others.

The bytes are: the consumer's gate, two flags (the record has timestamps; it is the last one of its
writer), its decoded size, then frames made by `engine.runtime.codecs.codec`. A row batch is pickled; a
column batch is Arrow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from penstock.engine.hosting.shipping.pickling import dumps_records, loads_records
from penstock.engine.runtime.codecs.codec import (
    ChannelDecoder,
    ChannelEncoder,
    can_join,
    concat,
    size_of,
)
from penstock.engine.runtime.elements import Batch, Element
from penstock.engine.runtime.records.sizes import sorting_size

RECORD_BYTES: Final = 512 << 10
"""A record of this size is closed. It is large because Spark should move few records, and bounded
because a task fills one for each subpartition that it writes.
"""
JOINED_ROWS: Final = 8192
_FRAME_BYTES: Final = 256 << 10
_HEAD: Final = struct.Struct("!HBI")
_MOST_SIZE: Final = (1 << 32) - 1
_TIMED: Final = 1
_LAST: Final = 2
_FRAME: Final = struct.Struct("!BI")


class RecordBuilder:
    """Collects what goes to one subtask of one consumer: pieces are joined to larger batches,
    batches to records.
    """

    def __init__(
        self, gate: int, record_bytes: int = RECORD_BYTES, joined_rows: int = JOINED_ROWS
    ) -> None:
        """`joined_rows`: pieces are encoded when together they have this many rows; may be changed."""
        self._gate = gate
        self._record_bytes = record_bytes
        self.joined_rows = joined_rows
        self._waiting: list[Batch] = []
        self._rows = 0
        self._begin()

    def _begin(self) -> None:
        self._parts: list[bytes] = []
        self._has_time = False
        self._sorting_size = 0
        self._encoder = ChannelEncoder(dumps_records)
        self._size = 0

    def add(self, batch: Batch) -> bytes | None:
        """Add a piece. Returns: a record if one is full now. Raises: what pickling a user's object
        raises.
        """
        if self._waiting and not can_join(self._waiting[0], batch):
            self._encode()
        self._waiting.append(batch)
        self._rows += len(batch)
        if self._rows >= self.joined_rows:
            self._encode()
        return self._take() if self._size >= self._record_bytes else None

    def finish(self, *, is_last: bool = False) -> bytes | None:
        """Return the rest, if there is any. `is_last`: always return a record, and mark it as the
        last one.
        """
        if self._waiting:
            self._encode()
        return self._take(_LAST if is_last else 0) if self._size or is_last else None

    def _encode(self) -> None:
        batch = concat(self._waiting)
        self._has_time = self._has_time or batch.timestamps is not None
        self._waiting, self._rows = [], 0
        self._sorting_size += sorting_size(batch)
        for kind, parts, _rows in self._encoder.encode_to_size(batch, _FRAME_BYTES):
            size = size_of(parts)
            self._parts.append(_FRAME.pack(kind, size))
            self._parts.extend(bytes(part) for part in parts)
            self._size += size

    def _take(self, flags: int = 0) -> bytes:
        flags |= _TIMED if self._has_time else 0
        head = _HEAD.pack(self._gate, flags, min(self._sorting_size, _MOST_SIZE))
        record = b"".join([head, *self._parts])
        self._begin()
        return record


def gate_of(record: bytes) -> int:
    return int(_HEAD.unpack_from(record)[0])


def has_time(record: bytes) -> bool:
    """Whether any of its batches has timestamps."""
    return bool(_HEAD.unpack_from(record)[1] & _TIMED)


def is_last(record: bytes) -> bool:
    """Whether it is the last record of its writer for this gate and partition."""
    return bool(_HEAD.unpack_from(record)[1] & _LAST)


def sorting_size_of(record: bytes) -> int:
    """See `sizes.sorting_size`."""
    return int(_HEAD.unpack_from(record)[2])


def elements_of(record: bytes) -> Iterator[Element]:
    """Return the elements of a record, in order."""
    decoder = ChannelDecoder(loads_records)
    whole, at = memoryview(record), _HEAD.size
    while at < len(record):
        kind, size = _FRAME.unpack_from(record, at)
        at += _FRAME.size
        yield decoder.decode(kind, whole[at : at + size])
        at += size
