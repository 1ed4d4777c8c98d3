"""What a codec of records says about a value that does not fit."""

import pytest

from penstock.common import Row, Types
from penstock.runtime.codecs.by_type import codec_of


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (
            Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]),
            Row(1, 2),
            r"^field 'b': a value of type int",
        ),
        (
            Types.TUPLE([Types.INT(), Types.STRING()]),
            ("x", "y"),
            r"^field 'f0': a value of type str",
        ),
        (
            Types.ROW_NAMED(["a"], [Types.ROW_NAMED(["b"], [Types.BYTE()])]),
            Row(Row(300)),
            r"^field 'a': field 'b': 300 does not fit",
        ),
        (
            Types.ROW_NAMED(["a"], [Types.LIST(Types.INT())]),
            Row([1, "x"]),
            r"^field 'a': a value of type str",
        ),
    ],
)
def test_the_field_is_named(kind, value, text):
    with pytest.raises((TypeError, ValueError, OverflowError), match=text):
        codec_of(kind).enforce([value])
