"""Whole jobs over files, with checkpoints and a failure: sources one after the other, formats, compacted parts."""

import json

import pytest

from penstock.common import Encoder, RestartStrategies, Row, Types, WatermarkStrategy
from penstock.connectors.file_system import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
    StreamFormat,
    StreamingFileSink,
)
from penstock.connectors.hybrid_source import HybridSource
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.connectors import NumberSequenceSource
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.formats.avro import (
    AvroBulkWriters,
    AvroInputFormat,
    AvroSchema,
    GenericRecordAvroTypeInfo,
)
from penstock.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from tests.tools.programs.environments import minicluster_environment

LINES = 3000


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster(parallelism=2))


def with_checkpoints(env):
    env.enable_checkpointing(20)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
    return env


def fails_once_at(number, marker):
    """The file `marker` tells that it has."""

    def check(value):
        if int(value) == number and not marker.exists():
            marker.touch()
            raise ValueError("planted")
        return value

    return check


def lines(path, name, numbers):
    file = path / name
    file.write_text("".join(f"{number}\n" for number in numbers))
    form = StreamFormat.text_line_format()
    return FileSource.for_record_stream_format(form, str(file)).set_split_size(2000).build()


def visible(path):
    return [one for one in path.rglob("*") if one.is_file() and not one.name.startswith(".")]


def at_base(builder):
    return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())


@pytest.mark.parametrize("failing", [LINES // 2, LINES + LINES // 2])
def test_sources_one_after_the_other_give_each_record_once(env, tmp_path, failing):
    source = (
        HybridSource
        .builder(lines(tmp_path, "first", range(LINES)))
        .add_source(lines(tmp_path, "second", range(LINES, 2 * LINES)))
        .build()
    )
    stream = with_checkpoints(env).from_source(source, WatermarkStrategy.no_watermarks(), "both")
    checked = stream.map(fails_once_at(failing, tmp_path / "failed"), Types.STRING())
    with checked.execute_and_collect("hybrid") as results:
        assert sorted(map(int, results)) == [*range(2 * LINES)]
    assert (tmp_path / "failed").exists()


def test_sources_one_after_the_other_in_a_batch_job(env):
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    source = (
        HybridSource
        .builder(NumberSequenceSource(1, 5))
        .add_source(NumberSequenceSource(6, 9))
        .build()
    )
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "both")
    with stream.execute_and_collect("hybrid") as results:
        assert sorted(results) == [*range(1, 10)]


@pytest.mark.parametrize("is_batch", [False, True])
def test_compacted_files_have_each_record_once(env, tmp_path, is_batch):
    if is_batch:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    else:
        with_checkpoints(env)
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()
    out = tmp_path / "out"
    builder = FileSink.for_row_format(str(out), Encoder.simple_string_encoder())
    builder.enable_compact(strategy, FileCompactor.concat_file_compactor())
    numbers = env.from_source(
        NumberSequenceSource(1, LINES), WatermarkStrategy.no_watermarks(), "numbers"
    )
    check = fails_once_at(LINES - 1, tmp_path / "failed")
    checked = numbers if is_batch else numbers.map(check, Types.LONG())
    checked.sink_to(at_base(builder).build())
    env.execute("compacted")
    found = [int(line) for file in visible(out) for line in file.read_text().splitlines()]
    assert sorted(found) == [*range(1, LINES + 1)]
    assert all(file.name.startswith("compacted-part-") for file in visible(out))
    assert not [one for one in out.iterdir() if one.name.startswith(".")]


def test_the_former_sink_and_files_of_csv(env, tmp_path):
    schema = CsvSchema.builder().add_number_column("id").add_array_column("tags").build()
    there = tmp_path / "there.csv"
    there.write_text("1,a;b\n2,c\n")
    form = CsvReaderFormat.for_schema(schema)
    source = FileSource.for_record_stream_format(form, str(there)).build()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "csv")
    assert rows.get_type() == Types.ROW_NAMED(
        ["id", "tags"], [Types.LONG(), Types.LIST(Types.STRING())]
    )
    twice = rows.map(lambda row: Row(row.id * 2, row.tags), rows.get_type())
    sink = StreamingFileSink.for_bulk_format(
        str(tmp_path / "out"), CsvBulkWriters.for_schema(schema)
    )
    twice.add_sink(at_base(sink).build())
    with_checkpoints(env)
    env.execute("csv")
    text = "".join(file.read_text() for file in visible(tmp_path / "out"))
    assert sorted(text.splitlines()) == ["2,a;b", "4,c"]


def test_generic_records_go_to_a_file_and_come_back(env, tmp_path):
    schema = AvroSchema.parse_string(
        '{"type": "record", "name": "A", "fields": [{"name": "n", "type": "long"}, {"name": "t", "type": "string"}]}'
    )
    records = [{"n": number, "t": f"t{number}"} for number in range(5)]
    typed = env.from_collection(records).map(lambda e: e, GenericRecordAvroTypeInfo(schema))
    sink = FileSink.for_bulk_format(str(tmp_path), AvroBulkWriters.for_generic_record(schema))
    typed.sink_to(at_base(sink).build())
    env.execute("avro out")
    back = env.create_input(AvroInputFormat(str(tmp_path), schema))
    assert back.get_type() == GenericRecordAvroTypeInfo(schema)
    with back.map(json.dumps, Types.STRING()).execute_and_collect("avro in") as results:
        assert sorted(map(json.loads, results), key=lambda one: one["n"]) == records
