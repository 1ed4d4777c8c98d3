"""Buckets by fields: folders `field=value`, read by readers of others."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Encoder, Row, Types
from penstock.connectors.file_system import BucketAssigner, FileSink
from penstock.connectors.files import writer as writer_module
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.formats.avro import AvroBulkWriters, AvroSchema
from penstock.formats.csv import CsvBulkWriters, CsvSchema
from penstock.formats.orc import OrcBulkWriters
from penstock.formats.parquet import AvroParquetWriters, ParquetBulkWriters
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.output_files import files_below

INPUT = Types.ROW_NAMED(["n", "day", "kind"], [Types.LONG(), Types.SQL_DATE(), Types.STRING()])
BY_DAY = BucketAssigner.field_bucket_assigner("day", "kind")


def written(sink, *batches, input_type=INPUT):
    sink.validate_input(input_type)
    writer = sink.create_writer(writer_context(input_type=input_type))
    for batch in batches:
        if isinstance(batch, ColumnBatch):
            writer.write(batch, 0)
        else:
            writer.write_converted(writer.convert(batch), 0)
    sink.create_committer().commit(writer.prepare_commit())
    writer.close()


def test_columns_go_to_folders_that_pyarrow_reads(tmp_path):
    days = [dt.date(2026, 11, 1 + n % 3) for n in range(100)]
    kinds = [None if n % 7 == 0 else f"k/{n % 2}" for n in range(100)]
    data = pa.RecordBatch.from_pydict({"n": range(100), "day": days, "kind": kinds})
    factory = ParquetBulkWriters.for_row_type(Types.ROW_NAMED(["n"], [Types.LONG()]))
    sink = FileSink.for_bulk_format(str(tmp_path), factory).with_bucket_assigner(BY_DAY).build()
    written(sink, ColumnBatch(data.slice(0, 60)), ColumnBatch(data.slice(60)))
    schema = pa.schema([("day", pa.date32()), ("kind", pa.string())])
    table = ds.dataset(tmp_path, partitioning=ds.partitioning(schema, flavor="hive")).to_table()
    assert sorted(table.to_pylist(), key=lambda row: row["n"]) == data.to_pylist()
    assert all(pq.read_schema(path).names == ["n"] for path in files_below(tmp_path))


@given(st.lists(st.tuples(st.integers(0, 3) | st.none(), st.sampled_from("ab")), max_size=40))
def test_each_row_is_in_the_bucket_of_its_values_in_its_order(pairs):
    assigner = BucketAssigner.field_bucket_assigner("i", "s", keeps_fields=True)
    rows = [Row(i=i, s=s, n=n) for n, (i, s) in enumerate(pairs)]
    columns = {name: [row[name] for row in rows] for name in ("i", "s", "n")}
    schema = pa.schema([("i", pa.int64()), ("s", pa.string()), ("n", pa.int64())])
    data = pa.RecordBatch.from_pydict(columns, schema=schema)
    expected: dict[str, list[dict]] = {}
    for row in rows:
        i = "__HIVE_DEFAULT_PARTITION__" if row.i is None else row.i
        expected.setdefault(f"i={i}/s={row.s}", []).append(row.as_dict())
    by_rows = {
        folder: [row.as_dict() for row in part.values]
        for folder, part in assigner.assigned(RowBatch(rows), 0)
    }
    found = assigner.assigned(ColumnBatch(data), 0)
    assert by_rows == expected
    assert {folder: part.data.to_pylist() for folder, part in found} == expected


def test_rows_are_encoded_without_the_fields_of_their_folder(tmp_path):
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    rows = [Row(n=1, day=dt.date(2026, 1, 2), kind="a"), Row(n=2, day=None, kind="")]
    written(sink.with_bucket_assigner(BY_DAY).build(), RowBatch(rows))
    texts = {
        path.removeprefix(str(tmp_path)).rpartition("/")[0]: Path(path).read_text()
        for path in map(str, files_below(tmp_path))
    }
    none = "__HIVE_DEFAULT_PARTITION__"
    assert texts == {"/day=2026-01-02/kind=a": "+I[1]\n", f"/day={none}/kind={none}": "+I[2]\n"}


def test_fields_may_stay_in_the_files(tmp_path):
    schema = CsvSchema.builder().add_number_column("n").add_string_column("kind").build()
    builder = FileSink.for_bulk_format(str(tmp_path), CsvBulkWriters.for_schema(schema))
    assigner = BucketAssigner.field_bucket_assigner("kind", keeps_fields=True)
    sink = builder.with_bucket_assigner(assigner).build()
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch([Row(n=1, kind="a"), Row(n=2, kind="b")]), 0)
    sink.create_committer().commit(writer.prepare_commit())
    assert sorted(Path(path).read_text() for path in files_below(tmp_path)) == ["1,a\n", "2,b\n"]


def test_dicts_have_fields_too():
    assigner = BucketAssigner.field_bucket_assigner("kind")
    ((folder, part),) = assigner.assigned(RowBatch([{"kind": "a", "n": 1}]), 0)
    assert (folder, part.values) == ("kind=a", [{"n": 1}])


@pytest.mark.parametrize(
    ("fields", "input_type", "said"),
    [
        (["dya"], INPUT, "the stream has no field 'dya'"),
        (["value"], Types.STRING(), "the stream has no field 'value': its type is String"),
        (["n", "day", "kind"], INPUT, "nothing is left for the files"),
    ],
)
def test_fields_that_do_not_fit_are_said_at_submit(tmp_path, fields, input_type, said):
    builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    sink = builder.with_bucket_assigner(BucketAssigner.field_bucket_assigner(*fields)).build()
    with pytest.raises(ConfigurationError, match=said):
        sink.validate_input(input_type)


AVRO = AvroSchema.parse_string(
    '{"type": "record", "name": "it", "fields": [{"name": "n", "type": "long"}, '
    '{"name": "kind", "type": "string"}]}'
)
NUMBERED = Types.ROW_NAMED(["n", "kind"], [Types.LONG(), Types.STRING()])
WRITERS = {
    "parquet": ParquetBulkWriters.for_row_type(NUMBERED),
    "orc": OrcBulkWriters.for_row_type(NUMBERED),
    "csv": CsvBulkWriters.for_schema(
        CsvSchema.builder().add_number_column("n").add_string_column("kind").build()
    ),
    "avro": AvroBulkWriters.for_generic_record(AVRO),
    "avro in parquet": AvroParquetWriters.for_generic_record(AVRO),
}


@pytest.mark.parametrize("bulk", WRITERS.values(), ids=WRITERS)
def test_files_whose_type_still_has_the_field_of_the_folder_are_refused_at_submit(tmp_path, bulk):
    builder = FileSink.for_bulk_format(str(tmp_path), bulk)
    sink = builder.with_bucket_assigner(BucketAssigner.field_bucket_assigner("kind")).build()
    with pytest.raises(ConfigurationError) as refused:
        sink.validate_input(NUMBERED)
    for part in ("['n', 'kind']", "have ['n']", "field_bucket_assigner", "keeps_fields=True"):
        assert part in str(refused.value)
    kept = BucketAssigner.field_bucket_assigner("kind", keeps_fields=True)
    builder.with_bucket_assigner(kept).build().validate_input(NUMBERED)


def test_columns_that_are_not_those_of_the_file_are_named():
    columns = ColumnBatch(pa.RecordBatch.from_pydict({"n": [1]}), None)
    with pytest.raises(ConfigurationError, match=r"\['n', 'kind'\], but .* have \['n'\]"):
        WRITERS["parquet"].converted(columns, None)


@pytest.mark.parametrize("fields", [(), ("a", "a"), ("",)])
def test_fields_are_named_once_each(fields):
    with pytest.raises(ConfigurationError, match="expected names of fields, each once"):
        BucketAssigner.field_bucket_assigner(*fields)


@pytest.mark.parametrize("record", [Row(1), Row(n=1), {"n": 1}, "text", 5, ("a",)])
def test_a_record_without_the_field_is_named(record):
    assigner = BucketAssigner.field_bucket_assigner("kind")
    with pytest.raises(UserCodeError, match=r"has not all fields of \['kind'\]"):
        assigner.assigned(RowBatch([record]), 0)


def test_many_buckets_share_a_bounded_number_of_open_files(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "MOST_OPEN", 3)
    assigner = BucketAssigner.field_bucket_assigner("kind")
    builder = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
    sink = builder.with_bucket_assigner(assigner).build()
    input_type = Types.ROW_NAMED(["n", "kind"], [Types.LONG(), Types.STRING()])
    writer = sink.create_writer(writer_context(input_type=input_type))
    for round_ in range(2):
        rows = [Row(n=n + 10 * round_, kind=str(n)) for n in range(10)]
        writer.write(RowBatch(rows), 0)
        assert len(writer._open) == 3
    sink.create_committer().commit(writer.prepare_commit())
    lines = [line for path in files_below(tmp_path) for line in Path(path).read_text().split()]
    assert sorted(lines) == sorted(f"+I[{n}]" for n in range(20))
