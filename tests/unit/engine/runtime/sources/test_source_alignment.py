"""Sources that wait for their group, and clocks that stand meanwhile. Expectations:
docs/spec/watermarks.md#generation, #alignment-of-sources.
"""

import pytest

from penstock.engine.model.time import Duration
from penstock.engine.runtime.elements import IDLE, MAX_WATERMARK, RowBatch
from penstock.engine.runtime.sources.contract import ReaderStatus, SplitFinished
from penstock.engine.runtime.sources.operator import SourceOperator, SourceSettings
from penstock.engine.runtime.watermarks.strategy import WatermarkStrategy
from tests.tools.runtime.source_parts import FakeReader, NoSource, SourceClock, batch, watermarks

ALIGNED = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
    "g", Duration.of_millis(10), Duration.of_millis(500)
)
WITH_IDLENESS = ALIGNED.with_idleness(Duration.of_millis(300))


class PausingReader(FakeReader):
    def __init__(self, *polled) -> None:
        super().__init__(*polled)
        self.paused = set()

    def pause_or_resume_splits(self, to_pause, to_resume):
        self.paused |= set(to_pause)
        self.paused -= set(to_resume)


class UnpausableReader(FakeReader):
    def pause_or_resume_splits(self, to_pause, to_resume):
        raise NotImplementedError("cannot")


class Aligned:
    """A started source operator with its clock and reports."""

    def __init__(self, *polled, strategy=ALIGNED, reader=PausingReader, **settings):
        self.operator, self.clock = SourceOperator(NoSource(), strategy), SourceClock()
        self.reports = []
        self.reader = reader(*polled)
        self.operator.start(
            self.reader, self.clock, SourceSettings(**settings), self.reports.append
        )

    def poll_at(self, now_ms):
        self.clock.now = now_ms
        return list(self.operator.poll())


def test_a_source_reports_its_watermark_at_the_interval_once_it_has_one():
    source = Aligned(batch("s", 100))
    source.poll_at(0)
    assert source.operator.next_wake_ms == 200
    source.poll_at(200)
    source.poll_at(499)
    assert source.reports == []
    source.poll_at(500)
    assert source.reports == [99]
    nothing_yet = Aligned()
    nothing_yet.poll_at(500)
    assert nothing_yet.reports == []


def test_idle_and_finished_sources_report_the_maximum():
    source = Aligned(strategy=WITH_IDLENESS)
    source.reader.polled = [batch("s", 1)]
    for now_ms in (0, 200, 400, 600, 800, 1100):
        source.poll_at(now_ms)
    assert source.reports == [0, MAX_WATERMARK]
    ended = Aligned(ReaderStatus.END_OF_INPUT)
    ended.poll_at(0)
    assert ended.reports == [MAX_WATERMARK]
    assert ended.operator.next_wake_ms is None


def test_a_source_ahead_of_its_group_reads_nothing_until_it_is_allowed_to():
    source = Aligned(batch("s", 100), batch("s", 101))
    source.poll_at(0)
    source.poll_at(1)
    source.reader.polled.append(batch("s", 102))
    source.poll_at(200)
    source.operator.allow(100)  # 101 is out: the record at 102 came with that poll
    source.reader.polled.append(batch("s", 103))
    assert source.operator.is_waiting
    assert source.poll_at(201) == []
    source.operator.allow(101)
    assert not source.operator.is_waiting
    (read,) = source.poll_at(202)
    assert isinstance(read, RowBatch)


def test_waiting_does_not_make_a_source_idle():
    source = Aligned(batch("s", 100), strategy=WITH_IDLENESS)
    source.poll_at(0)
    source.poll_at(200)
    source.operator.allow(50)
    for now_ms in (400, 600, 800, 1000, 1200):
        assert IDLE not in source.poll_at(now_ms)
    source.operator.allow(500)
    assert IDLE not in source.poll_at(1400)
    assert IDLE in source.poll_at(1600)  # 400 ms of quiet, besides the 1,000 of waiting


def test_time_in_front_of_a_full_output_does_not_make_a_source_idle():
    source = Aligned(batch("s", 100), strategy=WITH_IDLENESS)
    source.poll_at(0)
    source.poll_at(200)
    source.poll_at(400)
    source.clock.blocked = 1000
    assert IDLE not in source.poll_at(1600)
    assert IDLE in source.poll_at(1801)


def test_splits_ahead_are_paused_one_by_one_and_resumed():
    source = Aligned(batch("a", 10), batch("b", 100), batch("c", 50))
    for _ in range(3):
        source.poll_at(0)
    assert watermarks(source.poll_at(200)) == [9]
    source.operator.allow(60)
    assert source.reader.paused == {"b"}
    source.operator.allow(40)
    assert source.reader.paused == {"b", "c"}
    source.operator.allow(99)
    assert source.reader.paused == set()


def test_a_split_that_runs_ahead_later_is_paused_with_the_next_watermark():
    source = Aligned(batch("a", 10), batch("b", 20))
    source.poll_at(0)
    source.poll_at(0)
    source.operator.allow(30)
    source.reader.polled.append(batch("b", 90))
    source.poll_at(1)
    assert source.reader.paused == set()
    source.poll_at(200)
    assert source.reader.paused == {"b"}
    source.reader.polled.append(SplitFinished("b"))
    source.poll_at(201)
    source.operator.allow(20)
    assert source.reader.paused == {"b"}  # the reader forgets a finished split by itself


def test_a_paused_split_does_not_become_idle():
    source = Aligned(batch("a", 10), batch("b", 100), strategy=WITH_IDLENESS)
    source.poll_at(0)
    source.poll_at(0)
    source.poll_at(200)
    source.operator.allow(60)
    for now_ms in (400, 600, 800, 1000):
        source.reader.polled.append(batch("a", 11))
        source.poll_at(now_ms)
    assert source.operator.watermarks.generators["b"].is_idle is False


def test_a_reader_that_cannot_pause_splits_is_an_error_unless_it_is_allowed():
    source = Aligned(batch("a", 10), batch("b", 100), reader=UnpausableReader)
    source.poll_at(0)
    source.poll_at(0)
    source.poll_at(200)
    with pytest.raises(NotImplementedError):
        source.operator.allow(60)
    allowed = Aligned(
        batch("a", 10), batch("b", 100), reader=UnpausableReader, may_leave_splits_unaligned=True
    )
    allowed.poll_at(0)
    allowed.poll_at(0)
    allowed.poll_at(200)
    allowed.operator.allow(60)
    assert not allowed.operator.is_waiting
