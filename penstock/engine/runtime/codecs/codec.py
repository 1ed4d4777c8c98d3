"""Encodes the elements of one channel to frames, and decodes them. Does not know sockets.

A frame is a kind and a payload. Rows are pickled (protocol 5), columns are one Arrow IPC record batch. The schema is
sent before the first batch, and again when it changes, so that a steady stream sends it once. Both ends therefore keep
one codec per channel. Source: Flink's NettyMessage and EventSerializer; differs: a frame holds whole records only.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.codecs.events import FrameKind, Part, Parts, decode_event, encode_event
from penstock.engine.runtime.elements import Batch, ColumnBatch, Element, Int64s, RowBatch

_SLACK_SHIFT: Final = 4
_COLUMNS_HEAD: Final = struct.Struct("!III")
"""Lengths in bytes: of the schema, of the timestamps, of the padding before the batch."""
_WHOLE_STREAM: Final = 0xFFFFFFFF
"""In place of the schema's length: the payload is a whole Arrow stream of one batch."""
_ALIGN: Final = 64  # Arrow reads buffers in place only if they are aligned


class EncodedFrame(NamedTuple):
    """A frame that is encoded already, as it is stored in a blocking result."""

    kind: FrameKind
    payload: Part


def size_of(parts: Sequence[Part]) -> int:
    """Bytes in all parts."""
    return sum(memoryview(part).nbytes for part in parts)


def _plain_pickle(value: object) -> bytes:
    return pickle.dumps(value, protocol=5)


class ChannelEncoder:
    """The sending side of one channel."""

    def __init__(self, dumps: Callable[[object], bytes] = _plain_pickle) -> None:
        """`dumps`: turns rows into bytes. Hosting passes one that can pickle classes of a main script."""
        self._dumps = dumps
        self._schema: pa.Schema | None = None
        self._has_dictionaries = False

    def encode(self, element: Element) -> tuple[FrameKind, Parts]:
        """The kind and the payload of an element. The parts of the payload are sent one after another.

        Raises: whatever pickling a user's object raises; the caller names the operator.
        """
        if type(element) is RowBatch:
            stamps = None if element.timestamps is None else element.timestamps.tobytes()
            data = self._dumps((element.values, stamps))
            return FrameKind.ROWS, [data]
        if isinstance(element, ColumnBatch):
            return FrameKind.COLUMNS, self._columns(element)
        return encode_event(element)

    def encode_to_size(self, batch: Batch, limit: int) -> list[tuple[FrameKind, Parts, int]]:
        """Encode in frames of at most `limit` bytes. Column frames may have a sixteenth more, for their metadata. A single record
        may be larger.

        Returns: (kind, parts, records) of each frame, in order.
        """
        if isinstance(batch, ColumnBatch):
            return [
                (FrameKind.COLUMNS, self._columns(piece), len(piece))
                for piece in _sized(batch, limit + (limit >> _SLACK_SHIFT))
            ]
        return self._rows_to_size(batch, limit)

    def _rows_to_size(self, batch: Batch, limit: int) -> list[tuple[FrameKind, Parts, int]]:
        """Encode rows, halving the batch until each part fits: only pickling shows how large rows are."""
        kind, parts = self.encode(batch)
        rows = len(batch)
        if rows <= 1 or size_of(parts) <= limit:
            return [(kind, parts, rows)]
        half = rows // 2
        return [
            *self._rows_to_size(batch.slice(0, half), limit),
            *self._rows_to_size(batch.slice(half, rows), limit),
        ]

    def _columns(self, batch: ColumnBatch) -> Parts:
        schema = b""
        if batch.data.schema is not self._schema:
            if self._schema is None or not batch.data.schema.equals(
                self._schema, check_metadata=True
            ):
                schema = batch.data.schema.serialize().to_pybytes()
                self._has_dictionaries = any(map(_has_dictionary, batch.data.schema.types))
            self._schema = batch.data.schema
        stamps = b"" if batch.timestamps is None else batch.timestamps.tobytes()
        # A batch alone would be sent without its dictionaries.
        if self._has_dictionaries:
            padding = -(_COLUMNS_HEAD.size + len(stamps)) % _ALIGN
            head = _COLUMNS_HEAD.pack(_WHOLE_STREAM, len(stamps), padding)
            return [head + stamps + bytes(padding), _stream_of(batch.data)]
        padding = -(_COLUMNS_HEAD.size + len(schema) + len(stamps)) % _ALIGN
        head = _COLUMNS_HEAD.pack(len(schema), len(stamps), padding)
        return [head + schema + stamps + bytes(padding), batch.data.serialize()]


