"""RowLimits: how many records the next slice may bring, by what consumers let wait."""

from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.network.partition.subpartition import RowLimits
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
