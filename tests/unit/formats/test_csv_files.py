"""Files of CSV: values from the rules of Jackson's CsvSchema and PyFlink's CsvSchemaBuilder."""

import codecs
import csv
import gzip
import io
import pickle
from datetime import datetime
from decimal import Decimal

import pytest

from penstock.common import Instant, Row, Types
from penstock.connectors.file_system import BucketAssigner, FileSink, FileSource
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.operator import Accepts
from penstock.engine.runtime.records.dead_letters import Malformed
from penstock.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from penstock.formats.csv_files import _Column
from penstock.formats.csv_values import Form
from tests.tools.connectors.played_by_hand import all_values, run_source, writer_context


def columns():
    return (
        CsvSchema
        .builder()
        .add_number_column("id")
        .add_string_column("name")
        .add_boolean_column("new")
        .add_number_column("price", Types.BIG_DEC())
        .add_array_column("sizes", "#", Types.INT())
    )


def read(tmp_path, text, schema):
    path = tmp_path / "data.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    form = CsvReaderFormat.for_schema(schema)
    return all_values(run_source(FileSource.for_record_stream_format(form, str(path)).build()))


def write(tmp_path, values, schema):
    sink = (
        FileSink
        .for_bulk_format(str(tmp_path), CsvBulkWriters.for_schema(schema))
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    assert sink.accepts is Accepts.ROWS
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(values), 0)
    prepared = writer.prepare_commit()
    sink.create_committer().commit(prepared)
    with open(prepared[0][1], newline="") as file:
        return file.read()


ROWS = [
    Row(id=1, name="a,b", new=True, price=Decimal("1.50"), sizes=[1, 2]),
    Row(id=-2, name='"q"\nend', new=False, price=Decimal(0), sizes=None),
]
TEXT = '1,"a,b",true,1.50,"1#2"\n-2,"""q""\nend",false,0,\n'


def test_records_are_rows_of_the_columns_types(tmp_path):
    schema = columns().build()
    assert schema.size() == columns().size() == 5
    assert read(tmp_path, TEXT, schema) == ROWS
    assert CsvReaderFormat.for_schema(schema).produced_type == Types.ROW_NAMED(
        ["id", "name", "new", "price", "sizes"],
        [
            Types.LONG(),
            Types.STRING(),
            Types.BOOLEAN(),
            Types.BIG_DEC(),
            Types.LIST(Types.INT()),
        ],
    )


def test_rows_are_written_as_they_are_read(tmp_path):
    schema = columns().build()
    assert write(tmp_path, ROWS, schema) == TEXT
    assert write(tmp_path / "tuples", [tuple(row) for row in ROWS], schema) == TEXT


def test_everything_can_be_set(tmp_path):
    schema = (
        CsvSchema
        .builder()
        .add_string_column("a")
        .add_array_column("b")
        .set_column_separator("|")
        .set_quote_char("'")
        .set_escape_char("\\")
        .set_null_value("n/a")
        .set_line_separator("\r\n")
        .set_use_header()
        .set_strict_headers()
        .set_skip_first_data_row()
        .set_allow_comments()
        .build()
    )
    text = "#first\na|b\nskipped|\n'x|\\'y'|1;2\n# no record\n'\n# text'|n/a\n"
    assert read(tmp_path, text, schema) == [
        Row(a="x|'y", b=["1", "2"]),
        Row(a="\n# text", b=None),
    ]
    assert write(tmp_path, [("x|'y", ["1", "2"]), (None, [])], schema) == (
        "'a'|'b'\r\n'x|''y'|'1;2'\r\nn/a|\r\n"
    )


def test_what_was_set_can_be_taken_back(tmp_path):
    builder = (
        columns()
        .clear_columns()
        .add_columns_from(CsvSchema.builder().add_string_column("a").add_array_column("b").build())
    )
    assert builder.size() == 2
    builder.set_quote_char("'").disable_quote_char().set_escape_char("!").disable_escape_char()
    builder.remove_array_element_separator(1)
    assert read(tmp_path, "'x!',1;2\n", builder.build()) == [Row(a="'x!'", b=["1;2"])]


@pytest.mark.parametrize(
    ("set_it", "expected"),
    [
        (lambda builder: builder.set_array_element_separator("/"), ["1", "2;3"]),
        (lambda builder: builder.disable_array_element_separator(), ["1/2;3"]),
    ],
)
def test_the_separator_of_a_file_is_for_arrays_that_have_none_of_their_own(
    tmp_path, set_it, expected
):
    own = CsvSchema.builder().add_array_column("a", ";").add_array_column("b", None)
    schema = set_it(own).build()
    assert read(tmp_path, "1/2;3,1/2;3\n", schema) == [Row(a=["1/2", "3"], b=expected)]


