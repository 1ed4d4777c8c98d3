"""Partitioned folders: as pyarrow's and Spark's Hive layout has them."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, RowKind, Types
from penstock.connectors.file_system import FileSource, StreamFormat
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.formats.avro import AvroFormat, AvroSchema
from penstock.formats.file_format import FilePiece
from penstock.formats.parquet import ParquetFormat
from penstock.formats.partition_folders import PartitionedFormat, folder_of, without_fields
from tests.tools.connectors.played_by_hand import all_values, run_source

DATE = Types.ROW_NAMED(["year", "month"], [Types.INT(), Types.STRING()])
TEXT = StreamFormat.text_line_format()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2026, "2026"),
        (-1.5, "-1.5"),
        (True, "true"),
        (None, "__HIVE_DEFAULT_PARTITION__"),
        ("", "__HIVE_DEFAULT_PARTITION__"),
        ("a b", "a b"),
        ("a/b=c", "a%2Fb%3Dc"),
        ("50%", "50%25"),
        ("ä:?*", "ä%3A%3F%2A"),
        (dt.date(2026, 11, 1), "2026-11-01"),
        (dt.datetime.fromisoformat("2026-11-01 10:00"), "2026-11-01 10%3A00%3A00"),
        (Decimal("1.50"), "1.50"),
    ],
)
def test_a_value_is_written_as_hive_writes_it(value, text):
    assert folder_of(["f"], [value]) == f"f={text}"


@given(st.text(min_size=1, max_size=20).filter(lambda text: text != "__HIVE_DEFAULT_PARTITION__"))
def test_any_text_comes_back_from_its_folder(text):
    form = PartitionedFormat(TEXT, Types.ROW_NAMED(["t"], [Types.STRING()]))
    assert form._values(f"/base/{folder_of(['t'], [text])}/file") == [text]


def put(folder, path, text):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def source_of(form, path, fields=DATE):
    return (
        FileSource.for_record_stream_format(form, str(path)).with_partition_fields(fields).build()
    )


def test_lines_become_rows_with_the_fields_of_their_folders(tmp_path):
    put(tmp_path, "year=2026/month=11/a", "one\ntwo\n")
    put(tmp_path, "year=2027/month=__HIVE_DEFAULT_PARTITION__/b", "three\n")
    source = source_of(TEXT, tmp_path)
    assert source.produced_type == Types.ROW_NAMED(
        ["value", "year", "month"], [Types.STRING(), Types.INT(), Types.STRING()]
    )
    assert all_values(run_source(source)) == [
        Row(value="one", year=2026, month="11"),
        Row(value="two", year=2026, month="11"),
        Row(value="three", year=2027, month=None),
    ]


@pytest.mark.parametrize("as_columns", [False, True])
def test_columns_and_rows_get_them_behind_their_own_and_folders_count(tmp_path, as_columns):
    """A field that the file has, too, is the folder's."""
    own = Types.ROW_NAMED(["n", "year"], [Types.LONG(), Types.LONG()])
    put(tmp_path, "year=2026/month=11/a", '{"n": 1, "year": 9}\n{"n": 2, "year": 9}\n')
    form = StreamFormat.json_lines_format(own if as_columns else None)
    source = source_of(form, tmp_path)
    rows = [
        one.as_dict() if isinstance(one, Row) else one for one in all_values(run_source(source))
    ]
    assert rows == [{"n": n, "year": 2026, "month": "11"} for n in (1, 2)]
    if as_columns:
        assert source.produced_type == Types.ROW_NAMED(
            ["n", "year", "month"], [Types.LONG(), Types.INT(), Types.STRING()]
        )


def test_what_pyarrow_has_partitioned_is_read(tmp_path):
    table = pa.table({
        "n": list(range(6)),
        "year": [2026, 2027] * 3,
        "month": ["1/2", "ä b", "3"] * 2,
    })
    schema = pa.schema([("year", pa.int32()), ("month", pa.string())])
    ds.write_dataset(
        table, tmp_path, format="parquet", partitioning=ds.partitioning(schema, flavor="hive")
    )
    found = all_values(run_source(source_of(ParquetFormat(), tmp_path), 2))
    assert sorted(found, key=lambda one: one["n"]) == table.to_pylist()


def test_columns_of_a_declared_type_have_the_declared_order(tmp_path):
    (tmp_path / "month=1" / "year=5").mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), tmp_path / "month=1" / "year=5" / "f.parquet")
    form = ParquetFormat(type_info=Types.ROW_NAMED(["n"], [Types.LONG()]))
    ((batch,),) = run_source(source_of(form, tmp_path))
    assert batch.data.schema.names == ["n", "year", "month"]
    assert batch.data.schema.field("year").type == pa.int32()


def test_rows_keep_their_kinds_and_lines_that_cannot_be_read_stay_marked(tmp_path):
    row = Row.of_kind(RowKind.DELETE, n=1, year=2)
    left = without_fields(row, frozenset(["year"]))
    assert (left.as_dict(), left.get_row_kind()) == ({"n": 1}, RowKind.DELETE)
    put(tmp_path, "year=2026/month=11/a", "{}\n{\n")
    form = PartitionedFormat(StreamFormat.json_lines_format(), DATE)
    path = str(tmp_path / "year=2026" / "month=11" / "a")
    (batch,) = form.read(FilePiece(path, 0, None, 5))
    assert batch.values[0] == {"year": 2026, "month": "11"}
    assert "cannot be read as JSON" in str(batch.values[1].failure)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("month=11/a", r"it lies in no folder 'year=\.\.\.'.* in its path are \['month'\]"),
        (
            "year=no/month=11/a",
            "the folder 'year=no' has no value of the type Integer: expected a whole",
        ),
        ("year=3000000000/month=1/a", "does not fit into"),
    ],
)
def test_a_file_elsewhere_is_named(tmp_path, path, said):
    put(tmp_path, path, "x\n")
    with pytest.raises(UserCodeError, match=said):
        run_source(source_of(TEXT, tmp_path))


def test_what_gets_no_fields_is_refused_when_the_source_is_made():
    with pytest.raises(ConfigurationError, match="whose values no folder's name can hold: l:"):
        source_of(TEXT, "x", Types.ROW_NAMED(["l"], [Types.LIST(Types.INT())]))
    with pytest.raises(TypeError, match="expected a row type"):
        source_of(TEXT, "x", Types.INT())
    schema = AvroSchema.parse_string('{"type": "record", "name": "A", "fields": []}')
    with pytest.raises(ConfigurationError, match="get no fields"):
        source_of(AvroFormat(schema), "x")
