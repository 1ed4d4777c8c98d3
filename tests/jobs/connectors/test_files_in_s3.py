"""Whole jobs between buckets, with checkpoints and failures: each record comes out once."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Encoder, RestartStrategies, Row, Types, WatermarkStrategy
from penstock.connectors.file_system import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
    RollingPolicy,
    StreamFormat,
)
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.connectors import NumberSequenceSource
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import ConfigurationError
from penstock.formats.parquet import ParquetBulkWriters, ParquetFormat
from tests.tools.programs.environments import minicluster_environment

LINES = 3000


@pytest.fixture
def env():
    made = minicluster_environment(MiniCluster(parallelism=2))
    made.enable_checkpointing(20)
    made.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 1))
    return made


def failing_at(folder, *numbers):
    """Fails once at each of the numbers. A file tells that it has."""

    def check(value):
        number = int(value)
        if number in numbers and not (folder / str(number)).exists():
            (folder / str(number)).touch()
            raise ValueError("planted")
        return value

    return check


def at_base(builder):
    return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())


def test_lines_of_a_bucket_go_to_a_bucket_once_with_failures_between(env, each_store, tmp_path):
    # By boto3: one of the servers does not understand how Arrow writes.
    with each_store.client() as client:
        for name, numbers in (("a", range(LINES // 2)), ("b", range(LINES // 2, LINES))):
            text = "".join(f"{number}\n" for number in numbers)
            client.put_object(Bucket="bucket", Key=f"in/{name}", Body=text.encode())
    form = StreamFormat.text_line_format()
    source = FileSource.for_record_stream_format(form, each_store.uri("in")).set_split_size(2000)
    rolling = RollingPolicy.default_rolling_policy(part_size=1000)
    builder = FileSink.for_row_format(each_store.uri("out"), Encoder.simple_string_encoder())
    stream = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "lines")
    check = failing_at(tmp_path, LINES // 3, LINES - 1)
    stream.map(check, Types.STRING()).sink_to(at_base(builder).with_rolling_policy(rolling).build())
    env.execute("s3 to s3")
    assert len(list(tmp_path.iterdir())) == 2
    assert sorted(map(int, each_store.lines("out"))) == [*range(LINES)]
    assert all(key.startswith(("in/", "out/part-")) for key in each_store.objects())


def test_no_upload_is_left_behind_a_job(env, object_store, tmp_path):
    numbers = NumberSequenceSource(1, LINES)
    builder = FileSink.for_row_format(object_store.uri("out"), Encoder.simple_string_encoder())
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    check = failing_at(tmp_path, LINES // 2)
    stream.map(check, Types.LONG()).sink_to(at_base(builder).build())
    env.execute("numbers")
    assert sorted(map(int, object_store.lines("out"))) == [*range(1, LINES + 1)]
    assert object_store.uploads() == []


def test_columns_of_parquet_go_through_a_job(env, object_store, tmp_path):
    table = pa.table({"n": list(range(LINES))})
    pq.write_table(table, tmp_path / "n.parquet", row_group_size=100)
    object_store.write("in/n.parquet", (tmp_path / "n.parquet").read_bytes())
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    form = ParquetFormat(type_info=row)
    source = FileSource.for_bulk_file_format(form, object_store.uri("in")).set_split_size(500)
    sink = FileSink.for_bulk_format(object_store.uri("out"), ParquetBulkWriters.for_row_type(row))
    stream = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "columns")
    stream.sink_to(at_base(sink).build())
    env.execute("parquet")
    found = pq.read_table("bucket/out", filesystem=object_store.system)
    assert sorted(found.column("n").to_pylist()) == [*range(LINES)]


@pytest.mark.parametrize("is_batch", [False, True])
def test_partitioned_folders_are_written_with_failures_and_read_back(
    env, object_store, tmp_path, is_batch
):
    if is_batch:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    fields = ["n", "year", "kind"]
    row = Types.ROW_NAMED(fields, [Types.LONG(), Types.INT(), Types.STRING()])
    check = failing_at(tmp_path, *(() if is_batch else (LINES // 2,)))

    def as_row(number):
        check(number)
        return Row(n=number, year=2020 + number % 3, kind=f"k/{number % 2}")

    writers = ParquetBulkWriters.for_row_type(Types.ROW_NAMED(["n"], [Types.LONG()]))
    builder = FileSink.for_bulk_format(object_store.uri("out"), writers)
    builder.with_bucket_assigner(BucketAssigner.field_bucket_assigner("year", "kind"))
    numbers = NumberSequenceSource(1, LINES)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    stream.map(as_row, row).sink_to(builder.build())
    env.execute("written")
    form = ParquetFormat(type_info=Types.ROW_NAMED(["n"], [Types.LONG()]))
    source = FileSource.for_bulk_file_format(form, object_store.uri("out/year=*"))
    of_folders = Types.ROW_NAMED(fields[1:], [Types.INT(), Types.STRING()])
    back = env.from_source(
        source.with_partition_fields(of_folders).build(), WatermarkStrategy.no_watermarks(), "back"
    )
    assert back.get_type() == row
    with back.execute_and_collect("read") as results:
        found = sorted((one.n, one.year, one.kind) for one in results)
    assert found == [(n, 2020 + n % 3, f"k/{n % 2}") for n in range(1, LINES + 1)]


@pytest.mark.parametrize("is_compacting", [False, True])
def test_a_batch_job_writes_each_record_once(env, object_store, is_compacting):
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    builder = FileSink.for_row_format(object_store.uri("out"), Encoder.simple_string_encoder())
    if is_compacting:
        strategy = FileCompactStrategy.builder().set_size_threshold(1).build()
        builder.enable_compact(strategy, FileCompactor.concat_file_compactor())
    numbers = NumberSequenceSource(1, LINES)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    stream.sink_to(at_base(builder).build())
    env.execute("batch")
    assert sorted(map(int, object_store.lines("out"))) == [*range(1, LINES + 1)]
    assert object_store.uploads() == []


def test_a_wrong_bucket_is_said_when_the_job_is_submitted(env, object_store):
    uri = object_store.uri("out").replace("s3://bucket", "s3://no-such-bucket")
    sink = FileSink.for_row_format(uri, Encoder.simple_string_encoder()).build()
    env.from_collection(["a"], Types.STRING()).sink_to(sink)
    with pytest.raises(ConfigurationError, match="FileSink: cannot write to 's3://no-such-bucket"):
        env.execute("wrong")
