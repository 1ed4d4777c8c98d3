"""How far behind a source is."""

import numpy as np
import pytest

from penstock.engine.runtime.elements import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    NO_TIMESTAMP,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.sources.operator import SourceFigures, StandStill


class Source:
    def __init__(self) -> None:
        self.now = 1000
        self.watermark = MIN_WATERMARK
        self.figures = SourceFigures(lambda: self.now, lambda: self.watermark)

    def values(self) -> dict:
        return {one.name: one.read() for one in self.figures.metrics()}


@pytest.fixture
def source():
    return Source()


def batch(*stamps: int) -> RowBatch:
    return RowBatch(list(stamps), np.array(stamps, np.int64))


def test_before_the_first_record_lags_are_undefined(source):
    assert source.values() == {
        "sourceIdleTime": 0, "currentEmitEventTimeLag": -1, "currentFetchEventTimeLag": None,
        "watermarkLag": None,
    }  # fmt: skip


def test_lags_are_those_of_the_last_record_and_of_the_last_watermark(source):
    source.figures.emitted([batch(700, 800), Watermark(799)], 950)
    source.watermark = 799
    assert source.values() == {
        "sourceIdleTime": 0, "currentEmitEventTimeLag": 200, "currentFetchEventTimeLag": 150,
        "watermarkLag": 201,
    }  # fmt: skip


def test_while_it_idles_lags_stand_still_and_the_idle_time_grows(source):
    source.figures.emitted([batch(800)], None)
    source.watermark = 790
    source.now = 1100
    source.figures.idle()
    source.now = 1500
    source.figures.idle()
    found = source.values()
    assert (found["sourceIdleTime"], found["currentEmitEventTimeLag"]) == (400, 300)
    assert found["watermarkLag"] == 310
    source.figures.emitted([batch(1400)], None)
    assert source.values()["sourceIdleTime"] == 0


def test_records_without_timestamps_have_no_lag(source):
    source.figures.emitted([batch(800)], 900)
    source.figures.emitted([RowBatch([1])], 900)
    assert source.values()["currentEmitEventTimeLag"] == 200
    source.figures.emitted([batch(NO_TIMESTAMP)], 900)
    assert source.values()["currentEmitEventTimeLag"] == -1


def test_the_clock_of_a_source_stands_still_while_it_may_not_read():
    still = StandStill()
    assert still.clock(10) == 10
    still.begin(10)
    still.begin(15)
    assert still.clock(30) == 10
    still.end(30)
    still.end(35)
    assert still.clock(40) == 20


def test_the_last_watermark_is_no_time_that_something_lags(source):
    source.watermark = MAX_WATERMARK
    assert source.values()["watermarkLag"] is None
