"""Runtime mode BATCH on real Spark: its stages, its shuffle, its retries. Expectations: plain Python over the same data."""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from penstock.common import Encoder, Types
from penstock.connectors.file_system import FileSink
from penstock.datastream import (
    BroadcastProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import MapStateDescriptor
from penstock.engine.hosting.shipping.interpreter import VARIABLE
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.model.states import ExecutionState
from tests.spark.programs import LINES, environment, expected_counts
from tests.spark.sessions import LOCAL
from tests.tools.hosting.running_job import control_of
from tests.tools.output_files import files_below, lines_in

pytestmark = pytest.mark.spark


def batch(parallelism=2, **settings):
    return environment(parallelism, **settings).set_runtime_mode(RuntimeExecutionMode.BATCH)


def first_of(pair):
    return pair[0]


def plus(left, right):
    return left[0], left[1] + right[1]


def pairs_of(line):
    return [(word, 1) for word in line.split()]


def written(folder):
    return Counter(lines_in(files_below(Path(folder))))


@pytest.mark.parametrize("is_typed", [False, True])
def test_a_word_count_emits_each_word_once(spark, tmp_path, is_typed):
    env = batch(3)
    pair = Types.TUPLE([Types.STRING(), Types.INT()]) if is_typed else None
    counts = env.from_collection(LINES).flat_map(pairs_of, pair).key_by(first_of).reduce(plus)
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    counts.map(lambda found: f"{found[0]} {found[1]}", Types.STRING()).sink_to(sink)
    env.execute("word count")
    expected = Counter(f"{word} {count}" for word, count in expected_counts().items())
    assert written(tmp_path) == expected


class Counted:
    """Leaves a mark for each call."""

    def __init__(self, folder, name) -> None:
        self.path = Path(folder) / name

    def __call__(self, value):
        with self.path.open("a") as file:  # one short write appends as a whole
            file.write(f"{value}\n")
        return value


class Split(ProcessFunction):
    def __init__(self, odd) -> None:
        self.odd = odd

    def process_element(self, value, ctx):
        yield (self.odd, value) if value % 2 else value


def test_what_several_read_is_made_once(spark, tmp_path):
    """A diamond, side outputs, a self-join, and two streams to the driver."""
    env = batch(2)
    numbers = env.from_collection(range(100), Types.LONG()).rebalance()
    seen = numbers.map(Counted(tmp_path, "seen"), Types.LONG())
    odd = OutputTag("odd", Types.LONG())
    split = seen.process(Split(odd), Types.LONG())
    left = split.rebalance().map(Counted(tmp_path, "left"), Types.LONG())
    right = split.get_side_output(odd).rebalance().map(Counted(tmp_path, "right"), Types.LONG())
    joined = left.union(right, split).rebalance().map(Counted(tmp_path, "joined"), Types.LONG())
    with joined.union(seen).execute_and_collect() as found:
        results = Counter(found)
    evens, all_numbers = range(0, 100, 2), range(100)
    assert results == Counter([*evens, *all_numbers, *all_numbers])
    calls = {
        name: Counter(map(int, (tmp_path / name).read_text().split()))
        for name in ("seen", "left", "right", "joined")
    }
    assert calls == {
        "seen": Counter(all_numbers),
        "left": Counter(evens),
        "right": Counter(range(1, 100, 2)),
        "joined": Counter([*evens, *all_numbers]),
    }


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING])
def test_functions_find_their_interpreter_in_the_variable_python(spark, mode):
    """As in Flink's workers."""
    env = environment(1).set_runtime_mode(mode)
    env.set_python_executable(sys.executable)
    found = env.from_collection([1]).map(lambda _: os.environ.get(VARIABLE))
    with found.execute_and_collect() as rows:
        assert list(rows) == [sys.executable]


def test_the_users_own_error_is_what_is_told(spark):
    env = batch(2)
    env.from_collection([1, 2, 3]).map(lambda value: 1 / (value - 2)).print()
    with pytest.raises(JobExecutionError) as told:
        env.execute("wrong")
    text = str(told.value)
    assert "ZeroDivisionError: division by zero" in text
    for line in (r"at record:   2", "in task:     Map", "test_batch.py", "attempt 0"):
        assert line in text
    assert "Py4J" not in text


def test_python_workers_are_used_again(spark):
    """Starting one costs half a second in each stage."""

    def process_of(value):
        return os.getpid()

    def run():
        env = batch(1)
        made = env.from_collection([1, 2], Types.LONG()).map(process_of, Types.LONG())
        with made.key_by(lambda pid: 0).process(Reader()).execute_and_collect() as found:
            return {pid for pair in found for pid in pair}

    run()
    known = {one.pid for one in psutil.Process().children(recursive=True)}
    assert run() <= known


