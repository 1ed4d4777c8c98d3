"""What goes wrong, and what the program's author is told: the operator, the place, the next step."""

import os
import re
import sys
import threading
from collections import Counter

import pytest

from penstock.common import Encoder, RestartStrategies, Types, WatermarkStrategy
from penstock.connectors.api.base import (
    Boundedness,
    QueueEnumerator,
    ReaderStatus,
    Sink,
    Source,
    SourceReader,
)
from penstock.connectors.file_system import FileSink, FileSource, StreamFormat
from penstock.datastream import MapFunction, StreamExecutionEnvironment
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.spark_host import SparkHost
from penstock.engine.model.errors import (
    ConfigurationError,
    GraphError,
    JobExecutionError,
    NoResourceAvailable,
    PenstockError,
)
from penstock.engine.model.states import JobStatus
from tests.spark.processes import taskmanagers_left
from tests.spark.programs import LINES, environment, expected_counts
from tests.tools.output_files import files_below, lines_in

pytestmark = pytest.mark.spark
NO_WATERMARKS = WatermarkStrategy.no_watermarks()


class Recorder(JobObserver):
    """How often the job restarted, and how many TaskManagers were asked for."""

    def __init__(self) -> None:
        self.restarts = 0
        self.requested = 0

    def on_job_status_changed(self, change) -> None:
        self.restarts += change.status is JobStatus.RESTARTING

    def on_start_task_manager(self, event) -> None:
        self.requested += 1


def recorded(parallelism=1, **settings) -> tuple[StreamExecutionEnvironment, Recorder]:
    recorder = Recorder()
    env = environment(parallelism, **settings)
    return env.use_executor(ClusterExecutor(SparkHost(), recorder)), recorder


def failure_of(env) -> str:
    with pytest.raises(JobExecutionError) as caught:
        env.execute("fails")
    assert not taskmanagers_left()
    return str(caught.value)


# ---------------------------------------------------------------------- restarts


class FailsAtFirst(MapFunction):
    """Raises in attempts below `attempts`."""

    def __init__(self, attempts: int) -> None:
        self.attempts = attempts

    def open(self, runtime_context) -> None:
        self.attempt = runtime_context.get_attempt_number()

    def map(self, value):
        if self.attempt < self.attempts and value == "line":
            raise RuntimeError(f"attempt {self.attempt} gives up")
        return value


def words_to_files(env, folder, fails):
    words = env.from_collection(LINES).rebalance().flat_map(str.split).map(fails).name("Fails")
    sink = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder()).build()
    words.key_by(lambda word: word).map(lambda word: word).sink_to(sink)


def test_a_function_that_fails_once_is_restarted_and_the_files_are_right(spark, tmp_path):
    env, recorder = recorded(2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 50))
    words_to_files(env, tmp_path / "out", FailsAtFirst(1))
    env.execute("restarts")
    files = files_below(tmp_path / "out")
    words = Counter(lines_in(files))
    assert recorder.restarts >= 1
    assert words == expected_counts()
    assert not [path for path in files if path.name.startswith(".")]


def test_when_the_attempts_are_used_up_the_users_traceback_is_shown_and_no_file_is_left(
    spark, tmp_path
):
    env, recorder = recorded(2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 50))
    words_to_files(env, tmp_path / "out", FailsAtFirst(99))
    text = failure_of(env)
    assert recorder.restarts == 2
    assert "RuntimeError: attempt" in text
    assert "gives up" in text
    assert "in operator: Fails" in text
    assert not files_below(tmp_path / "out")


# ---------------------------------------------------------------------- resources


@pytest.mark.parametrize(
    "limit",
    [
        {"penstock.taskmanager.max": "1"},
        pytest.param({"slotmanager.number-of-slots.max": "1"}, marks=pytest.mark.long),
    ],
    ids=list,
)
def test_slots_that_do_not_come_in_time_are_an_error_that_says_what_was_asked(spark, limit):
    env, _ = recorded(3, **{"slot.request.timeout": "300 ms", **limit})
    env.from_collection([1, 2, 3]).rebalance().map(lambda v: v).print()
    text = failure_of(env)
    assert "NoResourceAvailable" in text
    assert "asked for 3 slots" in text
    assert re.search(r"the job holds [01] slots", text)
    assert "slot.request.timeout" in text
    assert "taskmanager.numberOfTaskSlots" in text
    assert "local[4]" in text


# ---------------------------------------------------------------------- known before anything starts


def with_a_lock(env):
    lock = threading.Lock()
    env.from_collection([1]).map(lambda v: (lock, v)[1]).name("Locked").print()


def with_a_missing_file(env):
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/no/such/file")
    env.from_source(source.build(), NO_WATERMARKS, "Absent").print()


def with_parallelism_above_its_maximum(env):
    env.from_collection([1]).map(abs).name("Wide").set_parallelism(3).set_max_parallelism(2).print()


@pytest.mark.parametrize(
    ("build", "error", "says"),
    [
        (with_a_lock, PenstockError, ["Map", "lock", "test_failures.py:"]),
        (with_a_missing_file, ConfigurationError, ["/no/such/file"]),
        (with_parallelism_above_its_maximum, GraphError, ["Wide", "3", "2", "test_failures.py:"]),
        (lambda env: env.from_collection([1]).key_by("x"), TypeError, ["str", "col('x')"]),
        (lambda env: env.from_collection([1]).map(5), TypeError, ["int", "MapFunction"]),
        (lambda env: env.from_collection([1]).sink_to(print), TypeError, ["Sink"]),
        (lambda env: env.set_parallelism(0), PenstockError, ["0"]),
    ],
    ids=lambda case: getattr(case, "__name__", None),
)
def test_what_can_be_known_before_is_said_before_anything_starts(spark, build, error, says):
    env, recorder = recorded(1)
    with pytest.raises(error) as caught:
        build(env)
        env.execute("never starts")
    assert [part for part in says if part not in str(caught.value)] == []
    assert recorder.requested == 0
    assert not taskmanagers_left()


