"""RowLimits: how many records the next slice may bring, by what consumers let wait."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.engine.runtime.network.partition.subpartition import RowLimits, RowSize, object_bytes
from tests.tools.runtime.partitions import ViewListener, pipelined


def test_without_limits_any_number_may_come():
    assert RowLimits().for_slice() is None


def test_a_consumer_that_gets_no_records_makes_no_slice_small():
    """It has processed none, so it has never raised its limit."""
    partition = pipelined(2)
    for index in range(2):
        partition.create_view(index, ViewListener()).limit_rows((1000, 1)[index])
    limits = partition.marks.row_limits
    partition.subpartitions[1].write(RowBatch([1]))
    assert limits.for_slice() == 1
    for _ in range(40):
        partition.subpartitions[0].write(RowBatch([1]))
        found = limits.for_slice()
    assert found == 1000


def test_slices_grow_while_nobody_gets_records():
    partition = pipelined(2)
    for index in range(2):
        partition.create_view(index, ViewListener()).limit_rows(1)
    limits = partition.marks.row_limits
    assert [limits.for_slice() for _ in range(4)] == [1, 2, 4, 8]
    partition.subpartitions[0].write(RowBatch([1]))
    assert limits.for_slice() == 1


def test_a_released_subpartition_limits_nothing():
    partition = pipelined(2)
    for index in range(2):
        partition.create_view(index, ViewListener()).limit_rows((9, 1)[index])
        partition.subpartitions[index].write(RowBatch([1]))
    partition.subpartitions[1].release()
    assert partition.marks.row_limits.for_slice() == 9


def test_what_was_measured_is_not_guessed_any_more():
    size = RowSize(1000, 100)
    size.measured(10, 500)
    assert size.frame_rows == 20
    size.sample(RowBatch(["x" * 10_000]))
    assert size.frame_rows == 20


def test_heavy_rows_count_at_once_and_light_ones_by_and_by():
    size = RowSize(10_000, 1000)
    size.sample(RowBatch(["x" * 5000]))
    assert size.frame_rows == 1
    for _ in range(30):
        size.sample(RowBatch([1]))
    assert size.frame_rows > 100


def test_columns_weigh_what_their_buffers_do():
    size = RowSize(8000, 10_000)
    for _ in range(30):
        size.sample(ColumnBatch(pa.record_batch({"a": range(1000)})))
    assert 990 <= size.frame_rows <= 1000


def test_the_least_of_all_wishes_counts_and_one_row_always_fits():
    size = RowSize(1000, 100)
    size.measured(1, 10)
    size.set_frame_bytes(500)
    assert (size.frame_bytes, size.frame_rows) == (500, 50)
    size.limit(200)
    assert size.frame_bytes == 200
    size.limit(5000)
    assert size.frame_bytes == 500
    size.set_frame_bytes(0)
    assert (size.frame_bytes, size.frame_rows) == (1, 1)


def test_objects_weigh_with_what_they_hold():
    class Held:
        def __init__(self):
            self.text = "x" * 1000

    assert object_bytes(["x" * 1000] * 100, 3) > 100_000
    assert object_bytes({"a": ("x" * 1000,)}, 3) > 1000
    assert object_bytes(Held(), 3) > 1000
    assert object_bytes(1, 3) < 100
    assert object_bytes([], 3) < 100


def test_an_object_that_cannot_be_looked_at_is_not_weighed():
    class Shy:
        def __sizeof__(self):
            raise ValueError("do not look")

    size = RowSize(1000, 100)
    size.sample(RowBatch([Shy()]))
    assert size.frame_rows == 15


def test_of_a_long_container_some_items_tell():
    looked_at = []

    class Item:
        def __sizeof__(self):
            looked_at.append(self)
            return 100

    for container in (list, tuple, set, frozenset):
        assert object_bytes(container(Item() for _ in range(10_000)), 3) >= 1_000_000
    assert len(looked_at) <= 64
    assert object_bytes({number: Item() for number in range(10_000)}, 3) >= 1_000_000


def test_a_batch_without_rows_changes_no_guess():
    size = RowSize(1000, 100)
    size.sample(RowBatch([]))
    assert size.frame_rows == 15


@given(st.integers(0, 500), st.integers(1, 100), st.integers(1, 100))
def test_pieces_are_the_batch_and_none_is_too_large(rows, row_bytes, max_rows):
    size = RowSize(1000, max_rows)
    size.measured(1, row_bytes)
    pieces = list(size.pieces(RowBatch(list(range(rows)))))
    assert [value for piece in pieces for value in piece.values] == list(range(rows))
    if size.frame_rows < max_rows:
        assert all(len(piece) <= size.frame_rows for piece in pieces)
    else:
        assert len(pieces) == 1
