"""Column windows that combine before the shuffle give the results of those that do not.

Expectations: plain Python over the same records.
"""

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Time
from penstock.datastream.columns import avg, count, first, last, max_, min_, sum_
from penstock.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.engine.runtime.elements import MAX_WATERMARK, ColumnBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators.windowed import column_partials
from penstock.engine.runtime.operators.windowed import columns as module
from penstock.engine.runtime.operators.windowed.columns import ColumnWindowOperator
from tests.tools.runtime.operator_harness import OperatorHarness

RECORDS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-9, 9), st.integers(-50, 50)), min_size=1, max_size=20
)
GRIDS = {
    "tumbling": (10, 10, TumblingEventTimeWindows.of(Time.milliseconds(10))),
    "sliding": (
        20,
        5,
        SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(5)),
    ),
    "with gaps": (
        5,
        20,
        SlidingEventTimeWindows.of(Time.milliseconds(5), Time.milliseconds(20)),
    ),
}
KINDS = {"count": len, "sum": sum, "min": min, "max": max, "avg": lambda v: sum(v) / len(v)}
AGGREGATES = {
    "count": count(),
    "sum": sum_("n"),
    "min": min_("n"),
    "max": max_("n"),
    "avg": avg("n"),
}


def windows_of(grid, kinds):
    aggregates = tuple(AGGREGATES[kind].alias(kind) for kind in kinds)
    return ColumnWindowOperator(GRIDS[grid][2], KeySelection(("key",)), aggregates)


def columns(records):
    keys, numbers, stamps = zip(*records, strict=True)
    data = pa.record_batch({"key": pa.array(keys), "n": pa.array(numbers)})
    return ColumnBatch(data, np.array(stamps, np.int64))


def rows_of(elements):
    batches = [one for one in elements if isinstance(one, ColumnBatch)]
    return [row for batch in batches for row in batch.data.to_pylist()]


def expected_of(records, grid, kinds):
    size, slide, _ = GRIDS[grid]
    found = defaultdict(list)
    for key, number, stamp in records:
        newest = stamp - stamp % slide
        for start in range(newest, stamp - size, -slide):
            found[key, start].append(number)
    return [
        {"key": key, "window_start": start, "window_end": start + size}
        | {kind: KINDS[kind](values) for kind in kinds}
        for (key, start), values in found.items()
    ]


def in_order(rows):
    return sorted(rows, key=lambda row: (row["window_start"], row["key"]))


@given(
    st.lists(RECORDS, min_size=1, max_size=3),
    st.sampled_from(sorted(GRIDS)),
    st.lists(st.sampled_from(sorted(KINDS)), min_size=1, unique=True),
    st.booleans(),
)
def test_two_producers_combine_and_nothing_changes(producers, grid, kinds, is_split):
    combining = windows_of(grid, kinds).before_exchange()
    behind = OperatorHarness(combining.final)
    for records in producers:
        harness = OperatorHarness(windows_of(grid, kinds).before_exchange().partial)
        pieces = [[record] for record in records] if is_split else [records]
        for piece in pieces:
            harness.feed_batch(columns(piece))
        harness.watermark(MAX_WATERMARK)
        harness.take(harness.operator.finish())
        for batch in harness.elements:
            if isinstance(batch, ColumnBatch):
                assert batch.timestamps is None
                behind.feed_batch(batch)
    found = rows_of(behind.watermark(MAX_WATERMARK))
    every = [record for records in producers for record in records]
    assert in_order(found) == in_order(expected_of(every, grid, kinds))


def test_a_key_and_pane_go_over_once_unless_there_are_too_many(monkeypatch):
    operator = windows_of("tumbling", ["count"]).before_exchange().partial
    harness = OperatorHarness(operator)
    for _ in range(5):
        harness.feed_batch(columns([(1, 0, 3), (2, 0, 4), (1, 0, 15)]))
    assert rows_of(harness.take(operator.finish())) == [
        {"key": 1, "__count__": 5, "__pane__": 0},
        {"key": 2, "__count__": 5, "__pane__": 0},
        {"key": 1, "__count__": 5, "__pane__": 1},
    ]
    monkeypatch.setattr(column_partials, "_FLUSH_ROWS", 1)
    monkeypatch.setattr(module, "_MOST_PARTIALS", 2)
    assert rows_of(harness.feed_batch(columns([(1, 0, 3)]))) == []
    assert len(rows_of(harness.feed_batch(columns([(2, 0, 3)])))) == 2


@pytest.mark.parametrize("aggregate", [first("n"), last("n")])
def test_the_order_of_arrival_is_not_combined(aggregate):
    operator = ColumnWindowOperator(GRIDS["tumbling"][2], KeySelection(("key",)), (aggregate,))
    assert operator.before_exchange() is None