def test_fields_behind_the_last_column_need_a_name(tmp_path):
    builder = CsvSchema.builder().add_string_column("a")
    with pytest.raises(
        UserCodeError, match=r"data\.csv: the record that ends at line 2 .* mismatch"
    ):
        read(tmp_path, "x\ny,z\n", builder.build())
    schema = builder.set_any_property_name("rest").build()
    assert read(tmp_path, "x\ny,z\n", schema) == [Row(a="x"), Row(a="y")]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1,a,true,1.5\n", "5 fields expected but was 4"),
        ("x,a,true,1.5,\n", "field 'id'"),
        ("1,a,maybe,1.5,\n", "field 'new'"),
        ('1,"a,true,1.5,\n', "unexpected end"),
        (b"1,\xff,true,1.5,\n", "can't decode"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, text, what):
    with pytest.raises(UserCodeError, match=rf"data\.csv: .*\(id: Long, .*{what}"):
        read(tmp_path, text, columns().build())


def test_a_strict_header_has_the_columns_names(tmp_path):
    builder = CsvSchema.builder().add_string_column("a").set_use_header()
    assert read(tmp_path, "b\nx\n", builder.build()) == [Row(a="x")]
    with pytest.raises(UserCodeError, match=r"the header has \['b'\], but the schema has \['a'\]"):
        read(tmp_path, "b\nx\n", builder.set_strict_headers().build())
    assert read(tmp_path, "", builder.build()) == []


def test_compressed_files_and_many_records_are_read(tmp_path):
    schema = CsvSchema.builder().add_number_column("n", Types.INT()).build()
    text = "".join(f"{number}\n" for number in range(10_000))
    (tmp_path / "data.csv.gz").write_bytes(gzip.compress(text.encode()))
    form = pickle.loads(pickle.dumps(CsvReaderFormat.for_schema(schema)))
    path = str(tmp_path / "data.csv.gz")
    found = all_values(run_source(FileSource.for_record_stream_format(form, path).build()))
    assert [row[0] for row in found] == [*range(10_000)]


def test_wrong_settings_are_refused():
    builder = CsvSchema.builder()
    with pytest.raises(ConfigurationError, match="no columns"):
        builder.build()
    with pytest.raises(TypeError, match="a number type"):
        builder.add_number_column("a", Types.STRING())
    with pytest.raises(TypeError, match=r"Types\.INT\(\) for PyFlink's DataTypes\.INT\(\)"):
        builder.add_array_column("a", ";", "INT")
    with pytest.raises(ConfigurationError, match="one character"):
        builder.set_column_separator("||")
    with pytest.raises(ConfigurationError, match="no column 0"):
        builder.remove_array_element_separator(0)
    with pytest.raises(ConfigurationError, match="'a' already"):
        builder.add_string_column("a").add_string_column("a")
    for kind in (CsvReaderFormat, CsvBulkWriters):
        with pytest.raises(TypeError, match="takes a CsvSchema"):
            kind.for_schema("a,b")


LINES = CsvSchema.builder().add_number_column("n", Types.INT()).add_string_column("s").build()


def test_fields_have_any_size_and_the_programs_own_csv_keeps_its_limit(tmp_path):
    limit = csv.field_size_limit()
    inner = "\n".join(f"{n},inner" for n in range(20_000))
    rows = [Row(1, "x" * 131_073), Row(2, inner), Row(3, "y" * 1_000_000), Row(4, "z")]
    text = write(tmp_path, rows, LINES)
    assert [tuple(row) for row in read(tmp_path, text, LINES)] == list(map(tuple, rows))
    assert csv.field_size_limit() == limit
    with pytest.raises(csv.Error, match="field larger than field limit"):
        list(csv.reader(["x" * (limit + 1)]))


