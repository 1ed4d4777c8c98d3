"""Codec: what goes in comes out, whatever rows, columns, schemas and sizes."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.codecs.codec import ChannelDecoder, ChannelEncoder, concat, size_of
from penstock.engine.runtime.codecs.events import FrameKind
from penstock.engine.runtime.elements import (
    ACTIVE,
    IDLE,
    NO_TIMESTAMP,
    ColumnBatch,
    EndOfData,
    EndOfPartition,
    LatencyMarker,
    RowBatch,
    Watermark,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=5,
)
VALUES_OF = {
    pa.int64(): st.none() | INT64,
    pa.string(): st.none() | TEXT,
    pa.float64(): st.none() | st.floats(allow_nan=False),
    pa.bool_(): st.none() | st.booleans(),
    pa.list_(pa.int64()): st.none() | st.lists(INT64, max_size=3),
    pa.dictionary(pa.int32(), pa.string()): st.none() | TEXT,
    pa.null(): st.none(),
}


@st.composite
def row_batches(draw):
    values = draw(st.lists(VALUES, max_size=20))
    if draw(st.booleans()):
        return RowBatch(values)
    stamps = draw(st.lists(INT64, min_size=len(values), max_size=len(values)))
    return RowBatch(values, np.array(stamps, np.int64))


@st.composite
def column_batches(draw):
    kinds = draw(st.lists(st.sampled_from(list(VALUES_OF)), min_size=1, max_size=4))
    rows = draw(st.integers(0, 12))
    arrays = [
        pa.array(draw(st.lists(VALUES_OF[kind], min_size=rows, max_size=rows)), kind)
        for kind in kinds
    ]
    stamps = None
    if draw(st.booleans()):
        stamps = np.array(draw(st.lists(INT64, min_size=rows, max_size=rows)), np.int64)
    batch = ColumnBatch(pa.record_batch(arrays, [f"c{i}" for i in range(len(kinds))]), stamps)
    start = draw(st.integers(0, rows))
    return batch.slice(start, draw(st.integers(start, rows)))


class Wire:
    """An encoder and a decoder of one channel with bytes between them."""

    def __init__(self) -> None:
        self.encoder, self.decoder = ChannelEncoder(), ChannelDecoder()

    def send(self, element):
        kind, parts = self.encoder.encode(element)
        return self.receive(kind, parts)

    def receive(self, kind, parts):
        return self.decoder.decode(int(kind), joined(parts))


HEAD_AND_ALIGNMENT = 12 + 63


def joined(parts) -> bytes:
    return b"".join(bytes(memoryview(part)) for part in parts)


def assert_same(got, given):
    assert type(got) is type(given)
    if isinstance(given, RowBatch):
        assert got.values == given.values
        assert list(map(type, got.values)) == list(map(type, given.values))
    else:
        assert got.data.schema.equals(given.data.schema, check_metadata=True)
        assert got.data.to_pylist() == given.data.to_pylist()
    if given.timestamps is None or not len(given):
        assert got.timestamps is None or not len(got.timestamps)
    else:
        assert got.timestamps.tolist() == given.timestamps.tolist()


@given(st.lists(row_batches() | column_batches(), max_size=6))
def test_batches_of_any_schemas_one_after_the_other_come_out_equal(batches):
    wire = Wire()
    for batch in batches:
        assert_same(wire.send(batch), batch)


@pytest.mark.parametrize(
    "event",
    [
        Watermark(-(2**63)),
        Watermark(2**63 - 1),
        IDLE,
        ACTIVE,
        LatencyMarker(12, "operator ü", 3),
        EndOfData(drain=True),
        EndOfData(drain=False),
        EndOfPartition(),
    ],
    ids=str,
)
def test_events_come_out_equal_and_take_no_credit(event):
    kind, parts = ChannelEncoder().encode(event)
    assert not kind.is_data
    assert ChannelDecoder().decode(int(kind), joined(parts)) == event


def test_a_steady_stream_carries_its_schema_once():
    wire = Wire()
    sizes = []
    for number in range(3):
        kind, parts = wire.encoder.encode(ColumnBatch(pa.record_batch({"a": [number]})))
        sizes.append(size_of(parts))
        assert wire.receive(kind, parts).data.to_pydict() == {"a": [number]}
    assert sizes[0] > sizes[1] == sizes[2]


def test_metadata_of_a_schema_arrive_also_when_only_they_change():
    wire = Wire()
    batch = pa.record_batch({"a": [1]})
    for metadata in ({b"k": b"1"}, {b"k": b"2"}, None):
        got = wire.send(ColumnBatch(batch.replace_schema_metadata(metadata)))
        assert (got.data.schema.metadata or None) == metadata


def test_a_slice_of_a_dictionary_column_takes_only_what_it_uses_along():
    words = pa.array([f"word number {i}" for i in range(10_000)]).dictionary_encode()
    piece = ColumnBatch(pa.record_batch([words], ["w"])).slice(500, 503)
    kind, parts = ChannelEncoder().encode(piece)
    assert size_of(parts) < 5000
    got = ChannelDecoder().decode(int(kind), joined(parts))
    assert got.data.column("w").type == words.type
    assert got.data.column("w").to_pylist() == [f"word number {i}" for i in (500, 501, 502)]


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=40),
    st.integers(200, 2000),
    st.booleans(),
)
def test_encode_to_size_cuts_until_frames_fit_and_a_single_record_passes_alone(
    values, limit, is_columns
):
    stamps = np.arange(len(values), dtype=np.int64)
    if is_columns:
        batch = ColumnBatch(pa.record_batch({"v": values}), stamps)
    else:
        batch = RowBatch(values, stamps)
    wire, got, got_stamps = Wire(), [], []
    schema = batch.data.schema.serialize().size if is_columns else 0
    for kind, parts, rows in wire.encoder.encode_to_size(batch, limit):
        described = limit // 16 + schema + HEAD_AND_ALIGNMENT if is_columns else 0
        assert size_of(parts) <= limit + described or rows == 1
        schema = 0  # it goes ahead of the first one only
        piece = wire.receive(kind, parts)
        assert len(piece) == rows
        got += piece.data.column("v").to_pylist() if is_columns else piece.values
        got_stamps += piece.timestamps.tolist()
    assert got == values
    assert got_stamps == stamps.tolist()


def test_a_column_batch_of_just_the_size_is_not_cut_because_of_what_describes_it():
    batch = ColumnBatch(pa.record_batch({"v": np.arange(1 << 17)}))  # one megabyte of values
    (frame,) = ChannelEncoder().encode_to_size(batch, 1 << 20)
    assert frame[2] == 1 << 17


def test_a_batch_that_fits_is_one_frame():
    frames = ChannelEncoder().encode_to_size(RowBatch([1, 2, 3]), 1 << 20)
    assert [(kind, rows) for kind, _, rows in frames] == [(FrameKind.ROWS, 3)]


def test_what_no_frame_can_hold_is_a_bug():
    with pytest.raises(EngineBug, match="object"):
        ChannelEncoder().encode(object())
    with pytest.raises(EngineBug, match="77"):
        ChannelDecoder().decode(77, b"")
    _, parts = (encoder := ChannelEncoder()).encode(ColumnBatch(pa.record_batch({"a": [1]})))
    kind, parts = encoder.encode(ColumnBatch(pa.record_batch({"a": [1]})))
    with pytest.raises(EngineBug, match="before its schema"):
        ChannelDecoder().decode(int(kind), joined(parts))


def test_concat_joins_dictionaries_and_fills_timestamps_that_are_missing():
    def words(*values):
        return ColumnBatch(pa.record_batch([pa.array(values).dictionary_encode()], ["w"]))

    stamped = ColumnBatch(words("c", "a").data, np.array([1, 2], np.int64))
    joined_batch = concat([words("a", None), stamped])
    assert joined_batch.data.column("w").to_pylist() == ["a", None, "c", "a"]
    assert joined_batch.timestamps.tolist() == [NO_TIMESTAMP, NO_TIMESTAMP, 1, 2]
    empty = words("a").slice(0, 0)
    assert len(concat([empty, empty])) == 0
