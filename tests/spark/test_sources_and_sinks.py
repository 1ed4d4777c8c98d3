"""Sources, sinks and windows on Spark, against computations of the plain kind."""

import json
import os
import socket
import threading
from collections import Counter, defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Duration, Encoder, Time, Types, WatermarkStrategy
from penstock.connectors.file_system import FileSink, FileSource, StreamFormat
from penstock.datastream import MapFunction, OutputTag, ProcessFunction, ProcessWindowFunction
from penstock.datastream.columns import col
from penstock.datastream.connectors import DataGeneratorSource
from penstock.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.formats.parquet import ParquetFormat, ParquetWriterFactory
from tests.spark.processes import taskmanagers_left
from tests.spark.programs import environment
from tests.tools.output_files import committed_lines, files_below
from tests.tools.programs.environments import collected
from tests.tools.programs.user_functions import MeanOf, SecondIsTime

pytestmark = pytest.mark.spark
NO_WATERMARKS = WatermarkStrategy.no_watermarks()


def text_files(folder) -> list[str]:
    return committed_lines(folder)


# ---------------------------------------------------------------------- files


class WithSubtask(MapFunction):
    """Two subtasks that wait for each other at a FIFO before they begin."""

    def __init__(self, fifo: str) -> None:
        self.fifo = fifo

    def open(self, runtime_context) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        with open(self.fifo, "rw"[self.subtask], encoding="utf-8"):
            pass

    def map(self, value):
        return self.subtask, value


def test_a_large_text_file_is_split_over_two_subtasks_and_each_line_comes_once(spark, tmp_path):
    lines = [f"{i} {'x' * (i % 50)} ü" for i in range(20_000)]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path / "text")
    )
    stream = environment(2).from_source(source.set_split_size(5_000).build(), NO_WATERMARKS, "text")
    os.mkfifo(tmp_path / "fifo")
    got = collected(stream.map(WithSubtask(str(tmp_path / "fifo"))))
    assert Counter(line for _, line in got) == Counter(lines)
    assert {subtask for subtask, _ in got} == {0, 1}


def test_json_lines_become_rows_and_a_text_sink_writes_each_once(spark, tmp_path):
    records = [{"name": f"n{i % 5}", "value": i, "extra": None} for i in range(500)]
    for part in range(2):
        text = "\n".join(json.dumps(record) for record in records[part::2])
        (tmp_path / f"in{part}").write_text(text)
    row = Types.ROW_NAMED(["name", "value"], [Types.STRING(), Types.LONG()])
    files = [str(tmp_path / "in0"), str(tmp_path / "in1")]
    source = FileSource.for_record_stream_format(StreamFormat.json_lines_format(row), *files)
    env = environment(2)
    rows = env.from_source(source.build(), NO_WATERMARKS, "json")
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    rows.map(lambda r: f"{r.name}={r.value}", Types.STRING()).sink_to(sink)
    env.execute("json")
    assert Counter(text_files(tmp_path / "out")) == Counter(
        f"{record['name']}={record['value']}" for record in records
    )


def test_parquet_goes_through_columns_and_back_to_parquet(spark, tmp_path):
    index = range(10_000)
    table = pa.table({
        "k": [f"key{i % 7}" for i in index],
        "v": [None if i % 11 == 0 else float(i) for i in index],
    })
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=1000)
    source = FileSource.for_bulk_file_format(ParquetFormat(), str(tmp_path / "in.parquet"))
    env = environment(2)
    stream = env.from_source(source.set_split_size(1).build(), NO_WATERMARKS, "parquet")
    chosen = stream.filter(col("v") >= 5000).select("k", half=col("v") / 2).rebalance()
    sink = FileSink.for_bulk_format(str(tmp_path / "out"), ParquetWriterFactory()).build()
    chosen.sink_to(sink)
    env.execute("parquet")
    files = files_below(tmp_path / "out")
    rows = [tuple(row.values()) for path in files for row in pq.read_table(path).to_pylist()]
    expected = [(f"key{i % 7}", i / 2) for i in index if i % 11 and i >= 5000]
    assert sorted(rows) == sorted(expected)


def test_a_monitored_directory_gives_files_that_come_later(spark, tmp_path):
    (tmp_path / "a").write_text("first\n")
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    watching = source.monitor_continuously(Duration.of_millis(100)).build()
    lines = environment(1).from_source(watching, NO_WATERMARKS, "watched")
    with lines.execute_and_collect("watching") as results:
        assert next(results) == "first"
        (tmp_path / ".b").write_text("second\n")
        (tmp_path / ".b").rename(tmp_path / "b")
        assert next(results) == "second"
    assert not taskmanagers_left()


# ---------------------------------------------------------------------- sources that flow


