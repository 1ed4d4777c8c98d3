"""Counting in an array gives what grouping gives, whatever the keys."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.columns import count
from penstock.runtime.operators.column_partials import PANE, DenseCounts, Partials, partials_of

KEYS = st.one_of(
    st.integers(-5, 5), st.integers(1000, 1300), st.integers(-(2**63), 2**63 - 1), st.none()
)
ROWS = st.lists(st.tuples(st.integers(-3, 3), KEYS), min_size=1, max_size=60)


def table(rows) -> pa.Table:
    panes, keys = zip(*rows, strict=True)
    return pa.table({PANE: pa.array(panes, pa.int64()), "key": pa.array(keys, pa.int64())})


@given(ROWS)
def test_first_counts_every_pane_and_key(rows):
    partials = DenseCounts(("key",), [count()])
    made = partials.first(table(rows))
    got = {(r[PANE], r["key"]): r["__count__"] for r in made.to_pylist()}
    assert got == Counter(rows)
    assert made.schema.field("key").type == pa.int64()


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_combine_adds_up(pieces):
    dense = DenseCounts(("key",), [count()])
    tables = [dense.first(table(rows)).drop_columns([PANE]) for rows in pieces]
    combined = dense.combine(tables, ["key"])
    got = {r["key"]: r["__count__"] for r in combined.to_pylist()}
    assert got == Counter(key for rows in pieces for _, key in rows)


def test_other_aggregates_and_keys_are_grouped():
    from penstock.runtime.columns import sum_

    assert type(partials_of(("a", "b"), [count()])) is Partials
    assert type(partials_of(("a",), [count(), sum_("x")])) is Partials
    assert type(partials_of(("a",), [count()])) is DenseCounts
    words = pa.table({PANE: pa.array(np.zeros(3, np.int64)), "word": ["x", "y", "x"]})
    made = DenseCounts(("word",), [count()]).first(words)
    assert {r["word"]: r["__count__"] for r in made.to_pylist()} == {"x": 2, "y": 1}
