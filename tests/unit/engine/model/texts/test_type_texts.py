"""Types as JSON, and back."""

from __future__ import annotations

import json

import pytest

from penstock.engine.hosting.network.wire.messages import decode, encode
from penstock.engine.model.errors import GraphError
from penstock.engine.model.key_types import KeyType
from penstock.engine.model.texts.type_texts import (
    shown_type,
    text_with_defaults,
    type_of_text,
    type_text,
    type_with_defaults,
)
from penstock.engine.model.type_information import LocalTimeTypeInfo, TypeInformation
from penstock.engine.model.types import BasicType, Types

EVERY = [
    *(getattr(Types, kind.name)() for kind in BasicType),
    Types.SQL_DATE(),
    Types.SQL_TIME(),
    Types.SQL_TIMESTAMP(),
    Types.TIMESTAMP_LTZ(),
    Types.PICKLED_BYTE_ARRAY(),
    Types.DECIMAL(10, 3),
    Types.ROW([Types.INT()]),
    Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LIST(Types.STRING())]),
    Types.TUPLE([Types.LONG(), Types.MAP(Types.STRING(), Types.DOUBLE())]),
    Types.PRIMITIVE_ARRAY(Types.BYTE()),
    Types.BASIC_ARRAY(Types.INT()),
    Types.OBJECT_ARRAY(Types.STRING()),
    *map(LocalTimeTypeInfo, LocalTimeTypeInfo.TimeType),
]


@pytest.mark.parametrize("type_info", EVERY, ids=str)
def test_a_type_comes_back_from_its_text(type_info):
    assert type_of_text(json.loads(json.dumps(type_text(type_info)))) == type_info


def test_rows_with_and_without_names_are_told_apart():
    texts = [type_text(Types.ROW([Types.INT()])), type_text(Types.ROW_NAMED(["f0"], [Types.INT()]))]
    assert [type_of_text(text).has_names for text in texts] == [False, True]


def test_a_type_of_a_user_is_known_by_class_and_text():
    class Celsius(TypeInformation):
        def __str__(self):
            return "Celsius()"

    text = type_text(Celsius())
    assert text[0] == "OTHER"
    assert text[2] == "Celsius()"
    assert type_text(type_of_text(text)) == text
    assert shown_type(type_of_text(text)) == "Celsius()"


@pytest.mark.parametrize("text", ["INTEGER", ["ROW"], ["LIST"], 5, ["LOCAL?", "x"]])
def test_what_is_no_type_is_refused(text):
    with pytest.raises(ValueError, match="is no type"):
        type_of_text(text)


def test_a_type_is_shown_as_a_program_writes_it():
    row = Types.ROW_NAMED(["a"], [Types.MAP(Types.STRING(), Types.LONG())])
    assert shown_type(row) == "ROW(a: MAP(STRING, LONG))"
    assert (
        shown_type(Types.TUPLE([Types.LONG(), Types.DECIMAL(3, 1)])) == "TUPLE(LONG, DECIMAL(3, 1))"
    )
    assert shown_type(Types.PICKLED_BYTE_ARRAY()) == "undeclared (PICKLED_BYTE_ARRAY)"
    assert shown_type(None) == "a type that is not known"


def test_defaults_of_rows_are_sent_with_the_type_of_keys():
    inner = Types.ROW_NAMED(["a"], [Types.LONG()]).with_defaults(a=1.5)
    whole = Types.ROW_NAMED(["r", "b"], [Types.LIST(inner), Types.STRING()]).with_defaults(b="x")
    found = type_with_defaults(text_with_defaults(whole))
    assert found == whole
    assert found.defaults == {"b": "x"}
    assert found.get_field_types()[0].element_type.defaults == {"a": 1.5}


def test_a_default_that_cannot_be_sent_is_refused():
    with pytest.raises(GraphError, match="field 'a' of a key has the default .* of class object"):
        text_with_defaults(Types.ROW_NAMED(["a"], [Types.LONG()]).with_defaults(a=object()))


def test_a_type_of_a_user_crosses_the_wire_of_control_as_a_text():
    class Celsius(TypeInformation):
        """Known to the program alone."""

    keys = KeyType.of(Types.TUPLE([Celsius(), Types.LONG()]), is_int32=True, namespace="TimeWindow")
    assert decode(encode(keys)) == keys
    assert "Celsius" in shown_type(keys.type_info)