def test_a_socket_gives_its_lines_until_the_server_closes(spark):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall("one\ntwö\n".encode())
                connection.sendall(b"three\nunfinished")

        thread = threading.Thread(target=serve)
        thread.start()
        lines = environment(1).socket_text_stream("127.0.0.1", server.getsockname()[1])
        got = collected(lines.map(str.upper))
        thread.join(5)
    assert got == ["ONE", "TWÖ", "THREE", "UNFINISHED"]


def test_a_rate_limited_generator_keeps_its_rate(spark):
    def stamped(index):
        import time

        return index, time.monotonic()

    source = DataGeneratorSource(stamped, 60, rate_per_second=100)
    got = collected(environment(1).from_source(source, NO_WATERMARKS, "slow"))
    assert [index for index, _ in got] == list(range(60))
    seconds = got[-1][1] - got[0][1]
    assert 0.4 <= seconds <= 5  # 59 intervals of 10 ms; a busy machine may be late, never early


# ---------------------------------------------------------------------- side outputs, union, print


def test_side_outputs_and_union_lose_and_double_nothing(spark):
    tag = OutputTag("odd", Types.LONG())

    class Split(ProcessFunction):
        def process_element(self, value, ctx):
            yield (tag, value) if value % 2 else value

    env = environment(2)
    main = env.from_collection(list(range(1000))).rebalance().process(Split())
    odd = main.get_side_output(tag).rebalance().map(lambda value: -value)
    other = env.from_collection(list(range(5000, 5100))).rebalance()
    got = collected(main.union(odd, other).map(lambda value: value))
    expected = [-i if i % 2 else i for i in range(1000)] + list(range(5000, 5100))
    assert Counter(got) == Counter(expected)


def test_print_tells_the_subtask_and_the_identifier(spark, capfd):
    env = environment(2)
    values = env.from_collection([("a", 1), ("b", 2)], Types.TUPLE([Types.STRING(), Types.INT()]))
    values.rebalance().print("id")
    values.print().set_parallelism(1)
    env.from_collection([None, 1.5, "text"]).print("solo").set_parallelism(1)
    env.execute("prints")
    lines = capfd.readouterr().out.splitlines()
    identified = [line for line in lines if line.startswith("id:")]
    assert {line.split("> ", 1)[1] for line in identified} == {"(a,1)", "(b,2)"}
    assert {line.split("> ", 1)[0] for line in identified} <= {"id:1", "id:2"}
    assert [line for line in lines if line.startswith("(")] == ["(a,1)", "(b,2)"]
    assert [line for line in lines if "solo" in line] == ["solo> None", "solo> 1.5", "solo> text"]


# ---------------------------------------------------------------------- windows

EVENTS = [(f"k{i % 5}", i * 10 - (i * 7919 % 100), i) for i in range(2000)]  # late by 99 ms at most
SLACK = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(100))


class WithWindow(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, list(elements)


def keyed_events(env):
    events = env.from_collection(EVENTS)
    stamped = events.assign_timestamps_and_watermarks(SLACK.with_timestamp_assigner(SecondIsTime()))
    return stamped.rebalance().map(lambda event: event).key_by(lambda event: event[0])


def windows_of(size, slide) -> dict:
    """(key, start) -> values, for every window that an event is in."""
    found = defaultdict(list)
    for key, at, value in EVENTS:
        last = at // slide * slide
        for start in range(last, last - size, -slide):
            found[key, start].append(value)
    return found


def test_tumbling_windows_aggregate_with_their_window(spark):
    windows = keyed_events(environment(2)).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    got = collected(windows.aggregate(MeanOf(2), WithWindow()))
    assert len(got) == len({(key, start) for key, start, _ in got})
    assert {(key, start): means for key, start, means in got} == {
        place: [sum(values) / len(values)] for place, values in windows_of(1000, 1000).items()
    }


def test_sliding_windows_reduce_and_process(spark):
    assigner = SlidingEventTimeWindows.of(Time.seconds(2), Time.milliseconds(500))
    env = environment(2)
    windows = keyed_events(env).window(assigner)
    sums = windows.reduce(lambda a, b: (a[0], 0, a[2] + b[2])).map(lambda s: ("sum", s[0], s[2]))
    lists = windows.process(WithWindow()).map(
        lambda w: ("list", w[0], w[1], sorted(event[2] for event in w[2]))
    )
    got = collected(sums.union(lists))
    expected = windows_of(2000, 500)
    assert Counter(got_sum[1:] for got_sum in got if got_sum[0] == "sum") == Counter(
        (key, sum(values)) for (key, _), values in expected.items()
    )
    assert {(w[1], w[2]): w[3] for w in got if w[0] == "list"} == {
        place: sorted(values) for place, values in expected.items()
    }
    assert len(got) == 2 * len(expected)
