"""The records that Spark shuffles: (reduce partition, bytes), few and large. Each can be read
without the others.

The bytes are: the consumer's gate, two flags (the record has timestamps; it is the last one of its
writer), its decoded size, then frames made by `engine.runtime.codecs.codec`. A row batch is pickled; a
column batch is Arrow.

Outputs of a subtask: records for the shuffle, and rows for the driver.
"""

from __future__ import annotations

import pickle
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from penstock.engine.hosting.shipping.pickling import dumps_records, loads_records
from penstock.engine.hosting.spark.batch.plan import Place
from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.runtime.codecs.codec import (
    ChannelDecoder,
    ChannelEncoder,
    can_join,
    concat,
    size_of,
)
from penstock.engine.runtime.codecs.convert import enforce, to_rows, travel_form
from penstock.engine.runtime.elements import Batch, ColumnBatch, Element, RowBatch
from penstock.engine.runtime.network.partitioner import Partitioner
from penstock.engine.runtime.records.sizes import sorting_size
from penstock.engine.runtime.task.user_errors import PASSED_ON, user_code_error

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


FRAME_PARTITION: Final = -1
_DRIVER_ROWS: Final = 4096
_ALL_RECORDS: Final = 8 << 20
_LEAST_RECORD: Final = 64 << 10
_ALL_JOINED: Final = 1 << 16
_LEAST_JOINED: Final = 512


class Outbox:
    """Records that are complete and not yet handed to Spark."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, bytes]] = []

    def put(self, partition: int, record: bytes) -> None:
        self._waiting.append((partition, record))

    def take(self) -> Sequence[tuple[int, bytes]]:
        waiting, self._waiting = self._waiting, []
        return waiting


class _Output(ABC):
    """Writes batches only. Watermarks are dropped: a consumer needs only the last one, and makes it
    itself.
    """

    def __init__(self, element_type: Any, producer: ChainedOperator) -> None:
        self._type = element_type
        self._producer = producer
        self.is_available = True
        self.row_limit: int | None = None
        self.records_out = 0

    def write(self, element: Element) -> None:
        if not isinstance(element, (RowBatch, ColumnBatch)):
            return
        self.records_out += len(element)
        self._guarded(self._put, element)

    def flush(self) -> None:
        """Does nothing: records go out when they are full, and at the end."""

    def finish(self) -> None:
        self._guarded(self._finish)

    def _guarded(self, call: Callable[..., None], *arguments: Batch) -> None:
        try:
            call(*arguments)
        except PASSED_ON:
            raise
        except BaseException as error:
            raise user_code_error(self._producer, None, error) from error

    @abstractmethod
    def _put(self, batch: Batch) -> None: ...

    @abstractmethod
    def _finish(self) -> None:
        """Move everything that was put into the outbox."""


class ShuffleOutput(_Output):
    """One exchange.

    Typed rows leave as columns, as between TaskManagers. The end of a broadcast is marked, because
    its readers wait for it.
    """

    def __init__(
        self,
        place: Place,
        partitioner: Partitioner,
        element_type: Any,
        producer: ChainedOperator,
        outbox: Outbox,
    ) -> None:
        super().__init__(element_type, producer)
        self._coded = travel_form(element_type)
        self._first = place.first
        self._split = partitioner.split
        self._says_last = partitioner.is_broadcast
        self._outbox = outbox
        # Each partition has a record that is being filled. Many partitions must not need more
        # memory than few.
        record_bytes = min(RECORD_BYTES, max(_LEAST_RECORD, _ALL_RECORDS // place.count))
        rows = min(JOINED_ROWS, max(_LEAST_JOINED, _ALL_JOINED // place.count))
        self._builders = [RecordBuilder(place.gate, record_bytes, rows) for _ in range(place.count)]

    def _put(self, batch: Batch) -> None:
        if self._coded is not None and isinstance(batch, RowBatch):
            batch = self._coded(batch, self._type)
        for channel, piece in self._split(batch):
            record = self._builders[channel].add(piece)
            if record is not None:
                self._outbox.put(self._first + channel, record)

    def _finish(self) -> None:
        for channel, builder in enumerate(self._builders):
            record = builder.finish(is_last=self._says_last)
            if record is not None:
                self._outbox.put(self._first + channel, record)


class DriverOutput(_Output):
    """A driver stream (print, collect): writes (stream, pickled rows) to the driver's partition."""

    def __init__(
        self,
        stream: str,
        element_type: Any,
        producer: ChainedOperator,
        partition: int,
        outbox: Outbox,
    ) -> None:
        super().__init__(element_type, producer)
        self._stream = stream
        self._partition = partition
        self._outbox = outbox
        self._rows: list[Any] = []

    def _put(self, batch: Batch) -> None:
        if isinstance(batch, ColumnBatch):
            batch = to_rows(batch, self._type)
        elif self._type is not None:
            batch = enforce(batch, self._type)
        self._rows.extend(batch.values)
        if len(self._rows) >= _DRIVER_ROWS:
            self._finish()

    def _finish(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            record = pickle.dumps((self._stream, dumps_records(rows)))
            self._outbox.put(self._partition, record)


class FrameOutput(_Output):
    """Writes columns as Arrow messages without their schema, which Spark continues with."""

    def __init__(self, producer: ChainedOperator, outbox: Outbox) -> None:
        super().__init__(None, producer)
        self._outbox = outbox
        self._waiting: list[Batch] = []
        self._rows = 0

    def _put(self, batch: Batch) -> None:
        self._waiting.append(batch)
        self._rows += len(batch)
        if self._rows >= JOINED_ROWS:
            self._finish()

    def _finish(self) -> None:
        if self._waiting:
            whole = concat(self._waiting)
            assert isinstance(whole, ColumnBatch)
            self._outbox.put(FRAME_PARTITION, whole.data.serialize().to_pybytes())
        self._waiting, self._rows = [], 0


def driver_records(records: Iterable[bytes]) -> Iterator[Any]:
    """Read the records of the driver's partition: (stream, pickled rows), or a Report."""
    return map(pickle.loads, records)