class Reader(KeyedProcessFunction):
    """Where the record was made, and where it is read."""

    def process_element(self, value, ctx):
        yield value, os.getpid()


@pytest.mark.parametrize("master", ["spark", pytest.param("spark_cluster", marks=pytest.mark.long)])
def test_the_data_decide_how_many_subtasks_there_are(request, master):
    """From Spark's own statistics of map outputs; each subtask reads several partitions of the shuffle, and all read the broadcast."""
    request.getfixturevalue(master)
    auto = "execution.batch.adaptive.auto-parallelism"
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.get_configuration().set_string(f"{auto}.avg-data-volume-per-task", "4 kb")
    env.get_configuration().set_string(f"{auto}.max-parallelism", "8")
    lines = env.from_collection(LINES, Types.STRING())
    pairs = lines.rebalance().flat_map(pairs_of).rebalance().map(lambda pair: pair)
    counts = pairs.key_by(first_of).reduce(plus, combine=True)
    both = counts.rebalance().connect(counts.broadcast(Total.TOTAL)).process(Total())
    collected = both.execute_and_collect()
    graph = control_of(collected.get_job_client()).master.graph
    with collected as found:
        results = dict(found)
    expected = expected_counts()
    assert results == {word: (count, len(expected)) for word, count in expected.items()}
    subtasks = {one.name.split(" -> ")[0]: len(one.vertices) for one in graph.job_vertices}
    assert subtasks["Source: Collection Source"] == 1
    assert subtasks["FlatMap"] == 8  # 100 kB of lines
    assert subtasks["Map"] == 8
    assert 1 < subtasks["Reduce"] < 8  # each word once from each of eight
    assert {vertex.state for vertex in graph.vertices} == {ExecutionState.FINISHED}


class Total(BroadcastProcessFunction):
    """How many words there are, known before the first record."""

    TOTAL = MapStateDescriptor("total", Types.STRING(), Types.INT())

    def process_element(self, value, ctx):
        yield value[0], (value[1], sum(1 for _ in ctx.get_broadcast_state(self.TOTAL).items()))

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(self.TOTAL).put(*value)


def test_sparks_event_log_shows_two_stages_and_no_taskmanager(spark_on, tmp_path):
    spark_on(
        LOCAL,
        spark_eventLog_enabled="true",
        spark_eventLog_compress="false",
        spark_eventLog_dir=str(tmp_path),
    )
    numbers = batch(2).from_collection(range(1000), Types.LONG())
    sums = numbers.key_by(lambda value: value % 10).reduce(lambda left, right: left + right)
    with sums.execute_and_collect() as found:
        assert sum(found) == sum(range(1000))
    spark_on(LOCAL)  # the log is complete when its session is over
    files = list(tmp_path.rglob("events_*"))
    events = [json.loads(line) for line in lines_in(files)]
    stages = [one for one in events if one["Event"] == "SparkListenerStageCompleted"]
    assert [one["Stage Info"]["Number of Tasks"] for one in stages] == [1, 2]
    tasks = [one for one in events if one["Event"] == "SparkListenerTaskEnd"]
    metrics = [one["Task Metrics"]["Shuffle Write Metrics"] for one in tasks]
    assert sum(one["Shuffle Bytes Written"] for one in metrics) > 0
    jobs = [one for one in events if one["Event"] == "SparkListenerJobStart"]
    assert not [one for one in jobs if "TaskManager" in json.dumps(one["Properties"])]


def twelfth(pair):
    return pair[0], 12 // pair[1]


@pytest.mark.parametrize(
    "mode",
    [
        RuntimeExecutionMode.BATCH,
        pytest.param(RuntimeExecutionMode.STREAMING, marks=pytest.mark.long),
        pytest.param(RuntimeExecutionMode.AUTOMATIC, marks=pytest.mark.long),
    ],
)
def test_poison_records_are_put_aside_in_executors(spark, mode):
    bad = OutputTag("bad")
    env = environment(2).set_runtime_mode(mode)
    dirty = env.from_collection([("a", 1), ("b", 0), ("a", 0), ("b", 3)] * 25)
    quotients = dirty.map(twelfth).name("Twelfth").on_error(bad)
    letters = quotients.get_side_output(bad)
    told = letters.map(lambda one: (one.record, one.error_class, one.operator))
    both = quotients.union(told).execute_and_collect("poison")
    expected = [("a", 12), ("b", 4), *(((key, 0), "ZeroDivisionError", "Twelfth") for key in "ab")]
    assert Counter(both) == Counter(expected * 25)
