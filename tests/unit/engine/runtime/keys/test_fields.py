"""Key selectors that only read a field: told by their code, and keys out of columns are those of the records. Expectations: calling them."""

import datetime as dt
import functools
from operator import attrgetter, itemgetter

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.model.row import Row, RowKind
from penstock.engine.model.types import Types
from penstock.engine.runtime.codecs import convert
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.engine.runtime.keys import KeySelection, channel_of, selection
from penstock.engine.runtime.keys.hashing import is_int32_type
from penstock.engine.runtime.keys.selection import FieldRead, KeyRead, key_fields, key_read

FIELDS = {
    "count": Types.LONG(),
    "word": Types.STRING(),
    "short": Types.SHORT(),
    "price": Types.DOUBLE(),
    "ratio": Types.FLOAT(),
    "flag": Types.BOOLEAN(),
    "day": Types.SQL_DATE(),
    "raw": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "tags": Types.LIST(Types.STRING()),
    "as_dict": Types.INT(),
}
NAMED = Types.ROW_NAMED(list(FIELDS), list(FIELDS.values()))
RECORDS = [
    Row(3, "a", -1, 0.5, 0.25, True, dt.date(2020, 1, 1), b"x", ["p"], 7),
    Row(-(2**63), "\U0001d11e", 2, -0.0, 1.5, False, dt.date(1969, 1, 1), b"", [], -7),
    Row(2**40, "", 0, float("nan"), -2.0, True, dt.date(2020, 1, 2), b"y", ["p", "q"], 0),
]
COLUMNS = convert.to_columns(RowBatch(RECORDS), NAMED)
KEY = "word"


class Selector:
    def get_key(self, value):
        return value["word"]

    def own_field(self, value):
        return self.word

    @staticmethod
    def alone(value):
        return value[1]


def by_word(value):
    """The word."""
    return value.word


def hidden(function):
    @functools.wraps(function)
    def wrapper(value):
        return function(value)

    return wrapper


def yielding(value):
    yield value[0]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (lambda value: value[0], FieldRead(0)),
        (lambda value: value[-1], FieldRead(-1)),
        (lambda value: value[300], FieldRead(300)),
        (lambda value: value["word"], FieldRead("word")),
        (lambda value, other=1: value[0], FieldRead(0)),
        (lambda value: value.word, FieldRead("word", is_attribute=True)),
        (by_word, FieldRead("word", is_attribute=True)),
        (Selector().get_key, FieldRead("word")),
        (Selector.alone, FieldRead(1)),
        (itemgetter(1), FieldRead(1)),
        (itemgetter("word"), FieldRead("word")),
        (attrgetter("word"), FieldRead("word", is_attribute=True)),
    ],
)
def test_a_selector_that_only_reads_a_field_is_known(selector, expected):
    assert key_read(selector) == KeyRead((expected,))


def by_two(value):
    return value.word, value[0]


FIRST, COUNT, WORD = FieldRead(0), FieldRead("count"), FieldRead("word", is_attribute=True)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (lambda value: (value[0],), [FIRST]),
        (lambda value: (value.word, value["count"], value[0]), [WORD, COUNT, FIRST]),
        (lambda value: (value[0], value[0]), [FIRST, FIRST]),
        (by_two, [WORD, FIRST]),
        (itemgetter(0, "count"), [FIRST, COUNT]),
        (attrgetter("word", "word"), [WORD, WORD]),
    ],
)
def test_a_tuple_of_fields_is_known(selector, expected):
    assert key_read(selector) == KeyRead(tuple(expected), is_tuple=True)


@pytest.mark.parametrize(
    "selector",
    [
        lambda value: value,
        lambda value: value[0] + 1,
        lambda value: value[0][0],
        lambda value: value.where.name,
        lambda value: value[True],
        lambda value: value[None],
        lambda value: value[0:1],
        lambda value: value[KEY],
        lambda value: (),
        lambda value: (value[0], value),
        lambda value: (value[0], 1),
        lambda value: (value[0], value[1] + 1),
        lambda value: (value[0], (value[1], value[2])),
        lambda value: [value[0], value[1]],
        lambda value: {value[0], value[1]},
        lambda value: (*value, value[0]),
        lambda value, other=(1, 2): (value[0], other[0]),
        lambda value: (value[0], value[1])[0],
        lambda value: value[0] == value[1],
        lambda value: value[0] or "none",
        lambda value: value.word(),
        lambda value, other=[1]: other[0],  # ruff: ignore[mutable-argument-default]
        lambda *values: values[0],
        lambda value: "word",
        hidden(lambda value: value[0]),
        functools.partial(lambda value: value[0]),
        Selector().own_field,
        yielding,
        itemgetter(True),
        itemgetter(0, True),
        attrgetter("where.name"),
        attrgetter("word", "where.name"),
        str,
        len,
    ],
)
def test_whatever_does_more_is_not(selector):
    assert key_read(selector) is None


