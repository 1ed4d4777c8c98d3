"""Jobs with poison records: dead letters go out with the checkpoints of the results, in both runtime modes, also those of sources."""

import gzip
import logging
from collections import Counter

import fastavro
import pytest

from penstock.common import Encoder, Row, Types, WatermarkStrategy
from penstock.connectors.file_system import FileSink, FileSource, StreamFormat
from penstock.datastream import (
    DEAD_LETTER_TYPE,
    ErrorPolicy,
    FiredTimer,
    KeyedProcessFunction,
    OutputTag,
    RuntimeExecutionMode,
)
from penstock.datastream.columns import col
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.runtime.records.dead_letters import Malformed, MarkedRows
from penstock.engine.runtime.sources.contract import SplitBatch
from penstock.formats.avro import AvroFormat, AvroSchema
from penstock.formats.csv_files import CsvReaderFormat, CsvSchema
from penstock.testing import CollectingSink
from tests.tools.output_files import committed_lines
from tests.tools.programs.checkpoint_programs import (
    FailsOnce,
    HeldSource,
    Watcher,
    _Held,
    file_sink,
    restarting_environment,
)
from tests.tools.programs.environments import minicluster_environment

BAD = OutputTag("bad")
HALF = "\ud83d"
PAIR = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
MODES = [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH]


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster(parallelism=2)).set_parallelism(2)


def run(env, stream):
    """The results and the dead letters of a stream on which `on_error(BAD)` was called."""
    results, letters = CollectingSink(), CollectingSink()
    stream.sink_to(results)
    stream.get_side_output(BAD).sink_to(letters)
    client = env.execute_async("poison")
    client.get_job_execution_result().result()
    return results.values, letters.values, client


def poison_counted(client):
    """By operator, over all subtasks."""
    counts = Counter()
    for _, _, io in client.get_task_metrics().result():
        for metric in io.user_metrics:
            if metric.name == "numPoisonRecords" and metric.value:
                counts[metric.operator] += metric.value
    return dict(counts)


# ---------------------------------------------------------------------- both modes


