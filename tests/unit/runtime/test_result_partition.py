"""ResultPartition: frames, order, the bound and its wake-ups, one consumer."""

import numpy as np
import pyarrow as pa
import pytest

from penstock.model.errors import EngineBug
from penstock.model.ids import (
    AttemptId,
    DataSetId,
    ExecutionVertexId,
    PartitionId,
    ResultPartitionId,
    VertexId,
)
from penstock.runtime.elements import (
    NO_TIMESTAMP,
    ColumnBatch,
    EndOfPartition,
    RowBatch,
    Watermark,
)
from penstock.runtime.result_partition import (
    MAX_QUEUED,
    MAX_ROWS_PER_FRAME,
    ResultPartition,
    Subpartition,
)
from tests.unit.runtime.tasks import values_of


class Wakes:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def subpartition(frame_bytes=1 << 20, wake=lambda: None) -> Subpartition:
    return Subpartition(frame_bytes, wake)


def drained(sub) -> list:
    found = []
    while (element := sub.poll()) is not None:
        found.append(element)
    return found


def columns(**data) -> ColumnBatch:
    return ColumnBatch(pa.record_batch(data))


def test_small_batches_wait_and_leave_as_one_with_their_timestamps():
    sub = subpartition()
    sub.write(RowBatch([1], np.array([5], np.int64)))
    sub.write(RowBatch([2, 3]))
    assert sub.poll() is None
    assert sub.has_pending
    sub.flush()
    (batch,) = drained(sub)
    assert batch.values == [1, 2, 3]
    assert batch.timestamps.tolist() == [5, NO_TIMESTAMP, NO_TIMESTAMP]
    assert sub.records == 3


def test_a_full_frame_is_visible_without_a_flush():
    sub = subpartition()
    sub.write(RowBatch(list(range(MAX_ROWS_PER_FRAME))))
    assert len(sub.poll()) == MAX_ROWS_PER_FRAME
    wide = subpartition(frame_bytes=1000)
    wide.bytes_per_row = 100.0  # as the encoder found
    wide.write(RowBatch(list(range(9))))
    assert wide.poll() is None
    wide.write(RowBatch([9]))
    assert len(wide.poll()) == 10


def test_an_event_comes_after_what_was_written_before_it():
    sub = subpartition()
    sub.write(RowBatch([1]))
    sub.write_event(Watermark(7))
    sub.write(RowBatch([2]))
    sub.write_event(EndOfPartition())
    assert [getattr(e, "values", e) for e in drained(sub)] == [
        [1], Watermark(7), [2], EndOfPartition(),
    ]  # fmt: skip


def test_column_batches_of_another_schema_start_a_new_batch():
    sub = subpartition()
    given = [columns(a=[1]), columns(a=[2]), columns(a=["x"]), columns(b=[3]), columns(a=[4])]
    for batch in given:
        sub.write(batch)
    sub.flush()
    got = drained(sub)
    assert [len(batch) for batch in got] == [2, 1, 1, 1]
    assert values_of(got) == values_of(given)


def test_rows_and_columns_are_not_mixed():
    sub = subpartition()
    for batch in (RowBatch([1]), columns(a=[2]), RowBatch([3])):
        sub.write(batch)
    sub.flush()
    assert values_of(drained(sub)) == [1, {"a": 2}, 3]


def test_large_column_batches_are_not_copied_and_keep_their_place():
    sub, large = subpartition(), columns(a=list(range(2000)))
    for batch in (columns(a=[-1]), large, columns(a=[-2])):
        sub.write(batch)
    sub.flush()
    got = drained(sub)
    assert got[1] is large
    assert [row["a"] for row in values_of(got)] == [-1, *range(2000), -2]


def test_batches_without_rows_do_no_harm():
    sub = subpartition()
    empty = columns(a=[1]).slice(0, 0)
    sub.write(empty)
    sub.write(empty)
    sub.flush()
    assert values_of(drained(sub)) == []


def test_the_producer_is_blocked_at_the_bound_and_woken_when_there_is_room():
    wake = Wakes()
    sub = subpartition(wake=wake)
    for number in range(MAX_QUEUED):
        assert sub.is_available
        sub.write(RowBatch([number]))
        sub.flush()
    assert not sub.is_available
    sub.write_event(Watermark(1))  # nothing is dropped
    assert sub.backlog == MAX_QUEUED + 1
    sub.poll()
    assert wake.count == 0
    sub.poll()
    assert (wake.count, sub.is_available) == (1, True)
    drained(sub)
    assert wake.count == 1


def test_the_consumer_is_told_of_what_was_there_before_it_and_of_all_after():
    notify = Wakes()
    sub = subpartition()
    sub.write_event(Watermark(1))
    sub.attach(notify)
    assert notify.count == 1
    sub.write(RowBatch([1]))
    assert notify.count == 1  # invisible still
    sub.flush()
    assert notify.count == 2
    with pytest.raises(EngineBug, match="only once"):
        sub.attach(notify)


def test_peek_takes_nothing():
    sub = subpartition()
    assert sub.peek() is None
    sub.write_event(Watermark(1))
    assert sub.peek() == Watermark(1) == sub.poll()


def test_a_released_subpartition_drops_everything_and_blocks_nobody():
    wake = Wakes()
    sub = subpartition(wake=wake)
    for number in range(MAX_QUEUED):
        sub.write_event(Watermark(number))
    sub.release()
    assert (sub.is_available, wake.count, sub.poll()) == (True, 1, None)
    sub.write_event(Watermark(99))
    assert sub.poll() is None


def result_partition(subpartitions=3) -> ResultPartition:
    attempt = AttemptId(ExecutionVertexId(VertexId("v"), 0), 0)
    partition_id = ResultPartitionId(PartitionId(DataSetId("d"), 0), attempt)
    return ResultPartition(partition_id, subpartitions, 1 << 20, lambda: None)


def test_a_partition_is_blocked_by_any_of_its_subpartitions():
    part = result_partition()
    for _ in range(MAX_QUEUED):
        part.subpartitions[1].write_event(Watermark(1))
    assert not part.is_available
    part.subpartitions[1].poll()
    assert part.is_available


def test_events_and_the_end_go_to_every_consumer():
    part = result_partition()
    part.broadcast_event(Watermark(3))
    part.finish()
    assert [drained(sub) for sub in part.subpartitions] == [[Watermark(3), EndOfPartition()]] * 3


def test_a_release_with_a_failure_tells_it():
    part = result_partition()
    part.subpartitions[0].write_event(Watermark(1))
    part.release("producer failed")
    assert part.failure == "producer failed"
    assert [drained(sub) for sub in part.subpartitions] == [[], [], []]
