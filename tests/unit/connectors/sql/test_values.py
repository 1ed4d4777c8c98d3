"""Batches of records become rows, as each of their records does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, RowKind
from penstock.connectors.sql.values import changes_maker, row_maker

NAMES = ("a", "b")
VALUES = st.integers(0, 3)


def _row(values, kind, names):
    row = Row.of_kind(kind, *values)
    if names is not None:
        row.set_field_names(names)
    return row


ROWS = st.builds(
    _row,
    st.lists(VALUES, min_size=1, max_size=3),
    st.sampled_from(RowKind),
    st.sampled_from([None, ("a", "b"), ("b", "a"), ("b", "x", "a"), ("a",)]),
)
OTHERS = st.tuples(VALUES, VALUES) | st.lists(VALUES, max_size=3) | VALUES
DICTS = st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES)
FITTING = st.builds(
    lambda values, kind: _row(values, kind, ("b", "x", "a")),
    st.lists(VALUES, min_size=3, max_size=3),
    st.sampled_from([RowKind.INSERT, RowKind.DELETE]),
)


def outcome(call, records):
    try:
        return call(records)
    except TypeError as error:
        return str(error)


@given(
    st.lists(ROWS)
    | st.lists(FITTING)
    | st.lists(st.tuples(VALUES, VALUES))
    | st.lists(ROWS | OTHERS | DICTS)
)
def test_a_batch_becomes_the_rows_of_its_records(records):
    def one_by_one(records):
        return list(map(row_maker(NAMES), records))

    def together(records):
        changes = changes_maker(NAMES)(records)
        kinds = changes.kinds or [RowKind.INSERT] * len(changes.rows)
        return list(zip(kinds, changes.rows, strict=True))

    assert outcome(together, records) == outcome(one_by_one, records)


def test_a_scalar_is_the_only_column_of_each_record():
    changes = changes_maker(["n"])([1, 2])
    assert list(changes.rows) == [(1,), (2,)]
    assert changes.kinds is None


@pytest.mark.parametrize("kind", [RowKind.INSERT, RowKind.DELETE])
def test_kinds_are_kept_only_where_they_say_something(kind):
    changes = changes_maker(["n"])([Row.of_kind(kind, 1)])
    assert changes.kinds == (None if kind is RowKind.INSERT else [kind])
