"""Pieces of rows as bytes: they come back as they were, and build plain values only."""

import datetime as dt
import pickle
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.sql import staged
from penstock.connectors.sql.staged import Piece, dumps_piece, loads_piece
from penstock.engine.model.row import RowKind

AT = dt.datetime(2024, 7, 1, tzinfo=ZoneInfo("Europe/Berlin"))
VALUES = (
    1, -(2**80), 0.5, "x", b"y", None, True, Decimal("1.5"), UUID(int=7), AT, AT.astimezone(dt.UTC),
    dt.timedelta(1), dt.time(1, 2), dt.date(2024, 1, 2), AT.replace(tzinfo=None), [1, {"a": (2,)}],
)  # fmt: skip
ENDS = tuple(map(dt.datetime.fromisoformat, ("0001-01-01", "9999-12-31T23:59:59.999999")))
KINDS = st.sampled_from([
    st.text() | st.sampled_from(["", "\0", "\x01", "a\0b", "\ud800"]),
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.binary(),
    st.datetimes() | st.sampled_from(ENDS),
    st.datetimes(timezones=st.just(dt.UTC)),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.decimals(allow_nan=False),
    st.lists(st.integers() | st.text()),
])
"""Kinds of columns."""
NAN = float("nan")


def there_and_back(piece):
    return loads_piece(dumps_piece(piece))


def columns_of(size):
    of_one_kind = KINDS.flatmap(lambda kind: st.lists(kind, min_size=size, max_size=size))
    with_none = KINDS.flatmap(lambda kind: st.lists(st.none() | kind, min_size=size, max_size=size))
    of_any = st.lists(st.none() | KINDS.flatmap(lambda kind: kind), min_size=size, max_size=size)
    return of_one_kind | with_none | of_any


@given(
    st.integers(1, 6).flatmap(
        lambda size: st.tuples(
            st.lists(columns_of(size), min_size=1, max_size=3),
            st.none() | st.lists(st.sampled_from(RowKind), min_size=size, max_size=size),
        )
    )
)
def test_a_piece_comes_back_as_it_was(drawn):
    columns, kinds = drawn
    rows = list(zip(*columns, strict=True))
    found = there_and_back(Piece.of(rows, kinds))
    assert list(found.rows()) == rows
    classes = [list(map(type, row)) for row in rows]
    assert [list(map(type, row)) for row in found.rows()] == classes
    assert found.size == len(rows)
    assert found.kinds == kinds


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_alone_and_beside_none(value):
    rows = [(value,), (None,), (value,)]
    assert list(there_and_back(Piece.of(rows)).rows()) == rows
    assert list(there_and_back(Piece.of(rows[:1])).rows()) == rows[:1]


def test_numbers_that_are_none_come_back():
    (found,) = there_and_back(Piece.of([(NAN,), (float("-inf"),), (-0.0,)])).columns
    assert list(map(repr, found)) == ["nan", "-inf", "-0.0"]


@pytest.mark.parametrize("strange", [object(), RowKind.INSERT, print, int, dt])
def test_values_of_other_kinds_are_refused(strange):
    with pytest.raises(TypeError, match="a column got"):
        dumps_piece(Piece.of([(strange,)]))
    with pytest.raises(TypeError, match="a column got"):
        dumps_piece(Piece.of([([1, strange],), (None,)]))


def test_a_time_whose_zone_is_of_another_kind_is_refused():
    class Zone(dt.tzinfo):
        def utcoffset(self, at):
            return dt.timedelta(0)

    with pytest.raises(TypeError, match="a column got"):
        dumps_piece(Piece.of([(dt.datetime(2024, 1, 1, tzinfo=Zone()),)]))


def test_bytes_that_no_sink_wrote_build_nothing():
    with pytest.raises(pickle.UnpicklingError, match="which no SqlSink writes"):
        loads_piece(pickle.dumps([(0, (print,))]))
    bad = pickle.dumps((1, None, [(b"p", pickle.dumps([print]))]))
    with pytest.raises(pickle.UnpicklingError, match="which no SqlSink writes"):
        loads_piece(staged.MAGIC + staged._HEAD.pack(b"-", len(bad)) + bad)


def test_it_works_without_a_codec(monkeypatch):
    monkeypatch.setattr(staged, "_codec", lambda: None)
    rows = [("a", 1), ("b", None)]
    assert list(there_and_back(Piece.of(rows)).rows()) == rows


def test_changes_come_back_in_their_order():
    changes = [(RowKind.INSERT, ("a", 1)), (RowKind.DELETE, ("b", 2))]
    assert there_and_back(Piece.of_changes(changes)).changes() == changes
    assert Piece.of_changes(changes[:1]).kinds is None
