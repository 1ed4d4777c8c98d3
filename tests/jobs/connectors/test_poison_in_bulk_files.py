"""Records that a bulk format cannot hold: put aside with the record in both modes, or refused with record, column, operator and line."""

import decimal
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from penstock.common import Instant, Row, Types
from penstock.connectors.file_system import BucketAssigner, FileSink
from penstock.datastream import OutputTag, RuntimeExecutionMode
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import JobExecutionError
from penstock.formats.avro import AvroBulkWriters, AvroSchema
from penstock.formats.csv_files import CsvBulkWriters, CsvSchema
from penstock.formats.orc import OrcBulkWriters
from penstock.formats.parquet import AvroParquetWriters, ParquetBulkWriters
from penstock.testing import CollectingSink
from tests.tools.output_files import files_below
from tests.tools.programs.environments import minicluster_environment

BAD = OutputTag("bad")
HALF = "cut \ud83d"
MODES = [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH]
TEXTS = Types.ROW_NAMED(["n", "v"], [Types.LONG(), Types.STRING()])
MAPS = Types.ROW_NAMED(["n", "v"], [Types.LONG(), Types.MAP(Types.STRING(), Types.LONG())])
TIMES = Types.ROW_NAMED(["n", "v"], [Types.LONG(), Types.INSTANT()])
NUMBERS = Types.ROW_NAMED(["n", "v"], [Types.LONG(), Types.LONG()])
EXACT = Types.ROW_NAMED(["n", "v"], [Types.LONG(), Types.DECIMAL(20, 2)])
BYTE_COLUMN = pa.schema([("n", pa.int64()), ("v", pa.int8())])
CENTS = pa.schema([("n", pa.int64()), ("v", pa.decimal128(4, 2))])
NO_NULLS = pa.schema([("n", pa.int64()), pa.field("v", pa.string(), nullable=False)])
AVRO_TEXTS = AvroSchema.parse_string(
    '{"type": "record", "name": "R", "fields": '
    '[{"name": "n", "type": "long"}, {"name": "v", "type": "string"}]}'
)
AVRO_INTS = AvroSchema.parse_string(str(AVRO_TEXTS).replace('"string"', '"int"'))
CSV = CsvSchema.builder().add_number_column("n").add_string_column("v").build()
FAR = Instant.of_epoch_milli(10**15)
PARQUET, ORC = ParquetBulkWriters.for_row_type, OrcBulkWriters.for_row_type
CASES = {
    "parquet, half a surrogate pair": (PARQUET(TEXTS), TEXTS, "fine", HALF),
    "parquet, a key None": (PARQUET(MAPS), MAPS, {"a": 1}, {None: 1}),
    "parquet, an instant out of range": (PARQUET(TIMES), TIMES, Instant.of_epoch_milli(5), FAR),
    "parquet, a number too large": (PARQUET(BYTE_COLUMN), NUMBERS, 127, 128),
    "parquet, too many digits": (
        PARQUET(CENTS), EXACT, decimal.Decimal("99.99"), decimal.Decimal("100.00"),
    ),
    "parquet, no value": (PARQUET(NO_NULLS), TEXTS, "fine", None),
    "orc, half a surrogate pair": (ORC(TEXTS), TEXTS, "fine", HALF),
    "orc, a number too large": (ORC(BYTE_COLUMN), NUMBERS, -128, -129),
    "avro, half a surrogate pair": (
        AvroBulkWriters.for_generic_record(AVRO_TEXTS), None, "fine", HALF,
    ),
    "avro, a number too large": (
        AvroBulkWriters.for_generic_record(AVRO_INTS), None, 2**31 - 1, 2**31,
    ),
    "avro in parquet, half a surrogate pair": (
        AvroParquetWriters.for_generic_record(AVRO_TEXTS), None, "fine", HALF,
    ),
    "csv, half a surrogate pair": (CsvBulkWriters.for_schema(CSV), TEXTS, "fine", HALF),
}  # fmt: skip


def written(folder, name):
    """The numbers of the records in all files."""
    found = []
    for path in map(str, files_below(Path(folder))):
        if name.startswith("csv"):
            found += [int(line.split(",")[0]) for line in Path(path).read_text().splitlines()]
        elif name.startswith("avro,"):
            with Path(path).open("rb") as file:
                found += [record["n"] for record in fastavro.reader(file)]
        elif name.startswith("orc"):
            found += pa.orc.read_table(path).column("n").to_pylist()
        else:
            found += pq.read_table(path).column("n").to_pylist()
    return sorted(found)


def sunk(env, folder, name):
    """Every seventh of 30 records is bad."""
    writers, kind, good, bad = CASES[name]
    rows = env.from_collection(range(30)).map(
        lambda n: Row(n=n, v=bad if n % 7 == 3 else good), kind
    )
    sink = FileSink.for_bulk_format(str(folder), writers)
    sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    return rows.sink_to(sink).name("Files")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_the_good_records_are_in_the_files_and_the_bad_ones_are_put_aside(tmp_path, mode, name):
    env = minicluster_environment(MiniCluster(parallelism=1)).set_runtime_mode(mode)
    letters = CollectingSink()
    sunk(env, tmp_path, name).on_error(BAD).get_side_output(BAD).sink_to(letters)
    env.execute("poison")
    assert written(tmp_path, name) == [n for n in range(30) if n % 7 != 3]
    assert sorted(one.record.n for one in letters.values) == [3, 10, 17, 24]
    assert [one.record.v for one in letters.values] == [CASES[name][3]] * 4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_without_a_policy_the_job_says_which_record_of_which_operator_it_is(tmp_path, mode, name):
    env = minicluster_environment(MiniCluster(parallelism=1)).set_runtime_mode(mode)
    sunk(env, tmp_path, name)
    with pytest.raises(JobExecutionError) as raised:
        env.execute("poison")
    text = str(raised.value)
    assert "Files" in text
    assert "n=3" in text
    assert "'v'" in text or name.startswith(("csv", "avro, half"))
    assert "test_poison_in_bulk_files.py" in text
    assert written(tmp_path, name) == []
