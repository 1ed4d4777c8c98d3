"""Watermark strategies and the operators around them. Expectations:
docs/spec/watermarks.md#several-channels, #several-inputs, #generation.
"""

import pickle

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.model.time import Duration
from penstock.engine.runtime.elements import (
    ACTIVE,
    IDLE,
    MAX_WATERMARK,
    NO_TIMESTAMP,
    ColumnBatch,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.operator import Accepts
from penstock.engine.runtime.operators import TimestampsAndWatermarksOperator
from penstock.engine.runtime.watermarks.by_split import SplitWatermarks
from penstock.engine.runtime.watermarks.strategy import (
    ColumnTimestamps,
    TimestampAssigner,
    WatermarkStrategy,
)
from penstock.engine.runtime.watermarks.valve import CombinedWatermark, StatusWatermarkValve
from tests.tools.runtime.operator_harness import OperatorHarness


class First(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        assert record_timestamp == NO_TIMESTAMP
        return value[0]


def monotonous():
    return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(First())


def test_the_valve_gives_the_minimum_and_flushes_when_the_holder_goes_idle():
    valve = StatusWatermarkValve(2)
    assert list(valve.input_watermark(12, 0)) == []
    assert list(valve.input_watermark(8, 1)) == [Watermark(8)]
    assert list(valve.input_watermark(7, 1)) == []
    assert list(valve.input_status(IDLE, 1)) == [Watermark(12)]
    assert list(valve.input_status(IDLE, 1)) == []
    assert list(valve.input_status(IDLE, 0)) == [IDLE]
    assert list(valve.input_watermark(20, 0)) == []
    assert list(valve.input_status(ACTIVE, 1)) == [ACTIVE]
    assert list(valve.input_watermark(10, 1)) == []  # behind the output: not aligned yet
    assert list(valve.input_watermark(13, 1)) == [Watermark(13)]


def test_a_watermark_set_free_comes_before_the_status():
    combined = CombinedWatermark(2)
    combined.input_watermark(5, 0)
    combined.input_watermark(3, 1)
    assert list(combined.input_status(IDLE, 1)) == [Watermark(5)]
    assert list(combined.input_status(IDLE, 0)) == [IDLE]
    assert combined.is_idle


def test_mid_stream_watermarks_are_periodic_and_upstream_ones_are_dropped():
    op = OperatorHarness(TimestampsAndWatermarksOperator(monotonous()))
    op.feed([(5,), (9,), (7,)])
    assert op.watermark(100) == []
    assert op.watermarks == []
    op.advance(200)
    op.advance(400)
    assert op.watermarks == [8]
    assert op.stamped == [((5,), 5), ((9,), 9), ((7,), 7)]
    op.feed([(20,)])
    op.finish()
    assert op.watermarks == [8, 19]
    op.watermark(MAX_WATERMARK)
    assert op.watermarks == [8, 19, MAX_WATERMARK]


def test_idleness_is_said_once_and_a_record_ends_it():
    strategy = monotonous().with_idleness(Duration.of_millis(300))
    op = OperatorHarness(TimestampsAndWatermarksOperator(strategy))
    op.feed([(5,)])
    for now in (200, 400, 600, 800, 1000, 1200):
        op.advance(now)
    assert [e for e in op.elements if e in (IDLE, ACTIVE)] == [IDLE]
    taken = op.feed([(6,)])
    assert taken[0] == ACTIVE
    assert isinstance(taken[1], RowBatch)


def test_bounded_out_of_orderness_and_its_errors():
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(3))
    generator = pickle.loads(pickle.dumps(strategy)).create_generator()
    generator.on_events(10)
    assert generator.on_periodic(0) == 6
    with pytest.raises(ValueError, match="negative"):
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(-1))
    with pytest.raises(ValueError, match="must be positive"):
        strategy.with_watermark_alignment("g", Duration.of_seconds(0))
    with pytest.raises(ValueError, match="non-empty"):
        strategy.with_watermark_alignment("", Duration.of_seconds(1))
    with pytest.raises(TypeError, match="TimestampAssigner"):
        strategy.with_timestamp_assigner(lambda v, _t: v)


def test_a_timestamp_that_is_no_number_is_refused():
    class Wrong(TimestampAssigner):
        def extract_timestamp(self, value, record_timestamp):
            return None

    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(Wrong())
    with pytest.raises(TypeError, match="extract_timestamp returned None"):
        strategy.assign(RowBatch([1]))


def test_column_timestamps_work_on_columns_and_rows():
    by_column = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        ColumnTimestamps("t")
    )
    op = OperatorHarness(TimestampsAndWatermarksOperator(by_column))
    assert op.operator.accepts is Accepts.ANY
    assert TimestampsAndWatermarksOperator(monotonous()).accepts is Accepts.ROWS
    micros = pa.array([5_000, 7_000], pa.timestamp("us"))
    for column in (pa.array([5, 7]), micros):
        stamped = by_column.assign(ColumnBatch(pa.record_batch({"t": column})))
        assert stamped.timestamps.tolist() == [5, 7]
    assert by_column.assign(RowBatch([{"t": 4}])).timestamps.tolist() == [4]
    with pytest.raises(KeyError, match="'t'"):
        by_column.assign(ColumnBatch(pa.record_batch({"x": [1]})))


def test_the_slowest_split_holds_the_source_back_until_it_is_finished():
    splits = SplitWatermarks(monotonous())
    splits.register("a")
    splits.register("b")
    (batch,) = splits.on_batch("a", splits.stamped(RowBatch([(10,)])))
    assert batch.timestamps.tolist() == [10]
    assert splits.on_periodic(0) == []
    splits.on_batch("b", splits.stamped(RowBatch([(4,)])))
    assert splits.on_periodic(200) == [Watermark(3)]
    splits.unregister("b")
    assert splits.on_periodic(400) == [Watermark(9)]
    assert splits.on_end(MAX_WATERMARK) == [Watermark(MAX_WATERMARK)]


def test_all_splits_idle_make_the_source_idle_and_a_batch_wakes_it():
    splits = SplitWatermarks(monotonous().with_idleness(Duration.of_millis(10)))
    splits.on_batch(None, splits.stamped(RowBatch([(10,)])))
    outputs = [splits.on_periodic(now) for now in (0, 5, 20, 30)]
    assert outputs == [[Watermark(9)], [], [IDLE], []]
    late = splits.stamped(RowBatch([(11,)], np.array([NO_TIMESTAMP])))
    assert splits.on_batch(None, late)[0] == ACTIVE


def test_time_in_front_of_full_outputs_does_not_make_a_stream_idle_mid_way():
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(300))
    blocked = [0]
    op = OperatorHarness(
        TimestampsAndWatermarksOperator(strategy), active_ms=lambda: op.timers.now - blocked[0]
    )
    op.feed(["x"], [5])
    for now_ms in (200, 400):
        op.advance(now_ms)
    blocked[0] = 1000
    op.advance(1600)
    assert IDLE not in op.elements
    op.advance(1801)
    assert IDLE in op.elements
