"""Makes and checks the tags of data frames part by part, while a part is in the processor's cache.

A tag covers the header and the payload. Where the kernel vouches for the other end, it covers the sums
of long columns instead (`bulk_sums`). Pickled records and messages are never summed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.hosting.network.bulk_sums import BulkSums
from penstock.hosting.network.frames import FrameType, read_fields
from penstock.hosting.wire.sealing import Seal
from penstock.runtime.codecs.events import WITHOUT_CREDIT, FrameKind

_SUMMED_BYTES: Final = 1 << 16


class FrameTags:
    """Of one direction of a connection. Only one thread at a time may use it."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._sums: BulkSums | None = None

    def begin(self, head: bytes) -> None:
        """Begin a frame with its header."""
        self._sums = BulkSums() if self._seal.takes_sums and _is_long_columns(head) else None
        self._seal.begin()
        self._seal.update(head)

    def add(self, part: memoryview) -> None:
        """Add what comes next of the payload: a view of bytes."""
        if self._sums is None:
            self._seal.update(part)
        else:
            self._sums.add(part)

    def of(self, head: bytes, parts: Iterable[memoryview]) -> bytes:
        """Return the tag of a whole frame."""
        self.begin(head)
        for part in parts:
            self.add(part)
        self._take_sums()
        return self._seal.end()

    def check(self, tag: memoryview) -> None:
        """Check the tag of the frame. Raises DamagedFrame; the connection must be closed then."""
        self._take_sums()
        self._seal.check_end(tag)

    def _take_sums(self) -> None:
        if self._sums is not None:
            self._seal.update(self._sums.result())


def _is_long_columns(head: bytes) -> bool:
    size, frame_type, kind, *_ = read_fields(head)
    is_columns = frame_type == FrameType.DATA and kind & ~WITHOUT_CREDIT == FrameKind.COLUMNS
    return is_columns and size >= _SUMMED_BYTES
