"""Many rows at once have the texts that they have one by one."""

import datetime as dt
import itertools
import json
from decimal import Decimal
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.engine.runtime.codecs.convert import field_values, to_columns
from penstock.engine.runtime.elements import RowBatch
from penstock.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema

INNER = Types.ROW_NAMED(["a%s", '"'], [Types.INT(), Types.LIST(Types.STRING())])
ROW = Types.ROW_NAMED(
    ["i", "d", "s", "b", "dec", "day", "l", "rows", "m", "any", "a"],
    [
        Types.LONG(),
        Types.DOUBLE(),
        Types.STRING(),
        Types.BOOLEAN(),
        Types.BIG_DEC(),
        Types.SQL_DATE(),
        Types.LIST(Types.LIST(Types.STRING())),
        Types.LIST(INNER),
        Types.MAP(Types.STRING(), Types.DOUBLE()),
        Types.PICKLED_BYTE_ARRAY(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
    ],
)


def or_none(values):
    return st.none() | values


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
INNER_ROWS = st.builds(
    lambda a, b: Row(**{"a%s": a, '"': b}),
    or_none(st.integers(-(1 << 31), (1 << 31) - 1)),
    or_none(st.lists(or_none(TEXTS), max_size=3)),
)
PARTS = (
    or_none(st.integers(-(1 << 63), (1 << 63) - 1) | st.booleans()),
    or_none(st.floats() | st.integers(-5, 5)),
    or_none(TEXTS | st.just("line\nend\u2028%s\x85")),
    or_none(st.booleans() | st.integers(0, 1)),
    or_none(st.decimals(allow_nan=False, allow_infinity=False)),
    or_none(st.dates()),
    or_none(st.lists(or_none(st.lists(or_none(TEXTS), max_size=2)), max_size=2)),
    or_none(st.lists(or_none(INNER_ROWS), max_size=2)),
    or_none(st.dictionaries(TEXTS, or_none(st.floats()), max_size=2)),
    or_none(st.recursive(TEXTS | st.integers(), lambda inner: st.lists(inner, max_size=2))),
    or_none(st.binary(max_size=3)),
)
VALUES = st.tuples(*PARTS)


def writer(type_info=ROW):
    return JsonRowSerializationSchema.builder().with_type_info(type_info).build()


@given(st.lists(VALUES, max_size=4), st.booleans())
def test_many_rows_are_written_as_each_of_them(values, is_row):
    records = [Row(*one) if is_row else one for one in values]
    assert writer().serialize_values(records) == [writer().serialize(one) for one in records]


def test_values_of_many_rows():
    """From the rules of Flink: numbers as numbers, null for None, times in ISO's form."""
    kind = Types.ROW_NAMED(
        ["n", "%d", "l"], [Types.INT(), Types.DOUBLE(), Types.LIST(Types.SQL_DATE())]
    )
    rows = [Row(1, 1.5, [dt.date(2020, 1, 2), None]), Row(None, None, None), Row(2, 1e22, [])]
    assert writer(kind).serialize_values(rows) == [
        b'{"n":1,"%d":1.5,"l":["2020-01-02",null]}',
        b'{"n":null,"%d":null,"l":null}',
        b'{"n":2,"%d":1e+22,"l":[]}',
    ]


def test_line_ends_stay_inside_of_their_texts():
    kind = Types.ROW_NAMED(["s"], [Types.STRING()])
    texts = ["a\nb", "", '"\n"', "\r\n\u2028"]
    written = writer(kind).serialize_values([Row(s=one) for one in texts])
    assert [json.loads(one)["s"] for one in written] == texts


def test_rows_without_fields_and_no_rows():
    empty = Types.ROW_NAMED([], [])
    assert writer(empty).serialize_values([Row(), Row()]) == [b"{}", b"{}"]
    with pytest.raises(ValueError, match="is different from number of field names: 0"):
        writer(empty).serialize_values([Row(1)])
    assert writer().serialize_values([]) == []


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (
            Row(1),
            r"number of elements in the row <Row\(1\)> is different from number of field names: 2",
        ),
        (Row("x", 1.0), "field 'n': a value of type str does not fit the declared type Integer"),
        (Row(1, Decimal("sNaN")), "field 'd': .*signaling NaN"),
    ],
)
def test_the_first_bad_row_raises(bad, told):
    kind = Types.ROW_NAMED(["n", "d"], [Types.INT(), Types.DOUBLE()])
    with pytest.raises(ValueError, match=told):
        writer(kind).serialize_values([Row(1, 2.0), bad, Row(None, "also bad")])


class Lines(JsonRowSerializationSchema):
    """Of a user: a line for each row."""

    def serialize(self, value):
        return super().serialize(value) + b"\n"


