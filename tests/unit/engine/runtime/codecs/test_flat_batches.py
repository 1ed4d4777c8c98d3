"""Record batches of fixed width are encoded without a copy, byte by byte as Arrow encodes them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.runtime.codecs.codec import (
    LEAST_BYTES,
    ChannelDecoder,
    ChannelEncoder,
    FlatBatches,
)
from penstock.engine.runtime.elements import ColumnBatch

KINDS = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.float32(),
    pa.float64(), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("us"), pa.timestamp("ms"),
    pa.timestamp("us", "UTC"), pa.duration("ns"),
]  # fmt: skip


def column(kind, rows, first=0):
    width = kind.bit_width // 8
    data = np.arange(first, first + rows * width, dtype=np.int64).astype(np.uint8)
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def batch_of(kinds, rows):
    columns = [column(kind, rows, first) for first, kind in enumerate(kinds)]
    return pa.RecordBatch.from_arrays(columns, [f"c{number}" for number in range(len(columns))])


def joined(parts):
    return b"".join(map(bytes, parts))


@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=5),
    st.integers(LEAST_BYTES, LEAST_BYTES + 40),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_it_is_what_arrow_makes_also_of_slices(kinds, rows, before, behind):
    """Behind a slice, Arrow pads with the values that follow in memory, and we with zeros."""
    whole = batch_of(kinds, rows + before + behind)
    data = whole.slice(before, rows)
    copied = pa.RecordBatch.from_arrays(
        [pa.concat_arrays([one, one.slice(0, 0)]) for one in data.columns], schema=data.schema
    )
    flat = FlatBatches(data.schema)
    for _ in range(2):  # What was learnt from the first serves the second.
        parts = flat.parts(data)
        assert joined(parts) == copied.serialize().to_pybytes()
    addresses = {column.buffers()[1].address for column in whole.columns}
    taken = [part for part in parts if isinstance(part, pa.Buffer)]
    assert any(address <= one.address <= address + 9 * 8 for address in addresses for one in taken)


def test_each_number_of_rows_has_a_head_of_its_own():
    kinds = [pa.int64(), pa.int8()]
    flat = FlatBatches(batch_of(kinds, 1).schema)
    for rows in (8192, 8193, 9000, 8192):
        data = batch_of(kinds, rows)
        assert joined(flat.parts(data)) == data.serialize().to_pybytes()


def test_so_many_numbers_of_rows_are_remembered_and_not_more():
    flat = FlatBatches(batch_of([pa.int64()], 1).schema)
    made = [flat.parts(batch_of([pa.int64()], 8192 + more)) for more in range(100)]
    assert made[0] is not None
    assert made[-1] is None
    assert flat.parts(batch_of([pa.int64()], 8192)) is not None


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["text"] * 20_000),
        pa.array([True] * 1_000_000),
        pa.array([None, *range(20_000)], pa.int64()),
        pa.array([[1]] * 20_000),
        pa.nulls(20_000),
    ],
    ids=["text", "smaller than a byte", "a null", "lists", "only nulls"],
)
def test_other_columns_are_left_to_arrow(array):
    data = pa.RecordBatch.from_arrays([column(pa.int64(), len(array)), array], ["a", "b"])
    assert FlatBatches(data.schema).parts(data) is None


def test_small_batches_and_empty_schemas_are_left_to_arrow():
    data = batch_of([pa.int64()], 10)
    assert FlatBatches(data.schema).parts(data) is None
    nothing = pa.RecordBatch.from_arrays([], schema=pa.schema([]))
    assert FlatBatches(nothing.schema).parts(nothing) is None


def test_a_column_with_a_bitmap_but_without_nulls():
    values = np.arange(10_000)
    bitmap = pa.py_buffer(b"\xff" * 1250)
    array = pa.Array.from_buffers(pa.int64(), 10_000, [bitmap, pa.py_buffer(values)])
    data = pa.RecordBatch.from_arrays([array], ["a"])
    assert joined(FlatBatches(data.schema).parts(data)) == data.serialize().to_pybytes()


@pytest.mark.parametrize("rows", [8192, 8191])
def test_the_other_end_of_a_channel_reads_it(rows):
    encoder, decoder = ChannelEncoder(), ChannelDecoder()
    for _ in range(2):
        batch = ColumnBatch(batch_of([pa.int64(), pa.float32()], rows), np.arange(rows))
        kind, parts = encoder.encode(batch)
        assert len(parts) > 2
        read = decoder.decode(kind, joined(parts))
        assert read.data.equals(batch.data)
        assert read.timestamps.tolist() == batch.timestamps.tolist()