SELECTORS = [
    lambda value: value[0],
    lambda value: value[-1],
    lambda value: value.count,
    lambda value: value["as_dict"],
    *(itemgetter(name) for name in FIELDS),
    lambda value: (value[0],),
    lambda value: (value.word, value["count"]),
    *(itemgetter(name, "word") for name in FIELDS),
]


def check_as_by_records(keys, columns, type_info):
    """Keys and channels of columns are those of the records that they stand for."""
    rows = convert.to_rows(columns, type_info)
    expected = keys.typed(list(map(keys.row_selector(), rows.values)))
    assert repr(keys.keys_of_rows(rows.values)) == repr(expected)
    made, taken = keys.rows_and_keys(columns, type_info)
    assert repr(made.values) == repr(rows.values)
    assert taken is None or repr(taken) == repr(expected)
    assert repr(keys.keys_of(columns)) == repr(expected)
    is_int32 = is_int32_type(keys.key_type)
    channels = [channel_of(key, 16, 128, is_int32=is_int32) for key in expected]
    assert keys.channels_of_columns(columns, 16, 128).tolist() == channels
    return taken


@pytest.mark.parametrize("selector", SELECTORS)
def test_keys_of_columns_are_those_of_the_records(selector):
    taken = check_as_by_records(KeySelection(selector, None, NAMED), COLUMNS, NAMED)
    assert taken is not None


def test_no_record_is_made_for_them(monkeypatch):
    def never(*_):
        raise AssertionError("records were made")

    monkeypatch.setattr("penstock.engine.runtime.keys.selection.to_rows", never)
    keys = KeySelection(lambda value: value.word, None, NAMED)
    assert keys.keys_of(COLUMNS) == ["a", "\U0001d11e", ""]
    assert len(keys.channels_of_columns(COLUMNS, 4, 128)) == 3


@pytest.mark.parametrize("name", ["count", "word", "short", "as_dict"])
def test_a_declared_key_type_like_the_fields_changes_nothing_but_the_hash(name):
    keys = KeySelection(itemgetter(name), FIELDS[name], NAMED)
    assert check_as_by_records(keys, COLUMNS, NAMED) is not None


def test_a_declared_tuple_like_the_fields_changes_nothing():
    selector = itemgetter("word", "short", "ratio")
    declared = Types.TUPLE([FIELDS["word"], FIELDS["short"], FIELDS["ratio"]])
    assert check_as_by_records(KeySelection(selector, declared, NAMED), COLUMNS, NAMED) is not None
    wider = Types.TUPLE([FIELDS["word"], Types.LONG(), Types.DOUBLE()])
    assert check_as_by_records(KeySelection(selector, wider, NAMED), COLUMNS, NAMED) is None


@pytest.mark.parametrize("is_declared", [False, True])
def test_a_null_may_be_an_item_of_a_key(is_declared):
    items = [Types.LONG(), Types.STRING()]
    type_info = Types.ROW_NAMED(["n", "s"], items)
    columns = convert.to_columns(
        RowBatch([Row(1, None), Row(None, "a"), Row(None, None), Row(1, None)]), type_info
    )
    declared = Types.TUPLE(items) if is_declared else None
    keys = KeySelection(lambda value: (value.n, value.s), declared, type_info)
    expected = [(1, None), (None, "a"), (None, None), (1, None)]
    assert check_as_by_records(keys, columns, type_info) == expected


def test_another_key_type_converts_and_checks_as_before():
    keys = KeySelection(itemgetter("short"), Types.LONG(), NAMED)
    assert check_as_by_records(keys, COLUMNS, NAMED) is None
    keys = KeySelection(itemgetter("short"), Types.STRING(), NAMED)
    for refused in (keys.keys_of, lambda batch: keys.channels_of_columns(batch, 4, 128)):
        with pytest.raises(TypeError, match="expected str"):
            refused(COLUMNS)


