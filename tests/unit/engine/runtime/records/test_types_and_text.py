"""Types, rows and their texts. Expectations: docs/spec/programs.md#types, #texts and
pyflink.common.
"""

import copy
import pickle
from decimal import Decimal

import numpy as np
import pytest

from penstock.engine.model.row import Row, RowKind, make_row
from penstock.engine.model.time import Instant
from penstock.engine.model.types import BasicType, RowTypeInfo, Types
from penstock.engine.runtime.records.side_output import OutputTag
from penstock.engine.runtime.records.text import format_batch, format_value, java_double


@pytest.mark.parametrize(
    ("type_info", "text"),
    [
        (Types.STRING(), "String"),
        (Types.INT(), "Integer"),
        (Types.LONG(), "Long"),
        (Types.FLOAT(), "Float"),
        (Types.DOUBLE(), "Double"),
        (Types.BOOLEAN(), "Boolean"),
        (Types.BYTE(), "Byte"),
        (Types.CHAR(), "Char"),
        (Types.BIG_DEC(), "BigDecimal"),
        (Types.INSTANT(), "Instant"),
        (Types.SQL_DATE(), "DateTypeInfo"),
        (Types.TUPLE([Types.INT(), Types.STRING()]), "TupleTypeInfo(Integer, String)"),
        (Types.ROW_NAMED(["a"], [Types.INT()]), "RowTypeInfo(a: Integer)"),
        (Types.ROW([Types.INT()]), "RowTypeInfo(Integer)"),
        (Types.LIST(Types.INT()), "ListTypeInfo<Integer>"),
        (Types.MAP(Types.STRING(), Types.INT()), "MapTypeInfo<String, Integer>"),
        (Types.BASIC_ARRAY(Types.INT()), "BasicArrayTypeInfo<Integer>"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), "PrimitiveArrayTypeInfo<Integer>"),
        (Types.OBJECT_ARRAY(Types.STRING()), "ObjectArrayTypeInfo<String>"),
        (Types.PICKLED_BYTE_ARRAY(), "PickledByteArrayTypeInfo"),
    ],
)
def test_types_print_as_in_pyflink_and_survive_pickling(type_info, text):
    assert str(type_info) == text
    assert pickle.loads(pickle.dumps(type_info)) == type_info


def test_types_are_equal_by_structure_and_enum_members_are_pyflinks():
    assert Types.ROW([Types.INT()]) == RowTypeInfo([Types.INT()], ["f0"])
    assert Types.INT() != Types.LONG()
    assert [m.name for m in BasicType] == [
        "STRING", "BYTE", "BOOLEAN", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "CHAR", "BIG_INT",
        "BIG_DEC", "INSTANT",
    ]  # fmt: skip


def test_a_row_is_a_factory_a_sequence_and_a_named_record():
    person = Row("n", "v")
    row = person(1, 2)
    assert repr(Row(1, "a")) == "<Row(1, 'a')>"
    assert repr(Row(x=1, y="a")) == "Row(x=1, y='a')"
    assert (row.n, row["v"], row[0], list(row), len(row)) == (1, 2, 1, [1, 2], 2)
    assert row.as_dict() == {"n": 1, "v": 2}
    assert pickle.loads(pickle.dumps(row)) == row
    assert hash(Row(1, 2)) == hash(Row(1, 2))
    assert row < person(1, 3)
    with pytest.raises(TypeError, match="without names"):
        Row(1).as_dict()


def test_a_rows_values_are_read_and_set_as_those_of_a_list():
    row = Row(a=1, b="x", c=[1])
    assert (row[0], row[-1], row[np.int64(1)], row[True], row[0:2]) == (1, [1], "x", "x", [1, "x"])
    other = copy.copy(row)
    row[0], row["b"], row.c = 2, "y", None
    assert list(row) == [2, "y", None] and list(other) == [1, "x", [1]]
    row[1:] = [3, 4]
    assert row == Row(a=2, b=3, c=4)
    for key, error in ((3, IndexError), ("d", KeyError)):
        with pytest.raises(error):
            row[key] = 0
    assert Row(1, 2).get_fields_by_names([]) == [1, 2]
    assert make_row(("a",), [1]) == pickle.loads(pickle.dumps(Row(a=1)))
    assert hash(make_row(None, [1, 2])) == hash(Row(1, 2))


def test_rows_differ_by_kind_and_by_names():
    deleted = Row.of_kind(RowKind.DELETE, 1)
    assert deleted.get_row_kind() is RowKind.DELETE
    assert deleted != Row(1)
    assert Row(1) != Row(a=1)
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]


def test_pickled_values_print_as_python_does_and_bytes_do_not_print():
    values = [(1, "a"), None, True, {"k": 1}, Row(1, "x"), Row(a=1, b="x")]
    expected = ["(1, 'a')", "None", "True", "{'k': 1}", "<Row(1, 'x')>", "Row(a=1, b='x')"]
    assert format_batch(values, None) == expected
    with pytest.raises(TypeError, match="decode"):
        format_batch([b"x"], None)


def test_declared_values_print_as_java_does():
    record = Types.TUPLE([
        Types.STRING(),
        Types.INT(),
        Types.DOUBLE(),
        Types.BOOLEAN(),
        Types.INT(),
    ])
    assert format_value(("a", 1, 1.5, True, None), record) == "(a,1,1.5,true,null)"
    nested = Types.TUPLE([Types.LIST(Types.INT()), Types.MAP(Types.STRING(), Types.INT())])
    assert format_value(([1, 2], {"a": 1}), nested) == "([1, 2],{a=1})"
    assert format_batch([True, False], Types.BOOLEAN()) == ["true", "false"]
    assert format_value(Decimal("1.50"), Types.BIG_DEC()) == "1.50"
    assert format_value(Instant(0, 5_000_000), Types.INSTANT()) == "1970-01-01T00:00:00.005Z"


def test_a_row_prints_its_kind_without_spaces_and_with_python_floats():
    row_type = Types.ROW([Types.STRING(), Types.FLOAT()])
    assert format_value(Row("a", 1.100000023841858), row_type) == "+I[a,1.100000023841858]"


def test_doubles_print_as_java_prints_them():
    texts = [java_double(x) for x in (1.0, 100.0, 1e10, 1e-4, 0.001, 1e7, 12345678.9, -0.0)]
    assert texts == ["1.0", "100.0", "1.0E10", "1.0E-4", "0.001", "1.0E7", "1.23456789E7", "-0.0"]
    assert [java_double(x) for x in (float("nan"), float("-inf"))] == ["NaN", "-Infinity"]


def test_output_tags_are_equal_by_id_and_refuse_empty_ids():
    assert OutputTag("late") == OutputTag("late", Types.INT())
    with pytest.raises(ValueError, match="non-empty"):
        OutputTag("")
