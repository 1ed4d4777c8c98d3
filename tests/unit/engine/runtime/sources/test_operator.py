"""SourceOperator: batches, watermarks per split, the periodic tick, the end."""

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.model.errors import EngineBug
from penstock.engine.model.time import Duration
from penstock.engine.runtime.elements import (
    ACTIVE,
    IDLE,
    MAX_WATERMARK,
    ColumnBatch,
    EndOfData,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.sources.contract import SplitBatch, SplitFinished
from penstock.engine.runtime.sources.operator import SourceOperator, SourceSettings
from penstock.engine.runtime.watermarks.strategy import WatermarkStrategy
from tests.tools.runtime.source_parts import (
    END,
    NOTHING,
    FakeReader,
    NoSource,
    SourceClock,
    batch,
    watermarks,
)

MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()


class Doubled:
    def extract_timestamp(self, value, record_timestamp):
        return value["at"] * 2


def started(*polled, strategy=MONOTONOUS, interval_ms=200, reader=None):
    operator, clock = SourceOperator(NoSource(), strategy), SourceClock()
    operator.start(reader or FakeReader(*polled), clock, SourceSettings(interval_ms))
    return operator, clock


def test_batches_pass_and_are_counted_and_nothing_is_nothing():
    operator, _ = started(batch("s", 1, 2), batch("s", 3))
    assert operator.poll()[0].values == ["v1", "v2"]
    operator.poll()
    assert operator.poll() == []
    assert operator.records_out == 3


def test_a_watermark_comes_with_the_periodic_tick_behind_what_was_read_before():
    operator, clock = started(batch("s", 100), batch("s", 300))
    assert watermarks(operator.poll()) == []
    assert operator.next_wake_ms == 200
    clock.now = 200
    elements = operator.poll()
    assert elements[0].values == ["v300"]
    assert elements[1] == Watermark(299)
    assert operator.next_wake_ms == 400
    clock.now = 400
    assert operator.poll() == []  # it has not grown


def test_the_slowest_split_holds_the_watermark_until_it_is_finished():
    operator, clock = started(batch("slow", 10), batch("fast", 1000), SplitFinished("slow"))
    operator.poll()
    clock.now = 200
    assert watermarks(operator.poll()) == [9]
    clock.now = 400
    assert watermarks(operator.poll()) == [999]


def test_a_split_that_comes_later_does_not_take_the_watermark_back():
    operator, clock = started(batch("first", 1000), batch("late", 10), batch("late", 2000))
    seen = []
    for tick in (1, 2, 3):
        clock.now = tick * 200
        seen.append(watermarks(operator.poll()))
    assert seen == [[999], [], []]


def test_without_an_interval_only_the_last_watermark_comes():
    operator, clock = started(batch("s", 100), END, interval_ms=0)
    assert operator.next_wake_ms is None
    clock.now = 10_000
    assert watermarks(operator.poll()) == []
    assert operator.poll() == [Watermark(MAX_WATERMARK), EndOfData(drain=True)]


def test_the_end_comes_once_with_the_last_watermark():
    operator, _ = started(END)
    assert operator.poll() == [Watermark(MAX_WATERMARK), EndOfData(drain=True)]
    assert operator.is_finished
    assert operator.next_wake_ms is None
    assert operator.poll() == ()


def test_a_quiet_source_says_idle_and_active_before_its_next_record():
    strategy = MONOTONOUS.with_idleness(Duration.of_millis(300))
    operator, clock = started(batch("s", 5), *[NOTHING] * 6, batch("s", 9), strategy=strategy)
    told = []
    for tick in range(8):
        clock.now = tick * 200
        told += [e for e in operator.poll() if not isinstance(e, Watermark)]
    assert [getattr(e, "values", e) for e in told] == [["v5"], IDLE, ACTIVE, ["v9"]]


def test_columns_become_rows_only_for_an_assigner_that_looks_at_records():
    columns = ColumnBatch(pa.record_batch({"at": [5]}), np.array([5], np.int64))
    operator, _ = started(SplitBatch(columns, "s"))
    assert operator.poll() == [columns]
    looks = MONOTONOUS.with_timestamp_assigner(Doubled())
    operator, clock = started(SplitBatch(columns, "s"), strategy=looks)
    clock.now = 200
    rows, watermark = operator.poll()
    assert isinstance(rows, RowBatch)
    assert rows.timestamps.tolist() == [10]
    assert watermark == Watermark(9)


def test_life_before_start_and_at_the_end():
    operator = SourceOperator(NoSource(), MONOTONOUS)
    with pytest.raises(EngineBug, match="before it was started"):
        operator.poll()
    operator.close()
    assert not operator.snapshot()
    reader = FakeReader()
    operator.start(reader, SourceClock(), SourceSettings())
    assert operator.snapshot().elements("splits") == ["rest", 0]
    operator.close()
    assert reader.is_closed


IDLE_AFTER_300 = MONOTONOUS.with_idleness(Duration.of_millis(300))


def polled_at(operator, clock, *times):
    elements = []
    for now_ms in times:
        clock.now = now_ms
        elements += operator.poll()
    return elements


def test_a_reader_without_a_split_becomes_idle_and_active_with_its_first_record():
    reader = FakeReader()
    operator, clock = started(reader=reader, strategy=IDLE_AFTER_300)
    assert polled_at(operator, clock, 200, 400) == []
    assert polled_at(operator, clock, 600, 800, 1000) == [IDLE]
    reader.polled.append(batch("s", 7))
    active, rows, watermark = polled_at(operator, clock, 1200)
    assert (active, rows.values, watermark) == (ACTIVE, ["v7"], Watermark(6))


def test_a_reader_whose_splits_are_finished_becomes_idle_too():
    operator, clock = started(batch("s", 7), SplitFinished("s"), strategy=IDLE_AFTER_300)
    assert IDLE not in polled_at(operator, clock, 0, 200, 400, 600)
    assert polled_at(operator, clock, 800, 1000) == [IDLE]


def test_a_source_without_watermarks_is_idle_only_while_it_is_quiet():
    strategy = WatermarkStrategy.no_watermarks().with_idleness(Duration.of_millis(300))
    reader = FakeReader(batch("s", 7))
    operator, clock = started(reader=reader, strategy=strategy)
    assert polled_at(operator, clock, 0, 200, 400, 600, 800)[-1] == IDLE
    reader.polled.append(batch("s", 8))
    statuses = [e for e in polled_at(operator, clock, 900, 1000) if e in (IDLE, ACTIVE)]
    assert statuses == [ACTIVE]


def test_splits_that_are_read_side_by_side_hold_the_watermark_from_when_they_are_added():
    class SideBySide(FakeReader):
        def add_splits(self, splits):
            self.splits = splits

        def split_ids(self, splits):
            return splits

    operator, clock = SourceOperator(NoSource(), MONOTONOUS), SourceClock()
    reader = SideBySide(batch("a", 100))
    operator.start(reader, clock, SourceSettings())
    operator.add_splits(["a", "b"])
    assert watermarks(polled_at(operator, clock, 0, 200)) == []
    reader.polled.append(batch("b", 50))
    assert watermarks(polled_at(operator, clock, 400)) == [49]


def test_the_reader_is_told_of_a_checkpoint_before_its_snapshot_and_when_it_is_complete():
    class Told(FakeReader):
        def __init__(self) -> None:
            super().__init__()
            self.calls = []

        def before_checkpoint(self, checkpoint_id):
            self.calls.append(("before", checkpoint_id))

        def snapshot_state(self):
            self.calls.append("snapshot")
            return ()

        def notify_checkpoint_complete(self, checkpoint_id):
            self.calls.append(("complete", checkpoint_id))

    operator, reader = SourceOperator(NoSource(), MONOTONOUS), Told()
    assert list(operator.prepare_snapshot_pre_barrier(3)) == [], "it has not started"
    operator.notify_checkpoint_complete(3)
    operator.start(reader, SourceClock(), SourceSettings())
    assert list(operator.prepare_snapshot_pre_barrier(4)) == []
    operator.snapshot()
    operator.notify_checkpoint_complete(4)
    assert reader.calls == [("before", 4), "snapshot", ("complete", 4)]
