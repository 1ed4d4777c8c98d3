"""PipelinedSubpartition: frames, order, notifications, backlog, blocking, priority, one consumer."""

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.elements import (
    NO_TIMESTAMP,
    ColumnBatch,
    EndOfPartition,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.network.partition.frame_queue import MAX_QUEUED
from penstock.engine.runtime.network.partition.pipelined import MAX_ROWS_PER_FRAME
from penstock.engine.runtime.network.partition.result_partition import (
    PartitionHooks,
    pipelined_partition,
)
from penstock.engine.runtime.network.partition.subpartition import REFUSED
from penstock.engine.runtime.network.subpartition_view import NextType
from tests.tools.runtime.partitions import (
    Barrier,
    Checkpoints,
    ViewListener,
    drained_view,
    pipelined,
    result_partition_id,
)
from tests.tools.runtime.task_parts import values_of


class Queue:
    """A subpartition with its consumer. `shown`: of each poll what came, and its neighbours."""

    def __init__(self, frame_bytes=1 << 20, *, has_reader=True, checkpoints=None) -> None:
        self.partition = pipelined(frame_bytes=frame_bytes, output_state=checkpoints)
        self.sub = self.partition.subpartitions[0]
        self.listener = ViewListener()
        self.view = self.partition.create_view(0, self.listener) if has_reader else None

    def notified(self, action, *arguments, **options) -> bool:
        before = self.listener.data
        action(*arguments, **options)
        return self.listener.data > before

    def finished(self, *values) -> bool:
        return self.notified(self.sub.add_frame, RowBatch(list(values)), is_finished=True)

    def unfinished(self, *values) -> bool:
        return self.notified(self.sub.add_frame, RowBatch(list(values)), is_finished=False)

    def poll(self):
        polled = self.view.poll()
        if polled is None:
            return None
        return getattr(polled.element, "values", polled.element), polled.backlog, polled.next.name


def columns(**data) -> ColumnBatch:
    return ColumnBatch(pa.record_batch(data))


# ---------------------------------------------------------------------- frames


def test_small_batches_are_taken_as_one_with_their_timestamps():
    queue = Queue()
    queue.sub.write(RowBatch([1], np.array([5], np.int64)))
    queue.sub.write(RowBatch([2, 3]))
    assert not queue.view.is_available(has_credit=True)
    queue.partition.flush()
    (batch,) = drained_view(queue.view)
    assert batch.values == [1, 2, 3]
    assert batch.timestamps.tolist() == [5, NO_TIMESTAMP, NO_TIMESTAMP]
    assert queue.sub.records == 3


def test_a_full_frame_is_visible_without_a_flush():
    queue = Queue()
    assert queue.notified(queue.sub.write, RowBatch(list(range(MAX_ROWS_PER_FRAME))))
    assert queue.poll() == (list(range(MAX_ROWS_PER_FRAME)), 0, "NONE")
    assert not queue.notified(queue.sub.write, RowBatch([1]))
    assert queue.notified(queue.sub.write, RowBatch([2] * (MAX_ROWS_PER_FRAME - 1)))


def test_rows_that_are_known_to_be_heavy_fill_a_frame_sooner():
    queue = Queue(frame_bytes=1000)
    queue.view.measured(10, 1000)  # as the encoder found
    queue.sub.write(RowBatch(list(range(9))))
    assert not queue.view.is_available(has_credit=True)
    queue.sub.write(RowBatch([9]))
    assert queue.view.is_available(has_credit=True)


def test_rows_that_nobody_encodes_are_weighed_by_their_look():
    queue = Queue(frame_bytes=1000)
    queue.sub.write(RowBatch(["x" * 2000]))
    assert queue.view.is_available(has_credit=True)
    light = Queue(frame_bytes=1000)
    light.sub.write(RowBatch([1]))
    assert not light.view.is_available(has_credit=True)


def test_a_batch_far_above_the_frame_is_cut():
    queue = Queue(frame_bytes=1000)
    queue.sub.write(columns(a=["x" * 100] * 50))
    got = drained_view(queue.view)
    assert sum(map(len, got)) == 50
    assert max(len(batch) for batch in got) <= 10


def test_the_consumer_can_ask_for_smaller_frames_but_not_for_larger_ones():
    queue = Queue(frame_bytes=1000)
    queue.view.measured(1, 10)
    queue.view.new_buffer_size(20)
    queue.sub.write(RowBatch([1, 2]))
    assert queue.view.is_available(has_credit=True)
    assert queue.sub.add(Watermark(1)) == 20
    queue.view.new_buffer_size(10**9)
    assert queue.sub.add(Watermark(1)) == 1000


def test_an_event_comes_after_what_was_written_before_it():
    queue = Queue()
    queue.sub.write(RowBatch([1]))
    queue.sub.add(Watermark(7))
    queue.sub.write(RowBatch([2]))
    queue.sub.finish()
    assert [getattr(e, "values", e) for e in drained_view(queue.view)] == [
        [1], Watermark(7), [2], EndOfPartition(),
    ]  # fmt: skip


def test_column_batches_of_another_schema_start_a_new_frame():
    queue = Queue()
    given = [columns(a=[1]), columns(a=[2]), columns(a=["x"]), columns(b=[3]), columns(a=[4])]
    for batch in given:
        queue.sub.write(batch)
    got = drained_view(queue.view)
    assert [len(batch) for batch in got] == [2, 1, 1, 1]
    assert values_of(got) == values_of(given)


def test_rows_and_columns_are_not_mixed():
    queue = Queue()
    for batch in (RowBatch([1]), columns(a=[2]), RowBatch([3])):
        queue.sub.write(batch)
    assert values_of(drained_view(queue.view)) == [1, {"a": 2}, 3]


def test_large_column_batches_are_not_copied_and_keep_their_place():
    queue, large = Queue(), columns(a=list(range(2000)))
    for batch in (columns(a=[-1]), large, columns(a=[-2])):
        queue.sub.write(batch)
    got = drained_view(queue.view)
    assert got[1] is large
    assert [row["a"] for row in values_of(got)] == [-1, *range(2000), -2]


def test_batches_without_rows_do_no_harm():
    queue = Queue()
    empty = columns(a=[1]).slice(0, 0)
    queue.sub.write(empty)
    queue.sub.write(empty)
    assert values_of(drained_view(queue.view)) == []


# ---------------------------------------------------------------------- notifications, backlog


def test_a_flush_shows_an_unfinished_frame_once():
    queue = Queue()
    assert not queue.unfinished(1)
    assert queue.notified(queue.sub.flush)
    assert not queue.notified(queue.sub.flush)
    assert queue.poll() == ([1], 0, "NONE")
    assert queue.poll() is None


def test_a_flush_behind_finished_frames_tells_nobody_but_counts():
    queue = Queue()
    queue.finished(1)
    queue.finished(2)
    queue.unfinished(3)
    assert queue.sub.backlog == 2
    assert not queue.notified(queue.sub.flush)
    assert queue.sub.backlog == 3
    assert [queue.poll() for _ in range(4)] == [
        ([1], 2, "DATA"), ([2], 1, "DATA"), ([3], 0, "NONE"), None,
    ]  # fmt: skip


def test_a_flush_of_an_empty_queue_or_of_a_frame_that_was_read_does_nothing():
    queue = Queue()
    assert not queue.notified(queue.sub.flush)
    queue.unfinished(1)
    assert queue.poll()[0] == [1]
    assert not queue.notified(queue.sub.flush)
    queue.sub.write(RowBatch([2]))
    assert queue.notified(queue.sub.flush)


def test_the_consumer_is_told_when_the_count_of_finished_frames_becomes_one():
    queue = Queue()
    assert [queue.finished(n) for n in range(3)] == [True, True, False]


def test_the_last_data_frame_is_not_in_the_backlog():
    queue = Queue()
    backlogs = []
    for number in range(3):
        queue.finished(number)
        backlogs.append(queue.sub.backlog)
    assert backlogs == [0, 1, 2]
    queue.sub.add(Watermark(1))
    assert queue.sub.backlog == 3


def test_a_frame_counts_as_finished_when_another_follows_it():
    queue = Queue()
    assert not queue.unfinished(*range(10))
    queue.sub.finish_tail()
    assert queue.unfinished(*range(5))
    assert queue.poll() == (list(range(10)), 0, "NONE")
    assert queue.poll() == (list(range(5)), 0, "NONE")
    assert queue.poll() is None


def test_a_frame_that_was_read_before_it_was_finished_is_passed_over():
    queue = Queue()
    queue.unfinished(1)
    assert queue.poll()[0] == [1]
    assert queue.finished(2)
    assert queue.poll() == ([2], 0, "NONE")


def test_a_consumer_without_buffers_of_its_own_learns_of_every_frame():
    part = pipelined_partition(
        result_partition_id(), 1, 1 << 20, PartitionHooks(), delivers_empty=True
    )
    sub, view = part.subpartitions[0], part.create_view(0, ViewListener())
    sub.add_frame(RowBatch([1]), is_finished=False)
    assert view.poll().element.values == [1]
    sub.add_frame(RowBatch([2]), is_finished=True)
    assert [batch.values for batch in drained_view(view)] == [[], [2]]


def test_the_end_is_always_told():
    queue = Queue()
    for number in range(3):
        queue.finished(number)
    assert queue.notified(queue.sub.finish)
    assert queue.sub.backlog == 3
    assert [queue.poll()[1:] for _ in range(4)] == [
        (2, "DATA"), (1, "DATA"), (0, "EVENT"), (0, "NONE"),
    ]  # fmt: skip


def test_after_the_end_nothing_can_be_added():
    queue = Queue()
    queue.sub.finish()
    assert queue.sub.add(Watermark(1)) == REFUSED
    assert queue.sub.add(Barrier(has_priority=True)) == REFUSED
    assert queue.sub.add_frame(RowBatch([1]), is_finished=True) == REFUSED
    queue.sub.write(RowBatch([1]))
    queue.sub.finish()
    assert drained_view(queue.view) == [EndOfPartition()]


def test_sequence_numbers_count_events_too():
    queue = Queue()
    queue.finished(1)
    queue.sub.add(Watermark(1))
    queue.sub.finish()
    assert [queue.view.poll().sequence for _ in range(3)] == [0, 1, 2]


def test_without_credit_only_events_may_go():
    queue = Queue()
    queue.finished(1)
    assert queue.view.is_available(has_credit=True)
    assert not queue.view.is_available(has_credit=False)
    queue.poll()
    queue.sub.add(Watermark(1))
    assert queue.view.is_available(has_credit=False)


# ---------------------------------------------------------------------- blocking, priority


def test_a_blocking_element_holds_the_rest_until_the_consumer_goes_on():
    queue = Queue()
    queue.finished("A")
    queue.sub.add(Barrier())
    queue.finished("B")
    assert queue.poll() == (["A"], 0, "EVENT")
    assert queue.poll() == (Barrier(), 0, "NONE")
    assert queue.poll() is None
    assert queue.sub.backlog == 0
    assert not queue.view.is_available(has_credit=True)
    assert not queue.finished("C")
    assert not queue.notified(queue.sub.flush)
    queue.view.resume()
    assert queue.view.is_available(has_credit=True)
    assert queue.poll()[0] == ["B"]


def test_what_is_not_blocked_cannot_be_resumed():
    with pytest.raises(EngineBug, match="not blocked"):
        Queue().view.resume()


def test_an_element_with_priority_overtakes_data_and_hands_it_over():
    checkpoints = Checkpoints()
    queue = Queue(checkpoints=checkpoints)
    queue.finished("A")
    queue.unfinished("B")
    barrier = Barrier(7, has_priority=True)
    queue.sub.add(barrier)
    assert queue.listener.priorities == [0]
    assert checkpoints.completed == [(7, 0, ["A", "B"])]
    assert queue.view.is_available(has_credit=False)
    assert [queue.poll()[0] for _ in range(3)] == [barrier, ["A"], ["B"]]


def test_of_several_with_priority_only_the_first_is_told():
    queue = Queue()
    queue.finished("A")
    queue.poll()
    queue.finished("B")
    queue.sub.add(Barrier(1, has_priority=True))
    queue.sub.add(Barrier(2, has_priority=True))
    assert queue.listener.priorities == [1]
    polled = queue.view.poll()
    assert (polled.element.checkpoint_id, polled.next) == (1, NextType.PRIORITY_EVENT)


def test_an_aligned_barrier_that_times_out_overtakes_what_is_before_it():
    checkpoints = Checkpoints()
    queue = Queue(checkpoints=checkpoints)
    queue.finished("A")
    queue.sub.add(Watermark(1))
    queue.sub.add(Barrier(3, is_timeoutable=True))
    queue.finished("B")
    queue.sub.time_out_barrier(2)
    assert not checkpoints.completed
    queue.sub.time_out_barrier(3)
    queue.sub.time_out_barrier(3)
    assert checkpoints.completed == [(3, 0, ["A"])]
    assert queue.listener.priorities == [0]
    assert [queue.poll()[0] for _ in range(4)] == [
        Barrier(3, has_priority=True), ["A"], Watermark(1), ["B"],
    ]  # fmt: skip


def test_an_aligned_barrier_that_goes_in_its_turn_overtakes_nothing():
    checkpoints = Checkpoints()
    queue = Queue(checkpoints=checkpoints)
    queue.finished("A")
    queue.sub.add(Barrier(3, is_timeoutable=True))
    drained_view(queue.view)
    assert checkpoints.completed == [(3, 0, [])]
    queue.sub.time_out_barrier(3)
    assert len(checkpoints.completed) == 1


def test_a_barrier_that_is_aborted_replaced_or_released_fails_its_in_flight_data():
    checkpoints = Checkpoints()
    queue = Queue(checkpoints=checkpoints)
    queue.sub.add(Barrier(1, is_timeoutable=True))
    queue.sub.abort_checkpoint(9, "of another")
    queue.sub.abort_checkpoint(1, "declined")
    queue.sub.add(Barrier(2, is_timeoutable=True))
    queue.sub.add(Barrier(3, is_timeoutable=True))
    assert checkpoints.failed == [(1, 0), (2, 0)]
    queue.sub.release()
    assert checkpoints.failed == [(1, 0), (2, 0), (3, 0)]
    assert not checkpoints.completed


# ---------------------------------------------------------------------- one consumer, the bound


def test_there_is_one_consumer_only():
    queue = Queue(has_reader=False)
    queue.finished(1)
    assert queue.listener.data == 0
    queue.partition.create_view(0, queue.listener)
    assert queue.listener.data == 0  # it looks once by itself
    with pytest.raises(EngineBug, match="only once"):
        queue.partition.create_view(0, ViewListener())


def test_the_producer_is_blocked_at_the_bound_and_nothing_is_dropped():
    queue = Queue()
    for number in range(MAX_QUEUED):
        assert queue.partition.is_available
        queue.finished(number)
    assert not queue.partition.is_available
    queue.sub.add(Watermark(1))
    assert queue.sub.queued == MAX_QUEUED + 1
    queue.poll()
    assert not queue.partition.is_available
    queue.poll()
    assert queue.partition.is_available


def test_a_frame_that_is_being_filled_is_not_in_the_bound():
    queue = Queue()
    for number in range(MAX_QUEUED - 1):
        queue.finished(number)
    queue.unfinished("tail")
    assert queue.partition.is_available
    queue.sub.finish_tail()
    assert not queue.partition.is_available


def test_a_released_subpartition_drops_everything_and_blocks_nobody():
    queue = Queue()
    for number in range(MAX_QUEUED):
        queue.finished(number)
    queue.sub.release()
    assert queue.partition.is_available
    assert queue.view.poll() is None
    queue.finished("late")
    queue.sub.flush()
    queue.sub.finish()
    assert queue.sub.queued == 0


def test_a_consumer_that_leaves_holds_up_nobody():
    queue = Queue()
    for number in range(MAX_QUEUED):
        queue.finished(number)
    queue.view.release()
    assert queue.partition.is_available
    assert queue.sub.is_released


# ---------------------------------------------------------------------- few records may wait


def test_the_producer_waits_when_so_many_records_wait_for_the_consumer():
    queue = Queue()
    queue.view.limit_rows(3)
    queue.sub.write(RowBatch([1, 2]))
    assert queue.partition.is_available
    queue.sub.write(RowBatch([3]))
    assert not queue.partition.is_available
    assert queue.poll()[0] == [1, 2]
    assert queue.partition.is_available


def test_records_below_the_limit_of_full_frames_are_visible_without_a_flush():
    queue = Queue()
    queue.view.limit_rows(8)
    assert not queue.notified(queue.sub.write, RowBatch([1]))
    assert queue.notified(queue.sub.write, RowBatch([2]))
    assert queue.poll()[0] == [1, 2]


def test_a_higher_limit_wakes_the_producer():
    woken = []
    partition = pipelined(wake=lambda: woken.append(True))
    view = partition.create_view(0, ViewListener())
    partition.limit_rows(1)
    partition.subpartitions[0].write(RowBatch([1]))
    assert not partition.is_available
    view.limit_rows(None)
    assert partition.is_available
    assert woken == [True]


def test_the_least_limit_of_all_consumers_counts_for_the_producer():
    partition = pipelined(3)
    views = [partition.create_view(index, ViewListener()) for index in range(3)]
    limits = partition.marks.row_limits
    assert limits.for_slice() is None
    for index, rows in enumerate((7, 5, 1)):
        views[index].limit_rows(rows)
    for index in (0, 1):
        partition.subpartitions[index].write(RowBatch([1]))
    assert limits.for_slice() == 5
    views[1].limit_rows(None)
    assert limits.for_slice() == 7


def test_a_frame_that_was_taken_in_part_counts_what_is_left():
    queue = Queue()
    queue.view.limit_rows(100)
    queue.sub.write(RowBatch(list(range(20))))
    queue.sub.flush()
    queue.poll()
    queue.sub.write(RowBatch(list(range(90))))
    assert queue.partition.is_available
    queue.sub.write(RowBatch(list(range(10))))
    assert not queue.partition.is_available
