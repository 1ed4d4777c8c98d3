"""Rows as CSV lines: values from the rules of Flink's CsvRowDeserializationSchema and CsvRowSerializationSchema."""

import pickle
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.datastream.formats.csv import (
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
)
from penstock.model.errors import ConfigurationError

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
    assert back.serialize(schema.deserialize(line)) == line


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
    with pytest.raises(ValueError, match="not CSV"):
        schema.deserialize(b'1,"a')
    with pytest.raises(ValueError, match="field 'r'"):
        schema.deserialize(b"1,a,1,1,true")


def test_errors_can_be_ignored():
    schema = reader().set_ignore_parse_errors(True).build()
    assert schema.deserialize(b"one,a,1,1,true;x") is None
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
    with pytest.raises(TypeError, match="CSV has no form for MapTypeInfo"):
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
