"""StreamTask: bounded steps, timers between slices, blocked outputs, flushes, the order of the end."""

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest

from penstock.engine.model.checkpoints import CheckpointOptions, CheckpointType
from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import (
    MIN_WATERMARK,
    CheckpointBarrier,
    ColumnBatch,
    EndOfData,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.operator import Accepts, Operator
from penstock.engine.runtime.operators import MapOperator
from penstock.engine.runtime.task.input_processor import InputStatus
from penstock.engine.runtime.task.slices import MAX_SLICE, SliceSizer
from tests.tools.runtime.task_parts import (
    MS,
    Clock,
    ListInput,
    Logging,
    Remembering,
    task_of,
    timing_of,
)


def slow_map(clock, ms):
    def spend(value):
        clock.spend_ms(ms)
        return value

    return MapOperator(UserFunction(spend))


class Expanding(Operator):
    """Each record becomes `count` batches, made one at a time; `made` counts them."""

    def __init__(self, clock, count, ms_each=0.0) -> None:
        self.clock, self.count, self.ms_each = clock, count, ms_each
        self.made = 0

    def process(self, batch, input_index):
        for value in batch.values:
            for number in range(self.count):
                self.clock.spend_ms(self.ms_each)
                self.made += 1
                yield RowBatch([(value, number)])


# ---------------------------------------------------------------------- steps


def test_a_very_slow_function_gives_each_result_as_soon_as_it_is_there():
    clock, out = Clock(), Remembering()
    task = task_of([slow_map(clock, 2000)], ListInput((0, RowBatch([1, 2, 3]))), [out], clock)
    for seen in ([1], [1, 2], [1, 2, 3]):
        assert task.process_input() is InputStatus.MORE_AVAILABLE
        assert out.values == seen
        assert task.slices.rows_left == 3 - len(seen)
        assert out.flushes[-1] == len(out.written)  # longer than the buffer timeout: visible
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE


def test_a_step_stays_near_its_time_and_uses_it():
    clock, out = Clock(), Remembering()
    task = task_of([slow_map(clock, 0.5)], ListInput((0, RowBatch(list(range(500))))), [out], clock)
    lengths = []
    while not lengths or lengths[-1] > 0:
        before = clock.ns
        task.process_input()
        lengths.append((clock.ns - before) / MS)
    assert max(lengths) <= 2 * 5
    assert len(lengths) <= 500 * 0.5 / 5 * 1.5
    assert out.values == list(range(500))


def test_slices_grow_to_their_bound_for_fast_functions_and_never_shrink_below_one():
    sizer = SliceSizer(5 * MS)
    for _ in range(30):
        sizer.took(sizer.rows, 1000)
    assert sizer.rows == MAX_SLICE
    for _ in range(30):
        sizer.took(sizer.rows, 10**12)
    assert sizer.rows == 1


def test_waiting_for_an_output_does_not_make_slices_smaller():
    clock, out = Clock(), Remembering(room=0)
    task = task_of([slow_map(clock, 0)], ListInput((0, RowBatch(list(range(1000))))), [out], clock)
    while len(out.values) < 1000:
        clock.spend_ms(1000)  # the consumer takes its time for each batch
        out.room = len(out.written) + 1
        task.process_input()
    assert [len(batch) for batch in out.written[:5]] == [1, 2, 4, 8, 16]


def test_elements_keep_their_order_across_slices():
    clock, out = Clock(), Remembering()
    given = [RowBatch([1, 2, 3]), Watermark(5), RowBatch([4]), Watermark(9)]
    task = task_of([slow_map(clock, 6)], ListInput(*((0, e) for e in given)), [out], clock)
    while task.process_input() is not InputStatus.NOTHING_AVAILABLE:
        pass
    kinds = [e.timestamp_ms if isinstance(e, Watermark) else e.values for e in out.written]
    assert kinds == [[1], [2], [3], 5, [4], 9]


# ---------------------------------------------------------------------- timers


def test_a_due_timer_fires_between_two_slices_of_a_long_batch():
    clock, out, log = Clock(), Remembering(), []
    tail = Logging("tail", log)
    task = task_of([slow_map(clock, 10), tail], ListInput((0, RowBatch([1, 2, 3]))), [out], clock)
    tail.context.timers.schedule(15)
    assert task.next_timer_ms() == 15
    while task.process_input() is not InputStatus.NOTHING_AVAILABLE:
        pass
    assert [entry[1] for entry in log] == ["open", "process", "process", "timer", "process"]
    assert task.next_timer_ms() is None


def test_timers_that_are_always_due_leave_input_its_turn():
    class Ticking(Logging):
        def on_processing_time(self, now_ms):
            clock.spend_ms(2)
            self.context.timers.schedule(now_ms)
            return ()

    clock, out = Clock(), Remembering()
    head = Ticking()
    task = task_of([head], ListInput(*((0, RowBatch([n])) for n in range(5))), [out], clock)
    head.context.timers.schedule(0)
    for _ in range(20):
        task.process_input()
    assert out.values == list(range(5))


def test_a_timer_waits_for_the_end_of_a_record_whose_output_is_open():
    clock, out, log = Clock(), Remembering(), []
    head, tail = Expanding(clock, 10, ms_each=6), Logging("tail", log)
    task = task_of([head, tail], ListInput((0, RowBatch(["a", "b"]))), [out], clock)
    tail.context.timers.schedule(1)
    while task.process_input() is not InputStatus.NOTHING_AVAILABLE:
        pass
    names = [entry[1] for entry in log]
    assert names == ["open", *["process"] * 10, "timer", *["process"] * 10]


def test_an_idle_task_fires_a_timer_without_input():
    clock, log = Clock(), []
    task = task_of([Logging("op", log)], ListInput(), [Remembering()], clock)
    task.chain.head.context.timers.schedule(50)
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE
    assert ("op", "timer", 50) not in log
    clock.spend_ms(50)
    task.process_input()
    assert ("op", "timer", 50) in log


# ---------------------------------------------------------------------- outputs


def test_a_full_output_suspends_a_record_that_yields_very_many():
    clock, out = Clock(), Remembering(room=2)
    head = Expanding(clock, 10**7)
    task = task_of([head], ListInput((0, RowBatch(["x"]))), [out], clock)
    while task.is_output_available:
        task.process_input()
    assert head.made == 2
    out.room = 5
    while task.is_output_available:
        task.process_input()
    assert head.made == 5
    assert out.values == [("x", number) for number in range(5)]


def test_one_full_output_blocks_and_the_others_are_flushed_when_their_time_is_over():
    clock, full, other = Clock(), Remembering(room=0), Remembering()
    task = task_of([Logging()], ListInput(), [full, other], clock, timing=timing_of(clock, 5, 20))
    assert task.process_input() is InputStatus.MORE_AVAILABLE
    assert not task.is_output_available
    assert other.flushes == []
    clock.spend_ms(20)
    assert task.process_input() is InputStatus.MORE_AVAILABLE
    assert not task.is_output_available
    assert len(other.flushes) == 1


def test_under_load_the_buffer_timeout_bounds_how_long_records_are_invisible():
    clock, out = Clock(), Remembering()
    source = ListInput(*((0, RowBatch([i])) for i in range(100)))
    task = task_of([slow_map(clock, 5)], source, [out], clock, timing=timing_of(clock, 5, 20))
    flushed_at, count = [0.0], 0
    for _ in range(99):
        assert task.process_input() is InputStatus.MORE_AVAILABLE
        if len(out.flushes) > count:
            count = len(out.flushes)
            flushed_at.append(clock.ns / MS)
    gaps = [after - before for before, after in pairwise(flushed_at)]
    assert max(gaps) <= 20 + 5
    assert min(gaps) >= 20


def test_without_more_input_everything_is_visible_at_once():
    clock, out = Clock(), Remembering()
    task = task_of([Logging()], ListInput((0, RowBatch([1]))), [out], clock)
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE
    assert out.values == [1]
    assert out.flushes[-1] == len(out.written)


# ---------------------------------------------------------------------- the end


def test_the_end_finishes_head_to_tail_then_tells_the_consumers():
    clock, out, log = Clock(), Remembering(), []
    given = ListInput((0, RowBatch([1])), (0, EndOfData()), is_closed=True)
    task = task_of([Logging("head", log), Logging("tail", log)], given, [out], clock)
    assert task.process_input() is InputStatus.END_OF_INPUT
    called = [entry[:2] for entry in log if entry[1] in {"end_input", "finish"}]
    assert called == [("head", "end_input"), ("head", "finish"),
                      ("tail", "end_input"), ("tail", "finish")]  # fmt: skip
    assert out.values == [1, "head ended 0", "head finished", "tail ended 0", "tail finished"]
    assert out.written[-1] == EndOfData(drain=True)
    assert out.written.count(EndOfData(drain=True)) == 1
    assert out.is_ended
    assert out.flushes[-1] == len(out.written)
    assert task.process_input() is InputStatus.END_OF_INPUT


def test_each_logical_input_ends_once_and_finish_comes_after_the_last():
    clock, out, log = Clock(), Remembering(), []
    given = ListInput((1, EndOfData()), (0, RowBatch([7])), (0, EndOfData()))
    given.inputs = 2
    task = task_of([Logging("op", log)], given, [out], clock, types=[None, None])
    assert (
        task.process_input() is InputStatus.NOTHING_AVAILABLE
    )  # ended inputs, but their partitions are not
    given.is_closed = True
    assert task.process_input() is InputStatus.END_OF_INPUT
    assert [entry[1:] for entry in log[1:]] == [
        ("end_input", 1), ("process", 0, [7]), ("end_input", 0), ("finish",),
    ]  # fmt: skip


def test_a_sources_head_is_not_told_of_an_input_that_it_does_not_have():
    clock, out, log = Clock(), Remembering(), []
    given = ListInput((0, RowBatch([1])), (0, EndOfData()), is_closed=True, is_source=True)
    task = task_of([Logging("source", log), Logging("tail", log)], given, [out], clock)
    assert task.process_input() is InputStatus.END_OF_INPUT
    assert ("source", "process", 0, [1]) not in log
    assert ("tail", "process", 0, [1]) in log
    assert not [entry for entry in log if entry[:2] == ("source", "end_input")]


# ---------------------------------------------------------------------- what it tells of itself


def test_records_behind_the_end_of_their_input_are_refused():
    clock = Clock()
    given = ListInput((0, EndOfData(drain=True)), (0, RowBatch([1])))
    task = task_of([Logging()], given, [Remembering()], clock)
    with pytest.raises(EngineBug, match="input 0 has ended, but 1 records came"):
        task.process_input()


def test_the_watermark_of_a_task_is_the_lowest_of_its_inputs_and_none_before_each_has_one():
    clock = Clock()
    given = ListInput((0, Watermark(7)), (1, Watermark(3)), (1, Watermark(9)))
    given.inputs = 2
    task = task_of([Logging()], ListInput(), [Remembering()], clock)
    task.input = given
    seen = []
    while given.elements:
        given.elements, rest = type(given.elements)([given.elements[0]]), list(given.elements)[1:]
        task.process_input()
        seen.append(task.watermark_ms)
        given.elements.extend(rest)
    assert seen == [MIN_WATERMARK, 3, 7]


class Stamping(Logging):
    """Makes a watermark behind each batch, as an operator does that assigns timestamps."""

    def process(self, batch, input_index):
        return (batch, Watermark(max(batch.values)))


def test_of_a_source_the_watermarks_that_its_chain_makes_are_told():
    given = ListInput((0, RowBatch([5, 8])), is_source=True)
    task = task_of([Logging(), Stamping()], given, [Remembering()], Clock())
    assert task.reported_watermark_ms == MIN_WATERMARK
    while given.elements:
        task.process_input()
    assert (task.watermark_ms, task.reported_watermark_ms) == (MIN_WATERMARK, 8)


def test_a_source_that_had_finished_before_its_checkpoint_has_no_chain_and_tells_no_watermark():
    task = task_of([], ListInput(is_source=True), [Remembering()], Clock())
    assert task.reported_watermark_ms == task.watermark_ms == MIN_WATERMARK


def test_behind_a_source_the_watermark_of_the_inputs_is_told():
    given = ListInput((0, RowBatch([5, 8])), (0, Watermark(3)))
    task = task_of([Logging(), Stamping()], given, [Remembering()], Clock())
    while given.elements:
        task.process_input()
    assert task.reported_watermark_ms == task.watermark_ms == 3


def test_a_task_that_is_stopped_ends_nothing_and_says_so_downstream():
    clock, out, log = Clock(), Remembering(), []
    given = ListInput((0, RowBatch([1])), (0, EndOfData(drain=False)), is_closed=True)
    task = task_of([Logging("op", log)], given, [out], clock)
    while task.process_input() is not InputStatus.END_OF_INPUT:
        pass
    assert out.written[-1] == EndOfData(drain=False)
    assert out.values == [1]
    assert not [call for call in log if call[1] in {"end_input", "finish"}]


def test_one_stopped_input_makes_the_end_a_stop():
    clock, out, log = Clock(), Remembering(), []
    ends = ListInput((0, EndOfData(drain=True)), (1, EndOfData(drain=False)), is_closed=True)
    ends.inputs = 2
    task = task_of([Logging("op", log)], ends, [out], clock)
    while task.process_input() is not InputStatus.END_OF_INPUT:
        pass
    assert out.written[-1] == EndOfData(drain=False)
    assert [call for call in log if call[1] == "end_input"] == [("op", "end_input", 0)]
    assert ("op", "finish") not in log


# ---------------------------------------------------------------------- checkpoints of slow functions


def test_a_triggered_checkpoint_does_not_wait_for_room_in_the_outputs():
    clock, out = Clock(), Remembering(room=1)
    source = ListInput((0, RowBatch(list(range(100)))), is_source=True)
    snapshots: list = []
    task = task_of([Logging()], source, [out], clock, on_snapshot=snapshots.append)
    task.process_input()
    assert not task.is_output_available
    barrier = CheckpointBarrier(1, 0)
    task.trigger_checkpoint(barrier)
    task.process_input()
    assert out.written[-1] is barrier
    in_hand = [value for _, batch in snapshots[0].in_hand for value in batch.values]
    assert out.values + in_hand == list(range(100))


@pytest.mark.parametrize("ms", [2, 20, 500])
def test_a_source_that_stops_leaves_the_records_in_hand_to_the_savepoint(ms):
    clock, out = Clock(), Remembering()
    source = ListInput((0, RowBatch(list(range(4000)))), (0, Watermark(7)), is_source=True)
    snapshots: list = []
    chain = [Logging(), slow_map(clock, ms)]
    task = task_of(chain, source, [out], clock, on_snapshot=snapshots.append)
    task.process_input()
    stopped_ms = clock.now_ms()
    source.elements.clear()
    source.elements.append((0, EndOfData(drain=False)))
    options = CheckpointOptions(CheckpointType.STOP_SUSPEND)
    task.trigger_checkpoint(CheckpointBarrier(1, 0, options))
    for _ in range(100):
        task.process_input()
    assert clock.now_ms() - stopped_ms <= max(ms, 5)
    in_hand = [value for _, batch in snapshots[0].in_hand for value in batch.values]
    assert out.values + in_hand == list(range(4000))
    source.is_closed = True
    task.notify_checkpoint_complete(1)
    for _ in range(100):
        task.process_input()
    assert task.is_done
    assert len(out.values) + len(in_hand) == 4000


def test_a_source_that_stops_does_not_wait_for_room_in_the_outputs():
    clock, out = Clock(), Remembering(room=1)
    source = ListInput((0, RowBatch(list(range(100)))), is_source=True)
    snapshots: list = []
    task = task_of([Logging()], source, [out], clock, on_snapshot=snapshots.append)
    task.process_input()
    assert not task.is_output_available
    source.elements.append((0, EndOfData(drain=False)))
    barrier = CheckpointBarrier(1, 0, CheckpointOptions(CheckpointType.STOP_SUSPEND))
    task.trigger_checkpoint(barrier)
    for _ in range(10):
        task.process_input()
    assert out.written[-2:] == [EndOfData(drain=False), barrier]
    in_hand = [value for _, batch in snapshots[0].in_hand for value in batch.values]
    assert out.values + in_hand == list(range(100))


def test_records_are_cut_so_that_no_more_than_an_output_wants_are_written_at_once():
    clock, out = Clock(), Remembering()
    out.row_limit = 3
    source = ListInput((0, RowBatch(list(range(100)))), is_source=True)
    task = task_of([Logging()], source, [out], clock)
    while len(out.values) < 100:
        task.process_input()
    assert max(len(batch) for batch in out.written) == 3


@pytest.mark.parametrize(("accepts", "longest"), [(Accepts.COLUMNS, 30), (Accepts.ANY, 100)])
def test_operators_that_take_columns_get_no_more_rows_at_once_than_the_user_wants(accepts, longest):
    """Between two such pieces mails have their turn, and triggers of checkpoints with them."""
    clock, out, taken = Clock(), Remembering(), []

    class Slow(Logging):
        def process(self, batch, input_index):
            taken.append(len(batch))
            clock.spend_ms(1000)
            return (batch,)

    operator = Slow()
    operator.accepts = accepts
    data = ColumnBatch(pa.record_batch({"n": list(range(100))}))
    timing = replace(timing_of(clock), column_rows=30)
    task = task_of([operator], ListInput((0, data)), [out], clock, timing=timing)
    assert task.process_input() is InputStatus.MORE_AVAILABLE
    assert taken == [longest]
    while task.process_input() is InputStatus.MORE_AVAILABLE:
        pass
    assert max(taken) == longest
    assert out.values == [{"n": n} for n in range(100)]


def test_columns_are_cut_for_an_output_only_where_no_operator_takes_them_whole():
    def longest(accepts):
        clock, out = Clock(), Remembering()
        out.row_limit = 3
        tail = Logging()
        tail.accepts = accepts
        data = ColumnBatch(pa.record_batch({"n": list(range(100))}))
        head = Logging()
        head.accepts = Accepts.ANY
        task = task_of([head, tail], ListInput((0, data), is_source=True), [out], clock)
        while len(out.values) < 100:
            task.process_input()
        return max(len(batch) for batch in out.written)

    assert longest(Accepts.ANY) == 3
    assert longest(Accepts.COLUMNS) == 100
