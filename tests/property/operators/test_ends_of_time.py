"""Windows over timestamps at both ends of time, on rows and on columns. Expectations: docs/spec/windows.md#assigners,
#window-operator, computed by hand from each record's timestamp.
"""

import tempfile
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Duration
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK, MIN_WATERMARK, ColumnBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import ColumnWindowOperator, ListContents
from penstock.engine.runtime.operators.interval_join import Interval, IntervalJoinOperator
from penstock.engine.runtime.operators.windowed.grid import GridWindowOperator
from penstock.engine.runtime.operators.windowed.records import RecordWindowOperator
from penstock.engine.runtime.records.columns import count
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.windowing import (
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.tools.runtime.keyed_backends import KINDS, Backends
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.restoring import PIECES, rescaled

KEY = KeySelection(lambda value: value[0])
ENGINES = [GridWindowOperator, RecordWindowOperator]
NEAR_AN_END = st.one_of(
    st.integers(MIN_WATERMARK + 1, MIN_WATERMARK + 60),
    st.integers(MAX_WATERMARK - 60, MAX_WATERMARK),
)
RECORDS = st.lists(st.tuples(st.sampled_from("ab"), NEAR_AN_END), min_size=1, max_size=30)


@st.composite
def assigners(draw):
    """(assigner, size, slide, offset)"""
    slide = draw(st.integers(1, 20))
    offset = draw(st.integers(1 - slide, slide - 1))
    if draw(st.booleans()):
        return TumblingEventTimeWindows(slide, offset), slide, slide, offset
    size = draw(st.integers(1, 20))
    return SlidingEventTimeWindows(size, slide, offset), size, slide, offset


def windows_of(stamp, size, slide, offset):
    """(start, end, last time) of each window that contains the timestamp, as far as times go."""
    newest = stamp - (stamp - offset) % slide
    for start in range(newest, stamp - size, -slide):
        end = min(start + size, MAX_WATERMARK)
        last = MAX_WATERMARK if end == MAX_WATERMARK else end - 1
        yield max(start, MIN_WATERMARK), end, last


def expected(records, shape):
    return Counter(
        (key, start, end, last)
        for key, stamp in records
        for start, end, last in windows_of(stamp, *shape)
    )


def shown(key, window, elements):
    return [(key, window.start, window.end, len(elements))]


def on_rows(engine, assigner, begin=None, **context):
    operator = engine(
        keys=KEY, assigner=assigner, contents=ListContents(), function=UserFunction(shown)
    )
    if begin is not None:
        operator.restore(begin)
    return OperatorHarness(operator, **context)


def on_columns(assigner, begin=None):
    operator = ColumnWindowOperator(assigner, KeySelection(("k",)), (count(),))
    if begin is not None:
        operator.restore(begin)
    return OperatorHarness(operator)


def columns_of(op):
    return [((r["k"], r["window_start"], r["window_end"], r["count"]), at) for r, at in op.stamped]


def feed_columns(op, records):
    data = pa.record_batch({"k": [key for key, _ in records]})
    op.feed_batch(ColumnBatch(data, np.array([stamp for _, stamp in records], np.int64)))


def counted(rows):
    """Counts by (key, start, end, last time)."""
    return Counter({(key, start, end, last): n for (key, start, end, n), last in rows})


@pytest.mark.parametrize("engine", ENGINES)
@given(RECORDS, assigners())
def test_no_window_on_rows_loses_a_record(engine, records, assigner):
    grid, *shape = assigner
    op = on_rows(engine, grid)
    op.feed(records, [stamp for _, stamp in records])
    op.watermark(MAX_WATERMARK)
    assert counted(op.stamped) == expected(records, shape)
    assert op.late.get_count() == 0


@given(RECORDS, assigners())
def test_no_window_on_columns_loses_a_record(records, assigner):
    grid, *shape = assigner
    op = on_columns(grid)
    feed_columns(op, records)
    op.watermark(MAX_WATERMARK)
    assert counted(columns_of(op)) == expected(records, shape)
    assert op.late.get_count() == 0


@pytest.mark.parametrize("backend", KINDS)
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=25)
@given(RECORDS, assigners())
def test_windows_on_rows_go_on_after_a_restore(engine, backend, records, assigner):
    grid, *shape = assigner
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        make = stack.enter_context(closing(Backends(backend, Path(folder)))).make
        ended = [on_rows(engine, grid, keyed_state=make)]
        ended[0].feed(records, [stamp for _, stamp in records])
        snapshot = ended[0].operator.snapshot().freeze(plain_dumps)
        (begin,) = rescaled([snapshot], 1, PIECES[backend])
        snapshot.close(is_kept=True)
        ended.append(on_rows(engine, grid, begin, keyed_state=make))
        ended[1].watermark(MAX_WATERMARK)
        assert counted(ended[1].stamped) == expected(records, shape)
        for op in ended:
            op.operator.close()