def _sized(batch: ColumnBatch, limit: int) -> Iterator[ColumnBatch]:
    """Slices that encode to at most `limit` bytes each, down to single records. Their sizes are computed without encoding."""
    stamps = 0 if batch.timestamps is None else batch.timestamps.nbytes
    size = pa.ipc.get_record_batch_size(batch.data) + stamps
    rows = len(batch)
    if size <= limit or rows <= 1:
        yield batch
        return
    step = -(-rows // min(rows, -(-size // limit)))
    for start in range(0, rows, step):
        yield from _sized(batch.slice(start, min(start + step, rows)), limit)


class ChannelDecoder:
    """The receiving side of one channel. Decodes on the mailbox thread, and only after authentication."""

    def __init__(self, loads: Callable[[Part], Any] = pickle.loads) -> None:
        """`loads`: turns the bytes that the other end's `dumps` made back into rows."""
        self._loads = loads
        self._schema: pa.Schema | None = None

    def decode(self, kind: int, payload: Part) -> Element:
        """The element. Column batches refer to `payload`, which must not be changed afterwards."""
        if kind == FrameKind.ROWS:
            values, stamps = self._loads(payload)
            return RowBatch(values, None if stamps is None else np.frombuffer(stamps, np.int64))
        if kind == FrameKind.COLUMNS:
            return self._columns(memoryview(payload))
        return decode_event(kind, payload)

    def ahead(self) -> ChannelDecoder:
        """A second decoder that starts in the same state, for frames that are decoded before their turn."""
        other = ChannelDecoder(self._loads)
        other._schema = self._schema
        return other

    def _columns(self, payload: memoryview) -> ColumnBatch:
        schema_size, stamps_size, padding = _COLUMNS_HEAD.unpack_from(payload)
        at = _COLUMNS_HEAD.size
        if schema_size == _WHOLE_STREAM:
            return _from_stream(payload[at:], stamps_size, padding)
        if schema_size:
            self._schema = pa.ipc.read_schema(pa.py_buffer(payload[at : at + schema_size]))
        if self._schema is None:
            raise EngineBug(
                "a column frame came before its schema: the channel has lost its first frame"
            )
        at += schema_size
        stamps = np.frombuffer(payload[at : at + stamps_size], np.int64) if stamps_size else None
        at += stamps_size + padding
        data = pa.ipc.read_record_batch(pa.py_buffer(payload[at:]), self._schema)
        return ColumnBatch(data, stamps)


def concat(batches: Sequence[Any]) -> Batch:
    """Join batches of one kind, in order, to one batch."""
    if len(batches) == 1:
        only: Batch = batches[0]
        return only
    stamps = _concat_timestamps(batches)
    if isinstance(batches[0], RowBatch):
        values: list[Any] = []
        for batch in batches:
            values.extend(batch.values)
        return RowBatch(values, stamps)
    table = pa.Table.from_batches([batch.data for batch in batches]).combine_chunks()
    # Arrow makes no batch at all of batches without rows.
    joined = table.to_batches() or [batches[0].data]
    return ColumnBatch(joined[0], stamps)


def can_join(one: Batch, other: Batch) -> bool:
    """Whether `concat` can join the two: both are rows, or both are columns of one schema."""
    if isinstance(one, ColumnBatch) and isinstance(other, ColumnBatch):
        return bool(one.data.schema.equals(other.data.schema, check_metadata=True))
    return isinstance(one, RowBatch) and isinstance(other, RowBatch)


def _has_dictionary(kind: pa.DataType) -> bool:
    """Whether the type is or contains a dictionary type."""
    fields = (kind.field(place) for place in range(kind.num_fields))
    return pa.types.is_dictionary(kind) or any(_has_dictionary(field.type) for field in fields)


def _stream_of(data: pa.RecordBatch) -> pa.Buffer:
    columns = [_compacted(column) for column in data.columns]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=data.schema))
    return sink.getvalue()


def _compacted(column: pa.Array) -> pa.Array:
    """A slice with only those dictionary entries that it uses. Without this it would carry the whole dictionary."""
    if not pa.types.is_dictionary(column.type) or len(column.dictionary) <= len(column):
        return column
    missing = column.indices.is_null().to_numpy(zero_copy_only=False)
    used, places = np.unique(column.indices.fill_null(0).to_numpy(), return_inverse=True)
    indices = pa.array(places, column.type.index_type, mask=missing)
    dictionary = column.dictionary.take(pa.array(used))
    return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=column.type.ordered)


def _from_stream(payload: memoryview, stamps_size: int, padding: int) -> ColumnBatch:
    stamps = np.frombuffer(payload[:stamps_size], np.int64) if stamps_size else None
    with pa.ipc.open_stream(pa.py_buffer(payload[stamps_size + padding :])) as stream:
        return ColumnBatch(stream.read_next_batch(), stamps)


def _concat_timestamps(batches: Sequence[Batch]) -> Int64s | None:
    if all(batch.timestamps is None for batch in batches):
        return None
    missing = np.iinfo(np.int64).min
    return np.concatenate([
        np.full(len(batch), missing, np.int64) if batch.timestamps is None else batch.timestamps
        for batch in batches
    ])
