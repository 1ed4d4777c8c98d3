"""SortBuffer: the order of slices, what memory is thought to be taken, and how much of it there is."""

import pickle

import pyarrow as pa
import pytest

from penstock.runtime.elements import ColumnBatch, RowBatch, Watermark
from penstock.runtime.network.partition.buffer_builder import (
    BlockingFormat,
    SortMerge,
    event_buffer,
)
from penstock.runtime.network.partition.compression import BufferCompressor
from penstock.runtime.network.partition.sort_buffer import SortBuffer
from tests.tools.runtime.partitions import SORT_MERGE, blocking


def buffer_of(subpartitions=3, codec=None) -> SortBuffer:
    compressor = None if codec is None else BufferCompressor(codec)
    form = BlockingFormat(pickle.dumps, pickle.loads, 1 << 20, 4096, compressor)
    return SortBuffer(subpartitions, form)


def test_each_region_begins_with_another_subpartition():
    buffer = buffer_of()
    orders = []
    for _ in range(4):
        for index in (2, 0, 1):
            buffer.write(index, RowBatch([index]))
        orders.append([index for index, _ in buffer.take()])
        buffer.take_shared()
    assert orders == [[1, 2, 0], [2, 0, 1], [0, 1, 2], [1, 2, 0]]


def test_only_who_has_something_is_in_a_region():
    buffer = buffer_of(1000)
    buffer.write(7, RowBatch(["a"]))
    assert buffer.is_by_subpartition
    assert [index for index, _ in buffer.take()] == [7]
    assert not buffer.take_shared()
    assert not buffer.is_by_subpartition


def test_events_at_the_end_are_kept_once_for_all():
    buffer = buffer_of(1000)
    buffer.write(7, RowBatch(["a"]))
    buffer.add_shared(event_buffer(Watermark(1)))
    buffer.add_shared(event_buffer(Watermark(2)))
    assert len(list(buffer.take())) == 1
    assert len(buffer.take_shared()) == 2


def test_events_between_records_are_in_the_slice_of_each():
    buffer = buffer_of(3)
    buffer.add_shared(event_buffer(Watermark(1)))
    buffer.write(1, RowBatch(["a"]))
    slices = dict(buffer.take())
    assert {index: len(buffers) for index, buffers in slices.items()} == {0: 1, 1: 2, 2: 1}
    assert not buffer.take_shared()


def test_rows_that_wait_count_as_objects_and_encoded_ones_as_bytes():
    buffer = buffer_of(10, "LZ4")
    for number in range(1000):
        buffer.write(number % 10, RowBatch([("a text", number)] * 10))
    waiting = buffer.size
    assert 1_000_000 < waiting < 3_000_000  # a tuple, a number and a list for each
    buffer.encode()
    assert 1_000 < buffer.size < waiting / 5
    list(buffer.take())
    buffer.take_shared()
    assert buffer.size == 0


def test_columns_count_with_their_bytes():
    buffer = buffer_of()
    data = pa.record_batch({"a": pa.array(range(10_000))})
    buffer.write(0, ColumnBatch(data))
    assert 60_000 < buffer.size < 100_000


@pytest.mark.parametrize("is_shared", [False, True])
def test_what_a_producer_holds_is_bounded_by_the_buffer(tmp_path, is_shared):
    """Whatever it writes, and to however many subpartitions."""
    most = 200_000
    part = blocking(tmp_path, SORT_MERGE, subpartitions=500, sort_bytes=most, codec=None)
    held = []
    for number in range(3000):
        writer = part.sort_merge if is_shared else part.subpartitions[number % 500]
        writer.write(RowBatch([bytes(100)] * 5))
        held.append(part.sort_merge._buffer.size)
    assert max(held) < most
    assert max(held) > most / 2
    part.finish()
    assert part.sort_merge._buffer.size == 0
    part.release()


def test_a_format_that_says_nothing_gives_flinks_sizes():
    found = SortMerge(str)
    assert (found.min_parallelism, found.min_buffers * found.segment_bytes) == (1, 16 << 20)