class Timers(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(5)
        yield 12 // value

    def on_timer(self, timestamp, ctx):
        yield "timer", 12 // ctx.get_current_key()


def reduced(a, b):
    return a + b + 0 * (12 // b)


OPERATORS = {
    "map": (lambda ds: ds.map(lambda v: 12 // v), [12, 6, 4, 3], [0, 0]),
    "keyed process": (
        lambda ds: ds.key_by(lambda v: v).process(Timers()),
        [12, 6, 4, 3, *(("timer", n) for n in (12, 6, 4, 3))],
        [0, 0, FiredTimer(0, 5, "EVENT_TIME")],
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OPERATORS)
def test_results_and_letters_are_the_same_in_both_modes(env, mode, name):
    make, expected, poison = OPERATORS[name]
    stream = make(env.set_runtime_mode(mode).from_collection([1, 0, 2, 3, 0, 4])).on_error(BAD)
    results, letters, client = run(env, stream)
    assert sorted(results, key=str) == sorted(expected, key=str)
    assert sorted((one.record for one in letters), key=str) == sorted(poison, key=str)
    assert sum(poison_counted(client).values()) == len(poison)


@pytest.mark.parametrize("mode", MODES)
def test_what_arrow_cannot_hold_crosses_exchanges_and_only_an_operator_on_columns_puts_it_aside(
    env, mode
):
    pairs = [(f"cut {HALF}" if n % 5 == 0 else f"t{n}", n) for n in range(20)]
    typed = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
    rows = env.set_runtime_mode(mode).from_collection(pairs).map(lambda pair: Row(*pair), typed)
    keyed = rows.rebalance().key_by(lambda row: row.k).map(lambda row: row, typed)
    stream = keyed.rebalance().filter(col("n") > 7).on_error(BAD)
    results, letters, _ = run(env, stream)
    kept = [pair for pair in pairs if pair[1] % 5 and pair[1] > 7]
    assert sorted((row.k, row.n) for row in results) == sorted(kept)
    assert sorted(one.record.n for one in letters) == [0, 5, 10, 15]
    assert {one.record.k for one in letters} == {f"cut {HALF}"}


@pytest.mark.parametrize("mode", MODES)
def test_records_without_a_key_are_put_aside_in_both_modes(env, mode):
    numbers = env.set_runtime_mode(mode).from_collection([1, 0, 2, 3, 0, 4])
    keyed = numbers.key_by(lambda v: 12 // v).on_error(BAD)
    results, letters = CollectingSink(), CollectingSink()
    keyed.map(lambda v: v).sink_to(results)
    keyed.get_side_output(BAD).sink_to(letters)
    env.execute("poison")
    assert sorted(results.values) == [1, 2, 3, 4]
    assert [one.record for one in letters.values] == [0, 0]


@pytest.mark.parametrize("mode", MODES)
def test_a_reduce_leaves_poison_records_out_in_both_modes(env, mode):
    numbers = env.set_runtime_mode(mode).from_collection([1, 0, 2, 3, 0, 4])
    stream = numbers.key_by(lambda _: "all").reduce(reduced).on_error(BAD)
    results, letters, _ = run(env, stream)
    assert results[-1] == 10
    assert [one.record for one in letters] == [0, 0]


@pytest.mark.parametrize("mode", MODES)
def test_skipped_records_are_counted_and_a_sample_is_logged(env, mode, caplog):
    caplog.set_level(logging.WARNING)
    results = CollectingSink()
    numbers = env.set_runtime_mode(mode).from_collection([1, 0, 2, 0])
    numbers.map(lambda v: 12 / v).name("Divides").on_error("skip").sink_to(results)
    client = env.execute_async("poison")
    client.get_job_execution_result().result()
    assert sorted(results.values) == [6, 12]
    assert poison_counted(client) == {"Divides": 2}
    (line, *_) = [one for one in caplog.messages if "operator='Divides'" in one]
    assert "ZeroDivisionError: division by zero record=0" in line
    assert "test_poison_records.py:" in line


def test_a_dead_letter_sink_gets_rows(env, tmp_path):
    letters = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    stream = env.from_collection(["1", "x", "2"]).map(int, Types.INT()).name("Parses")
    results = CollectingSink()
    stream.on_error(ErrorPolicy.send_to(letters, only=ValueError)).sink_to(results)
    env.execute("poison")
    assert sorted(results.values) == [1, 2]
    text = "\n".join(committed_lines(tmp_path))
    assert text.startswith("+I[x,ValueError,invalid literal for int() with base 10: 'x',")
    assert DEAD_LETTER_TYPE.get_field_names()[:3] == ["record", "error_class", "error_text"]


def test_a_sink_puts_aside_what_its_encoder_refuses(env, tmp_path):
    stream = env.from_collection([1, b"bytes are not printed", 3]).map(lambda v: v)
    sink = stream.sink_to(file_sink(tmp_path)).on_error(BAD)
    letters = CollectingSink()
    sink.get_side_output(BAD).sink_to(letters)
    env.execute("poison")
    assert sorted(committed_lines(tmp_path)) == ["1", "3"]
    assert [one.record for one in letters.values] == [b"bytes are not printed"]


# ---------------------------------------------------------------------- exactly once


class Breaks:
    """Raises for every third number of a split."""

    def __call__(self, value):
        if value[1] % 3 == 0:
            raise ValueError(f"third {value}")
        return value


def test_after_a_failure_each_dead_letter_is_written_once_as_each_result_is(tmp_path, stage):
    watcher = Watcher(stage)
    env = restarting_environment(
        watcher,
        execution__checkpointing__interval="20 ms",
        execution__checkpointing__dir=str(tmp_path / "checkpoints"),
    )
    source = HeldSource(stage.name, splits=3, count=60, hold=30)
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "held")
    whole = records.map(FailsOnce(stage.name, 40)).disable_chaining()
    good = whole.map(Breaks()).on_error(BAD)
    good.map(str).sink_to(file_sink(tmp_path / "good"))
    letters = good.get_side_output(BAD)
    letters.map(lambda one: str(one.record)).sink_to(file_sink(tmp_path / "bad"))
    client = env.execute_async("poison")
    client.get_job_execution_result().result()
    assert stage.failed.is_set()
    assert watcher.restored[0] is not None, "it began anew"
    every = [(split, number) for split in range(3) for number in range(60)]
    assert sorted(committed_lines(tmp_path / "good")) == sorted(
        str(one) for one in every if one[1] % 3
    )
    assert sorted(committed_lines(tmp_path / "bad")) == sorted(
        str(one) for one in every if not one[1] % 3
    )


class _Marking(_Held):
    """Cannot decode every third number."""

    def poll_next(self):
        polled = super().poll_next()
        if isinstance(polled, SplitBatch) and polled.batch.values[0][1] % 3 == 0:
            error = ValueError("third")
            marks = [Malformed(value, error, error) for value in polled.batch.values]
            polled.batch = MarkedRows(marks)
        return polled


class MalformedSource(HeldSource):
    def create_reader(self, context):
        return _Marking(self, context)


def test_after_a_failure_each_malformed_record_of_a_source_is_written_once(tmp_path, stage):
    watcher = Watcher(stage)
    env = restarting_environment(
        watcher,
        execution__checkpointing__interval="20 ms",
        execution__checkpointing__dir=str(tmp_path / "checkpoints"),
    )
    source = MalformedSource(stage.name, splits=3, count=60, hold=30)
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "held").on_error(BAD)
    records.map(FailsOnce(stage.name, 41)).map(str).sink_to(file_sink(tmp_path / "good"))
    letters = records.get_side_output(BAD)
    letters.map(lambda one: str(one.record)).sink_to(file_sink(tmp_path / "bad"))
    client = env.execute_async("poison")
    client.get_job_execution_result().result()
    assert stage.failed.is_set()
    assert watcher.restored[0] is not None, "it began anew"
    every = [(split, number) for split in range(3) for number in range(60)]
    good = sorted(str(one) for one in every if one[1] % 3)
    assert sorted(committed_lines(tmp_path / "good")) == good
    bad = sorted(str(one) for one in every if not one[1] % 3)
    assert sorted(committed_lines(tmp_path / "bad")) == bad


# ---------------------------------------------------------------------- formats


NO_UTF_8 = b'{"k": "\xff", "n": 3}'


def json_lines(path, type_info):
    path.write_bytes(
        b'{"k": "\xc3\xa4", "n": 1}\noops\r\n{"k": "b", "n": 2}\n' + NO_UTF_8 + b"\n[1\n"
    )
    return StreamFormat.json_lines_format(type_info), ["oops", NO_UTF_8, "[1"]


def zipped_json_lines(path):
    path.write_bytes(gzip.compress(b'{"n": 1}\n' + NO_UTF_8 + b'\n{"n": 2}'))
    return StreamFormat.json_lines_format(), [NO_UTF_8]


def csv(path):
    path.write_bytes(b"a,1\nb,x\nc\n\xff,4\nd,2\n")
    schema = CsvSchema.builder().add_string_column("k").add_number_column("n").build()
    return CsvReaderFormat.for_schema(schema), ["b,x", "c", b"\xff,4"]


FILES = {
    "JSON": lambda path: json_lines(path, None),
    "JSON of rows": lambda path: json_lines(path, PAIR),
    "zipped JSON": zipped_json_lines,
    "CSV": csv,
}
FILE_NAMES = {"zipped JSON": "in.gz"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FILES)
def test_malformed_lines_are_put_aside_and_the_others_are_read(env, tmp_path, name, mode):
    path = tmp_path / FILE_NAMES.get(name, "in")
    form, malformed = FILES[name](path)
    source = FileSource.for_record_stream_format(form, str(path)).build()
    env.set_runtime_mode(mode)
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").on_error(BAD)
    results, letters, client = run(env, rows)
    assert sorted(row["n"] for row in results) == [1, 2]
    assert [one.record for one in letters] == malformed
    assert all(str(path) in one.error_text for one in letters)
    assert poison_counted(client) == {"Source: lines": len(malformed)}


@pytest.mark.parametrize("name", FILES)
def test_without_a_policy_a_malformed_line_fails_the_job(env, tmp_path, name):
    path = tmp_path / FILE_NAMES.get(name, "in")
    form, malformed = FILES[name](path)
    source = FileSource.for_record_stream_format(form, str(path)).build()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").print()
    with pytest.raises(JobExecutionError, match="cannot be read as") as caught:
        env.execute("poison")
    first = malformed[0]
    shown = repr(first) if isinstance(first, bytes) else first.split(",", maxsplit=1)[0]
    assert shown in str(caught.value)


USER = '{"type": "record", "name": "User", "fields": [{"name": "n", "type": "int"}]}'


def behind_number(data, at):
    """The place behind a number in Avro's coding."""
    while data[at] & 0x80:
        at += 1
    return at + 1


def test_a_damaged_block_of_an_avro_file_is_put_aside_and_the_others_are_read(env, tmp_path):
    schema = AvroSchema.parse_string(USER)
    path = tmp_path / "users.avro"
    records = [{"n": 1000 + number} for number in range(300)]
    with path.open("wb") as file:
        fastavro.writer(file, schema.parsed(), records, codec="deflate", sync_interval=200)
    with path.open("rb") as file:
        blocks = [(one.offset, one.num_records) for one in fastavro.block_reader(file)]
    offset, lost = blocks[1]
    data = bytearray(path.read_bytes())
    begin = behind_number(data, behind_number(data, offset))
    data[begin : begin + 4] = b"\xff" * 4  # no kind of deflated block
    path.write_bytes(data)
    source = FileSource.for_record_stream_format(AvroFormat(schema), str(path)).build()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "users").on_error(BAD)
    results, letters, _ = run(env, rows)
    (letter,) = letters
    assert letter.record.startswith(f"{path}: the last {lost} records of the block before byte ")
    first = blocks[0][1]
    assert results == records[:first] + records[first + lost :]