def test_tuples_have_positions_only():
    pairs = Types.TUPLE([Types.STRING(), Types.LONG()])
    columns = convert.to_columns(RowBatch([("a", 1), ("b", 2)]), pairs)
    keys = KeySelection(lambda value: value[1], None, pairs)
    assert check_as_by_records(keys, columns, pairs) == [1, 2]
    for selector, error in ((lambda v: v["f1"], TypeError), (lambda v: v.f1, AttributeError)):
        with pytest.raises(error):
            KeySelection(selector, None, pairs).keys_of(columns)


def test_bare_values_are_no_records():
    columns = convert.to_columns(RowBatch(["ab", "cd"]), Types.STRING())
    keys = KeySelection(lambda value: value[0], None, Types.STRING())
    assert check_as_by_records(keys, columns, Types.STRING()) == ["a", "c"]
    assert key_fields(keys.selector, columns.data.schema.names, Types.STRING()) is None


def test_undeclared_columns_are_rows_with_their_names():
    data = pa.RecordBatch.from_pydict({
        "n": [1, 2],
        "u": pa.array([2**63, 1], pa.uint64()),
        "d": pa.array(["x", "y"]).dictionary_encode(),
        "at": pa.array([0, 1], pa.timestamp("ms")),
    })
    for name in data.schema.names:
        keys = KeySelection(itemgetter(name), None, None)
        assert check_as_by_records(keys, ColumnBatch(data), None) is not None


def test_what_a_row_has_of_its_own_is_no_field():
    keys = KeySelection(lambda value: value.as_dict, None, NAMED)
    taken = keys.rows_and_keys(COLUMNS, NAMED)[1]
    assert taken is None


@pytest.mark.parametrize(
    ("selector", "error"),
    [
        (lambda value: value[10], IndexError),
        (lambda value: value["other"], ValueError),
        (lambda value: value.other, AttributeError),
    ],
)
def test_a_field_that_is_not_there_is_the_selectors_error(selector, error):
    keys = KeySelection(selector, None, NAMED)
    with pytest.raises(error):
        keys.channels_of_columns(COLUMNS, 4, 128)


def test_a_null_is_refused_as_a_key():
    type_info = Types.ROW_NAMED(["n"], [Types.LONG()])
    columns = convert.to_columns(RowBatch([Row(1), Row(None)]), type_info)
    keys = KeySelection(lambda value: value.n, None, type_info)
    assert keys.rows_and_keys(columns, type_info)[1] == [1, None]
    with pytest.raises(TypeError, match="must not be None"):
        keys.channels_of_columns(columns, 4, 128)


def test_rows_of_several_kinds_and_columns_that_are_cast_give_the_same_keys():
    type_info = Types.ROW_NAMED(["n"], [Types.LONG()])
    keys = KeySelection(lambda value: value.n, None, type_info)
    rows = [Row.of_kind(RowKind.DELETE, 1), Row(2)]
    check_as_by_records(keys, convert.to_columns(RowBatch(rows), type_info), type_info)
    narrow = pa.RecordBatch.from_pydict({"n": pa.array([1, 2], pa.int32())})
    check_as_by_records(keys, ColumnBatch(narrow), type_info)
    wrong = pa.RecordBatch.from_pydict({"n": pa.array(["x"])})
    with pytest.raises(TypeError, match="does not fit the declared"):
        keys.channels_of_columns(ColumnBatch(wrong), 4, 128)


def test_slices_have_their_own_keys():
    keys = KeySelection(lambda value: value[0], None, NAMED)
    piece = ColumnBatch(COLUMNS.data.slice(1, 2), np.array([1, 2]))
    check_as_by_records(keys, piece, NAMED)
    check_as_by_records(keys, ColumnBatch(COLUMNS.data.slice(0, 0)), NAMED)


def test_bytecode_that_is_not_known_is_not_read(monkeypatch):
    monkeypatch.setattr(selection, "READS_BYTECODE", False)
    assert key_read(lambda bid: bid["id"]) is None
    assert key_read(itemgetter("id")) == KeyRead((FieldRead("id"),))