def test_a_derived_schema_writes_rows_its_own_way():
    lines = Lines(Types.ROW_NAMED(["n"], [Types.INT()]))
    assert lines.serialize_values([Row(n=1), Row(n=2)]) == [b'{"n":1}\n', b'{"n":2}\n']
    assert lines.serialize_columns([[1, 2]], 2) is None


def test_an_iterator_is_no_list_because_it_can_be_read_only_once():
    kind = Types.ROW_NAMED(["l"], [Types.LIST(Types.INT())])
    with pytest.raises(ValueError, match="field 'l': .*expected list"):
        writer(kind).serialize_values([Row(l=(1, 2)), Row(l=iter([1, 2]))])


class _OfLines(Decimal):
    def __str__(self):
        return "1\n2"


def test_a_decimal_number_that_is_a_text_with_line_ends_stays_in_its_row():
    kind = Types.ROW_NAMED(["d"], [Types.BIG_DEC()])
    rows = [Row(d=_OfLines(1)), Row(d=Decimal(3))]
    assert writer(kind).serialize_values(rows) == [b'{"d":1\n2}', b'{"d":3}']


def test_half_a_surrogate_pair_is_escaped_as_json_does_it():
    kind = Types.ROW_NAMED(["s"], [Types.STRING()])
    rows = [Row(s="x" * 50), Row(s="cut \ud83d"), Row(s="\udfffé")]
    made = writer(kind).serialize_values(rows)
    assert made == [writer(kind).serialize(row) for row in rows]
    assert made[1:] == [b'{"s":"cut \\ud83d"}', '{"s":"\\udfffé"}'.encode()]
    assert [json.loads(one)["s"] for one in made] == [row.s for row in rows]


def no_json(word):
    raise AssertionError(f"{word} is not JSON")


ANY_FLOAT = or_none(st.floats())
FLOATS = Types.ROW_NAMED(
    ["d", "f", "l", "m", "r", "any"],
    [
        Types.DOUBLE(), Types.FLOAT(), Types.LIST(Types.DOUBLE()),
        Types.MAP(Types.STRING(), Types.DOUBLE()), Types.ROW_NAMED(["x"], [Types.DOUBLE()]),
        Types.PICKLED_BYTE_ARRAY(),
    ],
)  # fmt: skip


@given(
    st.lists(
        st.tuples(
            ANY_FLOAT,
            or_none(st.floats(width=32)),
            st.lists(ANY_FLOAT, max_size=3),
            st.dictionaries(st.text("NI a", max_size=2), ANY_FLOAT, max_size=2),
            ANY_FLOAT.map(Row("x")),
            st.lists(ANY_FLOAT, max_size=2),
        ),
        max_size=5,
    )
)
def test_what_json_has_no_number_for_is_a_text_that_is_read_again(values):
    rows = list(itertools.starmap(Row(*FLOATS.get_field_names()), values))
    made = writer(FLOATS).serialize_values(rows)
    assert made == [writer(FLOATS).serialize(row) for row in rows]
    assert (
        made == writer(FLOATS).serialize_columns(list(zip(*values, strict=True)), len(rows))
        or not rows
    )
    for one in made:
        json.loads(one, parse_constant=no_json)
    typed = Types.ROW_NAMED(FLOATS.get_field_names()[:5], FLOATS.get_field_types()[:5])
    reader = JsonRowDeserializationSchema.builder().type_info(typed).build()
    # repr: NaN does not equal itself.
    assert [repr(tuple(reader.deserialize(one))) for one in made] == [
        repr(tuple(row)[:5]) for row in rows
    ]


def test_a_decimal_that_is_no_number_is_refused_as_java_has_none():
    for kind in (Types.BIG_DEC(), Types.DECIMAL(5, 2)):
        for value in ("NaN", "sNaN", "Infinity", "-Infinity"):
            with pytest.raises((ValueError, TypeError), match="finite number"):
                writer(Types.ROW_NAMED(["d"], [kind])).serialize(Row(Decimal(value)))


class Shade(str, Enum):  # ruff: ignore[replace-str-enum] - a StrEnum is written as its text
    RED = "red"


def test_a_text_of_a_class_of_its_own_is_written_as_in_columns():
    kind = Types.ROW_NAMED(["s", "m"], [Types.STRING(), Types.MAP(Types.STRING(), Types.LONG())])
    row = Row(s=Shade.RED, m={Shade.RED: 1})
    columns = field_values(to_columns(RowBatch([row]), kind), kind)
    expected = [b'{"s":"red","m":{"red":1}}']
    assert writer(kind).serialize_columns(columns, 1) == expected
    assert writer(kind).serialize_values([row]) == [writer(kind).serialize(row)] == expected


def test_a_schema_that_an_earlier_release_has_pickled_writes():
    kind = Types.ROW_NAMED(["n"], [Types.INT()])
    former = object.__new__(JsonRowSerializationSchema)
    former.__dict__.update(_row_type=kind, _write=None)
    assert former.serialize_values([Row(n=1)]) == [b'{"n":1}']