def test_a_job_that_the_master_can_never_hold_is_refused_at_once(spark):
    env, recorder = recorded(9, **{"taskmanager.numberOfTaskSlots": "2"})
    env.from_collection([1]).rebalance().map(abs).print()
    with pytest.raises(
        NoResourceAvailable, match=r"9 slots.*5 TaskManagers of 2 slots.*local\[4\]"
    ):
        env.execute("too large")
    assert recorder.requested == 0


# ---------------------------------------------------------------------- the user's code


class BadOpen(MapFunction):
    def open(self, runtime_context) -> None:
        raise RuntimeError("cannot open")

    def map(self, value):
        return value


class BadClose(BadOpen):
    def open(self, runtime_context) -> None: ...

    def close(self) -> None:
        raise RuntimeError("cannot close")


class BadWriter:
    def write(self, batch, watermark_ms) -> None:
        raise RuntimeError("cannot write")

    def prepare_commit(self):
        return ()

    def close(self) -> None: ...


class BadSink(Sink):
    def create_writer(self, context):
        return BadWriter()


class BadReader(SourceReader):
    def __init__(self, fails_in: str) -> None:
        self.fails_in = fails_in

    def start(self) -> None:
        if self.fails_in == "reader start":
            raise RuntimeError("cannot read: start")

    def poll_next(self):
        if self.fails_in == "poll":
            raise RuntimeError("cannot read: poll")
        if self.fails_in == "sys.exit":
            sys.exit("RuntimeError: cannot read: exit")
        return ReaderStatus.NOTHING_AVAILABLE

    def add_splits(self, splits) -> None: ...
    def notify_no_more_splits(self) -> None: ...


class BadEnumerator(QueueEnumerator):
    def start(self) -> None:
        raise RuntimeError("cannot read: enumerator")


class BadSource(Source):
    def __init__(self, fails_in: str) -> None:
        self.fails_in = fails_in

    @property
    def boundedness(self):
        return Boundedness.BOUNDED

    def create_enumerator(self, context):
        kind = BadEnumerator if self.fails_in == "enumerator" else QueueEnumerator
        return kind(context, [])

    def create_reader(self, context):
        if self.fails_in == "create reader":
            raise RuntimeError("cannot read: create")
        return BadReader(self.fails_in)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda s: s.map(BadOpen()).name("Opens").print(), ["cannot open", "Opens"]),
        pytest.param(
            lambda s: s.map(BadClose()).name("Closes").print(),
            ["cannot close", "Closes"],
            marks=pytest.mark.long,
        ),
        (
            lambda s: s.map(abs).name("Before").key_by(lambda v: 1 // (v - 2)).map(abs).print(),
            ["ZeroDivisionError", "Before", "1 // (v - 2)"],
        ),
        (
            lambda s: (
                s.map(abs).name("Before").key_by(lambda v: sys.exit(f"at {v}")).map(abs).print()
            ),
            ["SystemExit: at ", "Before"],
        ),
        pytest.param(
            lambda s: s.sink_to(BadSink()).name("Out"),
            ["cannot write", "Out"],
            marks=pytest.mark.long,
        ),
        (
            lambda s: (
                s
                .flat_map(lambda v: [threading.Lock() for _ in range(9)])
                .name("Locks")
                .rebalance()
                .map(id)
                .print()
            ),
            ["lock", "Locks"],
        ),
        (
            lambda s: s.map(str, output_type=Types.INT()).name("Typed").rebalance().map(id).print(),
            ["int", "str", "Typed"],
        ),
    ],
    ids=[
        "open",
        "close",
        "key selector",
        "sys.exit in a key selector",
        "sink writer",
        "unpicklable record",
        "wrong type",
    ],
)
def test_an_error_names_its_operator_and_where_it_was_built(spark, build, says):
    env, _ = recorded(2)
    build(env.from_collection([1, 2, 3]))
    text = failure_of(env)
    assert [part for part in says if part not in text] == []
    assert "test_failures.py:" in text.split("built at:")[1].splitlines()[0]


def test_a_process_that_ends_itself_is_reported_with_its_last_words(spark):
    def leave(value):
        os.write(2, b"out of paper\n")
        os._exit(7)

    env, _ = recorded(1)
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.from_collection([1]).map(leave).print()
    text = failure_of(env)
    assert "exit code 7" in text
    assert "out of paper" in text


def test_a_result_that_cannot_be_collected_is_an_error_of_the_collecting_sink(spark):
    env = environment(1)
    env.get_config().enable_object_reuse()  # Else the operator that emits it copies it.
    locks = env.from_collection([1]).map(lambda v: threading.Lock()).name("Locks")
    with locks.execute_and_collect() as rows, pytest.raises(JobExecutionError) as caught:
        list(rows)
    assert "cannot pickle '_thread.lock' object" in str(caught.value)
    assert "in operator: Sink: Data stream collect sink" in str(caught.value)
    assert "Locks" in str(caught.value)


@pytest.mark.parametrize(
    "place",
    [
        "create reader",
        pytest.param("reader start", marks=pytest.mark.long),
        "poll",
        pytest.param("sys.exit", marks=pytest.mark.long),
        "enumerator",
    ],
)
def test_an_error_of_a_source_names_the_source(spark, place):
    env, _ = recorded(1)
    env.from_source(BadSource(place), NO_WATERMARKS, "Own Source").print()
    text = failure_of(env)
    assert "RuntimeError: cannot read" in text
    assert "Own Source" in text