@pytest.mark.parametrize(
    "text", ["1,a\r\n2,b\r\n", '1,"a"\n2,b\n', "# by hand\n1,a\n2,b\n", "\n1,a\n2,b"]
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_byte_order_mark_is_no_data(tmp_path, text, pack):
    schema = CsvSchema.builder().add_columns_from(LINES).set_allow_comments().build()
    data = codecs.BOM_UTF8 + text.encode()
    assert [tuple(row) for row in read(tmp_path, pack(data), schema)] == [(1, "a"), (2, "b")]


def test_a_byte_order_mark_before_a_strict_header_or_a_quote_is_no_data_and_elsewhere_it_is(
    tmp_path,
):
    builder = CsvSchema.builder().add_string_column("n").add_string_column("s")
    text = '\ufeff"x,1",y\n\ufeffz,w\n'
    assert [tuple(one) for one in read(tmp_path, text, builder.build())] == [
        ("x,1", "y"), ("\ufeffz", "w"),
    ]  # fmt: skip
    strict = builder.set_use_header().set_strict_headers().build()
    assert [tuple(one) for one in read(tmp_path, "\ufeffn,s\nx,y\n", strict)] == [("x", "y")]
    assert read(tmp_path, "\ufeff", builder.build()) == []


@pytest.mark.parametrize(
    "bad",
    [
        '2,"a"b',
        '2,"a"b,"5,inner\n6,inner"',
        '2,"a\n5,inner"b,"6,inner\n7,inner"',
        '2,x,"5,inner\n6,inner"',
        '2_0,"5,inner\n6,inner"',
        '2,"a"\udcffb,"5,inner\n6,inner"',
    ],
)
def test_a_record_that_is_no_csv_ends_where_its_last_field_ends(tmp_path, bad):
    data = f"1,a\n{bad}\n3,c\n4,é\n".encode("utf-8", "surrogateescape")
    path = tmp_path / "data.csv"
    path.write_bytes(data)
    form = CsvReaderFormat.for_schema(LINES)
    (piece,) = form.pieces(str(path), 1 << 20)
    (batch,) = form.read(piece)
    first, malformed, *others = batch.values
    assert [tuple(one) for one in (first, *others)] == [(1, "a"), (3, "c"), (4, "é")]
    assert isinstance(malformed, Malformed)
    raw = malformed.raw if isinstance(malformed.raw, bytes) else malformed.raw.encode()
    assert raw == bad.encode("utf-8", "surrogateescape")


def test_half_a_surrogate_pair_has_no_csv_and_is_refused_with_its_record():
    writer = CsvBulkWriters.for_schema(LINES).create(io.BytesIO(), None)
    with pytest.raises(ValueError, match=r"cannot be written as CSV: .*Row\(2, 'cut"):
        writer.write(RowBatch([Row(1, "a"), Row(2, "cut \ud83d")]))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Types.STRING(), ["a", "", "b"]),
        (Types.STRING(), ["\ufeffx", "\ufeff", "#no comment", "y"]),
        (Types.LONG(), [1, None, 2]),
        (Types.BIG_DEC(), [None, Decimal(1)]),
        (Types.LIST(Types.INT()), [[1], None]),
        (Types.INSTANT(), [Instant(-50_000_000_000, 5), Instant(-60_000_000_000, 0), None]),
        (
            Types.SQL_TIMESTAMP(),
            [
                datetime.fromisoformat("0001-02-03 04:00"),
                datetime.fromisoformat("0999-01-01 00:00:00.000007"),
                None,
            ],
        ),
    ],
)
@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize("width", [1, 2])
def test_no_value_makes_a_line_that_is_no_record(tmp_path, kind, values, delimiter, width):
    form = Form(delimiter=delimiter, allows_comments=True)
    names = ["\ufeffx", "y"][:width]
    schema = CsvSchema(
        tuple(_Column(name, kind) for name in names), form, has_header=True, is_header_strict=True
    )
    rows = [(value,) * width for value in values]
    assert [
        tuple(one)
        for one in read(tmp_path, write(tmp_path, [Row(*one) for one in rows], schema), schema)
    ] == rows


def test_an_empty_only_field_without_quotes_is_refused():
    schema = CsvSchema.builder().add_string_column("s").disable_quote_char().build()
    writer = CsvBulkWriters.for_schema(schema).create(io.BytesIO(), None)
    for text in ("", "\ufeff"):
        with pytest.raises(ValueError, match="would not be read as a record"):
            writer.write(RowBatch([Row(text)]))


@pytest.mark.parametrize("charset", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_of_utf_16_or_32_is_refused_by_name(tmp_path, charset, pack):
    with pytest.raises(UserCodeError, match=r"data\.csv: a CSV file has to be in UTF-8"):
        read(tmp_path, pack("\ufeff1,a\n".encode(charset)), LINES)
