"""Single values from text.

Expectations: Java's Integer.parseInt, Double.parseDouble, BigDecimal and ISO 8601, in ASCII.
"""

import datetime as dt
import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from penstock.common import Row, Types
from penstock.connectors.file_system import StreamFormat
from penstock.formats.csv import (
    CsvBulkWriters,
    CsvReaderFormat,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    CsvSchema,
)
from penstock.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from penstock.formats.text_values import formatter_of, parser_of

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


_NO_JSON = (Types.TUPLE([Types.INT()]), Types.MAP(Types.LIST(Types.INT()), Types.INT()))
_NO_CSV = (*_NO_JSON, Types.MAP(Types.STRING(), Types.INT()), Types.PICKLED_BYTE_ARRAY())


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        *[
            (make, kind)
            for kind in _NO_JSON
            for make in (
                lambda row: JsonRowDeserializationSchema.builder().type_info(row).build(),
                lambda row: JsonRowSerializationSchema.builder().with_type_info(row).build(),
                StreamFormat.json_lines_format,
            )
        ],
        *[
            (make, kind)
            for kind in _NO_CSV
            for make in (
                lambda row: CsvRowDeserializationSchema.Builder(row).build(),
                lambda row: CsvRowSerializationSchema.Builder(row).build(),
                lambda row: CsvReaderFormat.for_schema(_csv_of(row)),
                lambda row: CsvBulkWriters.for_schema(_csv_of(row)),
            )
        ],
    ],
)
def test_a_type_without_a_text_is_refused_when_the_format_is_built_and_not_at_each_record(
    make, kind
):
    with pytest.raises(TypeError, match="field 'bad': "):
        make(Types.ROW_NAMED(["n", "bad"], [Types.INT(), Types.LIST(kind)]))


def _csv_of(row_type):
    builder = CsvSchema.builder()
    for name, kind in zip(row_type.get_field_names(), row_type.get_field_types(), strict=True):
        builder.add_array_column(name, element_type=getattr(kind, "element_type", kind))
    return builder.build()


@pytest.mark.parametrize("at", ["2024-01-02 03:04:05.000006", "0007-01-02 03:04:05", "9999-01-01"])
@pytest.mark.parametrize("make", [Types.TIMESTAMP_LTZ, Types.SQL_TIMESTAMP])
def test_a_moment_is_written_in_utc_and_read_again_in_json_and_csv(at, make):
    row = Types.ROW_NAMED(["at"], [make()])
    moment = datetime.fromisoformat(at)
    if make is Types.TIMESTAMP_LTZ:
        moment = moment.replace(tzinfo=UTC)
    for writer, reader, text in (
        (
            JsonRowSerializationSchema.builder().with_type_info(row).build(),
            JsonRowDeserializationSchema.builder().type_info(row).build(),
            at.replace(" ", "T"),
        ),
        (
            CsvRowSerializationSchema.Builder(row).build(),
            CsvRowDeserializationSchema.Builder(row).build(),
            at,
        ),
    ):
        data = writer.serialize(Row(moment))
        assert text.encode() in data
        assert (b"Z" in data) == (make is Types.TIMESTAMP_LTZ or b"{" in data)
        assert reader.deserialize(data) == Row(at=moment)


def _written(kind, value):
    """What both formats make of a value, and read again."""
    row = Types.ROW_NAMED(["x"], [kind])
    json = JsonRowSerializationSchema.builder().with_type_info(row).build()
    read_json = JsonRowDeserializationSchema.builder().type_info(row).build()
    csv, read_csv = (
        made(row).build()
        for made in (CsvRowSerializationSchema.Builder, CsvRowDeserializationSchema.Builder)
    )
    (many,) = json.serialize_values([Row(value)])
    assert many == json.serialize(Row(value))
    (value_of_json,) = read_json.deserialize(many)
    (value_of_csv,) = read_csv.deserialize(csv.serialize(Row(value)))
    assert value_of_csv == value_of_json
    return value_of_csv


ZONED = datetime.fromisoformat("2024-01-02T03:04:05+02:00")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Types.INT(), True, 1),
        (Types.INT(), 1.5, 1),
        (Types.DOUBLE(), True, 1.0),
        (Types.FLOAT(), 1e39, math.inf),
        (Types.FLOAT(), -1e39, -math.inf),
        (Types.BOOLEAN(), 2, True),
        (Types.SQL_TIME(), ZONED.timetz(), dt.time(3, 4, 5)),
        (Types.SQL_TIMESTAMP(), ZONED, ZONED.replace(tzinfo=None)),
        (Types.SQL_DATE(), ZONED, dt.date(2024, 1, 2)),
        (Types.TIMESTAMP_LTZ(), ZONED, ZONED),
    ],
)
def test_a_schema_of_its_own_writes_what_a_stream_of_its_type_would_have(kind, value, expected):
    assert _written(kind, value) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Types.INT(), 1 << 31),
        (Types.LONG(), 1 << 63),
        (Types.INT(), "5"),
        (Types.INT(), math.nan),
        (Types.STRING(), 5),
        (Types.TIMESTAMP_LTZ(), ZONED.replace(tzinfo=None)),
    ],
)
def test_a_schema_of_its_own_refuses_what_is_not_of_its_type(kind, value):
    row = Types.ROW_NAMED(["n", "x"], [Types.INT(), kind])
    for schema in (
        JsonRowSerializationSchema.builder().with_type_info(row).build(),
        CsvRowSerializationSchema.Builder(row).build(),
    ):
        for write in (schema.serialize, lambda one, to=schema: to.serialize_values([one])):
            with pytest.raises(ValueError, match="field 'x': .*declared type"):
                write(Row(1, value))


def test_keys_of_a_map_are_those_of_its_type_and_none_is_no_key_of_json():
    row = Types.ROW_NAMED(["m"], [Types.MAP(Types.INT(), Types.INT())])
    schema = JsonRowSerializationSchema.builder().with_type_info(row).build()
    assert schema.serialize(Row({True: 1})) == b'{"m":{"1":1}}'
    for write in (schema.serialize, lambda one: schema.serialize_values([one])):
        with pytest.raises(ValueError, match="no key for None"):
            write(Row({None: 1}))
    reader = JsonRowDeserializationSchema.builder().type_info(row).build()
    with pytest.raises(ValueError, match="expected keys that differ as Integer"):
        reader.deserialize(b'{"m":{"1":1,"01":2}}')
