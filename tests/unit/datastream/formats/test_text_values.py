"""Single values from text.

Expectations: Java's Integer.parseInt, Double.parseDouble, BigDecimal and ISO 8601, in ASCII.
"""

import datetime as dt
import math
from decimal import Decimal

import pytest

from penstock.common import Types
from penstock.datastream.formats.text_values import formatter_of, parser_of

WHOLE = [Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.BIG_INT()]
NUMBERS = [*WHOLE, Types.FLOAT(), Types.DOUBLE(), Types.BIG_DEC(), Types.DECIMAL(10, 4)]
NO_NUMBERS = [
    "1_000", "12_34_56", "\u0661\u0662", "\uff11\uff12", "0x10", "1,000", "--1", "+ 1", "", " ",
    "1 2", "\u00a01", "e5", ".", "1e", "nan", "inf", "infinity", "-inf", "INFINITY", "sNaN", "1f",
    "1L", "\u22121", "1e1_0", "1e\uff11", "True",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_NUMBERS)
@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_only_what_java_takes_for_a_number_is_one(kind, text):
    with pytest.raises(ValueError, match="expected a "):
        parser_of(kind)(text)


@pytest.mark.parametrize("kind", WHOLE, ids=str)
def test_whole_numbers_have_a_sign_and_digits(kind):
    assert [parser_of(kind)(text) for text in ("7", "+7", "-7", "007", " 7\t")] == [7, 7, -7, 7, 7]
    for text in ("7.0", "1e2", "NaN"):
        with pytest.raises(ValueError, match="whole number"):
            parser_of(kind)(text)


def test_floats_and_decimals_have_the_forms_of_java():
    texts = ["1.5", "+1.5", ".5", "5.", "1e3", "-1E-3", "0"]
    expected = [1.5, 1.5, 0.5, 5.0, 1000.0, -0.001, 0.0]
    assert [parser_of(Types.DOUBLE())(text) for text in texts] == expected
    assert [float(parser_of(Types.BIG_DEC())(text)) for text in texts] == expected
    assert math.isnan(parser_of(Types.DOUBLE())("NaN"))
    assert [parser_of(Types.FLOAT())(text) for text in ("Infinity", "-Infinity")] == [
        math.inf,
        -math.inf,
    ]
    assert parser_of(Types.DECIMAL(6, 3))(" 1.5 ") == Decimal("1.500")
    for kind in (Types.BIG_DEC(), Types.DECIMAL(6, 3)):
        for text in ("NaN", "Infinity", "1e99999999999999999999"):
            with pytest.raises(ValueError, match="decimal number"):
                parser_of(kind)(text)
    with pytest.raises(ValueError, match="does not fit"):
        parser_of(Types.DECIMAL(6, 3))("1.2345")


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (Types.SQL_DATE(), ["20240131", "2024-W05-3", "2024-1-31", "\uff12024-01-31"]),
        (Types.SQL_TIME(), ["100000", "10", "T10:00", "1:00", "10:00:00.", "10:0\uff10"]),
        (Types.SQL_TIMESTAMP(), ["20240131T100000", "2024-01-31x10:00", "2024-W05-3"]),
        (Types.INSTANT(), ["20240131T100000Z", "1704110400", "2024-01-31 1:00"]),
        (Types.BOOLEAN(), ["1", "yes", "\u00a0true", "t"]),
    ],
    ids=str,
)  # fmt: skip
def test_other_forms_of_dates_times_and_truth_values_are_refused(kind, texts):
    for text in texts:
        with pytest.raises(ValueError, match="expected|[Ii]nvalid"):
            parser_of(kind)(text)


def test_dates_and_times_are_read_in_their_iso_form():
    assert parser_of(Types.SQL_DATE())(" 2024-02-29 ") == dt.date(2024, 2, 29)
    assert parser_of(Types.SQL_TIME())("10:20:30.5Z") == dt.time(10, 20, 30, 500_000)
    stamp = parser_of(Types.SQL_TIMESTAMP())
    assert stamp("2024-01-31 10:00:00.123456789").isoformat() == "2024-01-31T10:00:00.123456"
    assert stamp("2024-01-31T10:00+0100").isoformat() == "2024-01-31T09:00:00"
    assert stamp("2024-01-31").isoformat() == "2024-01-31T00:00:00"


def test_decimals_are_written_without_an_exponent():
    form = formatter_of(Types.DECIMAL(10, 9), zoned=False)
    assert form(Decimal("1E-9")) == "0.000000001"
