"""Counting in an array gives what grouping gives, whatever the keys."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.runtime.operators.windowed.column_partials import (
    PANE,
    DenseCounts,
    Partials,
    partials_of,
    rows_in,
)
from penstock.engine.runtime.records.columns import count, sum_

KEYS = st.one_of(
    st.integers(-5, 5), st.integers(1000, 1300), st.integers(-(2**63), 2**63 - 1), st.none()
)
ROWS = st.lists(st.tuples(st.integers(-3, 3), KEYS), min_size=1, max_size=60)


def table(rows) -> pa.Table:
    panes, keys = zip(*rows, strict=True)
    return pa.table({PANE: pa.array(panes, pa.int64()), "key": pa.array(keys, pa.int64())})


def counted(partials, parts) -> Counter:
    """Rows per (pane, key)."""
    found = Counter()
    for pane, part in parts:
        for row in partials.table([part]).to_pylist():
            found[pane, row["key"]] += row["__count__"]
    return found


@given(ROWS)
def test_first_counts_every_pane_and_key(rows):
    partials = DenseCounts(("key",), [count()])
    parts = list(partials.first(table(rows)))
    assert counted(partials, parts) == Counter(rows)
    assert all(partials.table([p]).schema.field("key").type == pa.int64() for _, p in parts)


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_several_batches_are_counted_together(pieces):
    partials = DenseCounts(("key",), [count()])
    rows = pa.concat_tables([table(piece) for piece in pieces])
    expected = Counter(row for piece in pieces for row in piece)
    assert counted(partials, partials.first(rows)) == expected


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_combine_adds_up(pieces):
    dense = DenseCounts(("key",), [count()])
    parts = [part for rows in pieces for _, part in dense.first(table(rows))]
    combined = dense.combine(parts)
    got = {r["key"]: r["__count__"] for r in dense.table([combined]).to_pylist()}
    assert got == Counter(key for rows in pieces for _, key in rows)
    assert rows_in(combined) == len(got)


@given(st.lists(ROWS, min_size=1, max_size=3))
def test_windows_are_finished_one_below_the_other(windows):
    dense, plain = DenseCounts(("key",), [count()]), Partials(("key",), [count()])
    for partials in (dense, plain):
        parts = [partials.combine([p for _, p in partials.first(table(rows))]) for rows in windows]
        starts = np.arange(len(windows)) * 10
        rows = partials.finish(parts, starts, starts + 20).to_pylist()
        got = {(r["window_start"], r["window_end"], r["key"]): r["count"] for r in rows}
        assert got == Counter(
            (at * 10, at * 10 + 20, key) for at, rows in enumerate(windows) for _, key in rows
        )


def test_keys_keep_their_type():
    narrow = pa.table({PANE: pa.array([0, 0], pa.int64()), "key": pa.array([7, 9], pa.int16())})
    partials = DenseCounts(("key",), [count()])
    ((_, part),) = partials.first(narrow)
    finished = partials.finish([partials.combine([part])], np.array([0]), np.array([10]))
    assert finished.schema.field("key").type == pa.int16()


def test_other_aggregates_and_keys_are_grouped():
    assert type(partials_of(("a", "b"), [count()])) is Partials
    assert type(partials_of(("a",), [count(), sum_("x")])) is Partials
    assert type(partials_of(("a",), [count()])) is DenseCounts
    words = pa.table({PANE: pa.array(np.zeros(3, np.int64)), "word": ["x", "y", "x"]})
    ((pane, made),) = DenseCounts(("word",), [count()]).first(words)
    assert pane == 0
    assert {r["word"]: r["__count__"] for r in made.to_pylist()} == {"x": 2, "y": 1}
