"""Rows as CSV lines: values from the rules of Flink's CsvRowDeserializationSchema and CsvRowSerializationSchema."""

import datetime as dt
import pickle
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.common.time import Instant
from penstock.engine.model.errors import ConfigurationError
from penstock.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema

TYPE = Types.ROW_NAMED(
    ["i", "s", "d", "l", "r"],
    [
        Types.INT(),
        Types.STRING(),
        Types.BIG_DEC(),
        Types.BASIC_ARRAY(Types.LONG()),
        Types.ROW([Types.BOOLEAN(), Types.STRING()]),
    ],
)
ROW = Row(i=1, s="a,b", d=Decimal("1.10"), l=[1, 2], r=Row(f0=True, f1="x"))
LINE = b'1,"a,b",1.10,1;2,true;x\n'


def reader(type_info=TYPE):
    return CsvRowDeserializationSchema.Builder(type_info)


def writer(type_info=TYPE):
    return CsvRowSerializationSchema.Builder(type_info)


def test_a_line_is_read_and_written():
    assert reader().build().deserialize(LINE) == ROW
    assert writer().build().serialize(ROW) == LINE


def test_a_schema_that_was_used_travels():
    schema, back = reader().build(), writer().build()
    schema.deserialize(LINE)
    back.serialize(ROW)
    assert pickle.loads(pickle.dumps(schema)).deserialize(LINE) == ROW
    assert pickle.loads(pickle.dumps(back)).serialize(ROW) == LINE


def test_everything_can_be_set():
    schema = (
        reader()
        .set_field_delimiter("|")
        .set_array_element_delimiter("/")
        .set_quote_character("'")
        .set_escape_character("\\")
        .set_null_literal("n/a")
        .set_allow_comments(True)
        .build()
    )
    assert schema.deserialize(b"#1|2") is None
    line = b"n/a|'it\\'s'|1.10|1/2|true/x"
    assert schema.deserialize(b"n/a|'it''s'|1.10|1/2|true/x") == schema.deserialize(line)
    assert schema.deserialize(line) == Row(
        i=None, s="it's", d=Decimal("1.10"), l=[1, 2], r=Row(f0=True, f1="x")
    )
    back = (
        writer()
        .set_field_delimiter("|")
        .set_array_element_delimiter("/")
        .set_quote_character("'")
        .set_escape_character("\\")
        .set_null_literal("n/a")
        .set_line_delimiter("")
        .build()
    )
    written = back.serialize(schema.deserialize(line))
    assert written == b"n/a|'it''s'|'1.10'|'1/2'|'true/x'"


STAMP = dt.datetime.fromisoformat("2024-02-29 01:02:03")

# What stands between two texts, with a comma: what Flink's own writer and reader give.
TEXTS = [
    (Types.STRING(), "hello", "hello"),
    (Types.STRING(), "two words", '"two words"'),  # a space comes before the comma
    (Types.STRING(), "x" * 24, "x" * 24),
    (Types.STRING(), "x" * 25, '"' + "x" * 25 + '"'),
    (Types.BIG_DEC(), Decimal("-1.5"), "-1.5"),
    (Types.BIG_INT(), 10**24, f'"{10**24}"'),
    (Types.LONG(), -(1 << 63), "-9223372036854775808"),
    (Types.DOUBLE(), 1e10, "1.0E10"),
    (Types.FLOAT(), 3e38, "3.0E38"),
    (Types.BOOLEAN(), False, "false"),
    (Types.SQL_DATE(), dt.date(2024, 2, 29), "2024-02-29"),
    (Types.SQL_TIME(), dt.time(1, 2, 3), "01:02:03"),
    (Types.SQL_TIMESTAMP(), STAMP, '"2024-02-29 01:02:03.0"'),
    (Types.INSTANT(), Instant(12, 123456789), '"1970-01-01 00:00:12.123456789Z"'),
    (Types.INSTANT(), Instant(-1, 0), '"1969-12-31 23:59:59Z"'),
    (Types.OBJECT_ARRAY(Types.STRING()), ["a", "b"], "a;b"),
    (Types.ROW([Types.STRING(), Types.INT()]), Row(f0="a", f1=1), "a;1"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"k\x03\x0b", "awML"),
]


@pytest.mark.parametrize(("type_info", "value", "text"), TEXTS)
def test_fields_have_quotes_where_flinks_writer_puts_them(type_info, value, text):
    row_type = Types.ROW([Types.STRING(), type_info, Types.STRING()])
    line = f"begin,{text},end\n".encode()
    assert writer(row_type).build().serialize(Row("begin", value, "end")) == line
    assert reader(row_type).build().deserialize(line) == Row(f0="begin", f1=value, f2="end")