@given(RECORDS, assigners())
def test_windows_on_columns_go_on_after_a_restore(records, assigner):
    grid, *shape = assigner
    before = on_columns(grid)
    feed_columns(before, records)
    (begin,) = rescaled([before.operator.snapshot().freeze(plain_dumps)], 1)
    after = on_columns(grid, begin)
    after.watermark(MAX_WATERMARK)
    assert counted(columns_of(after)) == expected(records, shape)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), NEAR_AN_END), min_size=1, max_size=15),
    st.integers(1, 30),
)
def test_no_session_loses_a_record(records, gap):
    op = on_rows(RecordWindowOperator, EventTimeSessionWindows.with_gap(Duration.of_millis(gap)))
    op.feed(records, [stamp for _, stamp in records])
    op.watermark(MAX_WATERMARK)
    found = sorted(((key, start, n), last) for (key, start, _, n), last in op.stamped)
    assert found == sorted(sessions(records, gap))
    assert all(end <= MAX_WATERMARK for _, _, end, _ in op.values)


def sessions(records, gap):
    """((key, start, records), last time) of each session."""
    for key in "ab":
        stamps = sorted(stamp for its, stamp in records if its == key)
        while stamps:
            many = 1
            while many < len(stamps) and stamps[many] <= stamps[many - 1] + gap:
                many += 1
            end = stamps[many - 1] + gap
            yield (key, stamps[0], many), end - 1 if end < MAX_WATERMARK else MAX_WATERMARK
            stamps = stamps[many:]


@given(RECORDS, st.integers(1, 4))
def test_count_windows_do_not_look_at_the_time(records, size):
    op = OperatorHarness(
        RecordWindowOperator(
            keys=KEY,
            assigner=GlobalWindows(),
            trigger=CountTrigger(size),
            contents=ListContents(),
            function=UserFunction(lambda key, _window, elements: [(key, len(elements))]),
        )
    )
    op.feed(records, [stamp for _, stamp in records])
    op.watermark(MAX_WATERMARK)
    counts = Counter(key for key, _ in records)
    fired = Counter((key, n) for key in counts for n in range(size, counts[key] + 1, size))
    assert Counter(op.values) == fired
    assert {stamp for _, stamp in op.stamped} <= {MAX_WATERMARK}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_window_that_goes_on_to_the_end_of_time_fires_only_there(engine):
    op = on_rows(engine, TumblingEventTimeWindows.of(Duration.of_millis(10)))
    op.feed([("a", 1)], [MAX_WATERMARK - 1])
    op.watermark(MAX_WATERMARK - 1)
    op.feed([("a", 2)], [MAX_WATERMARK])
    assert op.values == []
    op.watermark(MAX_WATERMARK)
    start = MAX_WATERMARK - MAX_WATERMARK % 10
    assert op.stamped == [(("a", start, MAX_WATERMARK, 2), MAX_WATERMARK)]


@pytest.mark.parametrize("engine", ENGINES)
def test_lateness_beyond_the_end_of_time_is_for_ever(engine):
    """A cleanup time that is too large is 2^63-1, which never comes while records come."""
    op = OperatorHarness(
        engine(
            keys=KEY,
            assigner=TumblingEventTimeWindows.of(Duration.of_millis(10)),
            contents=ListContents(),
            function=UserFunction(shown),
            allowed_lateness_ms=MAX_WATERMARK,
        )
    )
    op.feed([("a", 1)], [5])
    op.watermark(MAX_WATERMARK - 1)
    op.feed([("a", 2)], [6])
    assert op.values == [("a", 0, 10, 1), ("a", 0, 10, 2)]
    assert op.late.get_count() == 0


@pytest.mark.parametrize("backend", KINDS)
@pytest.mark.parametrize("at", [MIN_WATERMARK + 5, MAX_WATERMARK - 5])
def test_an_interval_join_pairs_records_at_both_ends(backend, at):
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        make = stack.enter_context(closing(Backends(backend, Path(folder)))).make
        function = UserFunction(lambda left, right, _context: [(left[1], right[1])])
        operator = IntervalJoinOperator(function, (KEY, KEY), Interval(-20, 20))
        op = OperatorHarness(operator, keyed_state=make)
        op.feed([("a", "left")], [at], 0)
        op.feed([("a", "right")], [at + 4], 1)
        for side in (0, 1):
            op.watermark(MAX_WATERMARK, side)
        operator.close()
    assert op.stamped == [(("left", "right"), at + 4)]