def test_a_delimiter_behind_the_letters_puts_all_texts_into_quotes():
    type_info = Types.ROW([Types.STRING(), Types.INT()])
    schema = writer(type_info).set_field_delimiter("|").build()
    assert schema.serialize(Row("a", 1)) == b'"a"|1\n'


def test_quotes_are_doubled_and_escape_characters_too():
    type_info = Types.ROW([Types.STRING()])
    schema = writer(type_info).set_escape_character("*").build()
    assert schema.serialize(Row('1"2*')) == b'"1""2**"\n'
    back = reader(type_info).set_escape_character("*").build()
    assert back.deserialize(b'"1""2**"\n') == back.deserialize(b'"1*"2**"\n') == Row(f0='1"2*')


def test_without_quotes_they_are_as_any_character():
    type_info = Types.ROW([Types.STRING(), Types.INT()])
    assert writer(type_info).disable_quote_character().build().serialize(Row('"', 1)) == b'",1\n'


def test_empty_fields_are_none_but_for_text():
    type_info = Types.ROW([Types.STRING(), Types.INT()])
    assert reader(type_info).build().deserialize(b",") == Row(f0="", f1=None)
    assert writer(type_info).build().serialize(Row(None, None)) == b",\n"


def test_nothing_gives_no_record():
    assert reader().build().deserialize(b"") is None
    assert reader().build().deserialize(b"\r\n") is None


def test_errors_name_the_field_and_show_the_message():
    schema = reader().build()
    with pytest.raises(ValueError, match=r"field 'i'.*Message: b'one,"):
        schema.deserialize(b"one,a,1,1,true;x")
    with pytest.raises(ValueError, match="5 fields expected but was 2"):
        schema.deserialize(b"1,2")
    with pytest.raises(ValueError, match="cannot be read as CSV"):
        schema.deserialize(b'1,"a')
    with pytest.raises(ValueError, match="field 'r'"):
        schema.deserialize(b"1,a,1,1,true")


def test_errors_can_be_ignored():
    schema = reader().set_ignore_parse_errors(True).build()
    assert schema.deserialize(b"one,a,1,1;two,maybe;x") == Row(
        i=None, s="a", d=Decimal(1), l=[1, None], r=Row(f0=None, f1="x")
    )
    assert schema.deserialize(b"1,a,1") == Row(i=1, s="a", d=Decimal(1), l=None, r=None)
    assert schema.deserialize(b"1,a,1,1,true;x,more") is None
    assert schema.deserialize(b'1,"a') is None
    assert schema.deserialize(b"\xff") is None
    assert schema.deserialize(LINE) == ROW


def test_what_makes_no_sense_is_refused_when_it_is_said():
    with pytest.raises(TypeError, match=r"Types\.ROW_NAMED"):
        reader(Types.INT())
    with pytest.raises(ConfigurationError, match="one character"):
        reader().set_field_delimiter("::")
    with pytest.raises(ConfigurationError, match="line delimiter"):
        writer().set_line_delimiter(";")
    with pytest.raises(ValueError, match="5 fields expected but was 1"):
        writer().build().serialize(Row(1))
    with pytest.raises(TypeError, match="CSV cannot represent MapTypeInfo"):
        reader(Types.ROW([Types.MAP(Types.INT(), Types.INT())])).build().deserialize(b"1")


@given(
    st.tuples(
        st.text().filter(bool), st.integers(-(1 << 31), (1 << 31) - 1), st.text().filter(bool)
    )
)
def test_what_was_written_is_read(values):
    type_info = Types.ROW([Types.STRING(), Types.INT(), Types.STRING()])
    for back, schema in (
        (writer(type_info), reader(type_info)),
        (
            writer(type_info).set_escape_character("\\"),
            reader(type_info).set_escape_character("\\"),
        ),
    ):
        data = back.build().serialize(Row(*values))
        assert tuple(schema.build().deserialize(data)) == values


def test_a_message_may_be_long_and_begin_with_a_byte_order_mark():
    kind = Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()])
    schema = CsvRowDeserializationSchema.Builder(kind).build()
    assert tuple(schema.deserialize(b"\xef\xbb\xbf7,a")) == (7, "a")
    assert tuple(schema.deserialize(b'7,"' + b"z" * 200_000 + b'"')) == (7, "z" * 200_000)
    for text in ("1_0,a", "\uff11,a"):
        with pytest.raises(ValueError, match="field 'n': expected a whole number"):
            schema.deserialize(text.encode())
