"""Faults of BATCH jobs on real executors: killed ones, lost shuffle files, failing functions, twins of slow tasks.

Whatever happens, the results are those of a run without faults, and each attempt of Spark's is one of ours.
"""

import os
from collections import Counter
from pathlib import Path

import psutil
import pytest

from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.connectors.file_system import BucketAssigner, FileSink
from penstock.datastream import MapFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.model.states import ExecutionState
from tests.spark.processes import executor_jvms
from tests.spark.sessions import LOCAL
from tests.spark.standalone import standalone
from tests.spark.waiting import until_there
from tests.tools.hosting.running_job import control_of

pytestmark = pytest.mark.spark
PATIENCE_S = 60.0


def batch(parallelism=2):
    configuration = Configuration()
    configuration.set_string("pipeline.fixed-job-id", "b" * 32)
    configuration.set_string("penstock.console.progress", "false")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(parallelism).set_runtime_mode(RuntimeExecutionMode.BATCH)


def run(env):
    """The vertices of a job that has ended."""
    client = env.execute_async("faults")
    client.get_job_execution_result().result()
    return control_of(client).master.graph.vertices


def to_files(stream, folder):
    builder = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
    builder = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    stream.map(str, Types.STRING()).sink_to(builder.build())


def files_of(folder):
    """Hidden ones too: nothing may be left behind."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


def attempts_of(vertices, name):
    return [v.execution.attempt_id.attempt for v in vertices if name in v.job_vertex.name]


class Fault:
    """What goes wrong, once, when the number comes by; `mark` None: never."""

    def __init__(self, mark, number) -> None:
        self.mark = mark
        self.number = number

    def __call__(self, value):
        if self.mark is not None and value == self.number and not Path(self.mark).exists():
            Path(self.mark).touch()
            self.happens()
        return value


class KilledExecutor(Fault):
    def happens(self) -> None:
        above = psutil.Process().parents()
        next(one for one in above if "CoarseGrained" in " ".join(one.cmdline())).kill()


class Failure(Fault):
    def happens(self) -> None:
        raise ValueError("only once")


@pytest.mark.parametrize("fault", [KilledExecutor, pytest.param(Failure, marks=pytest.mark.long)])
def test_a_fault_in_a_stage_costs_attempts_and_nothing_else(spark_cluster, tmp_path, fault):
    """What the sinks show is that of a run without faults, byte for byte."""
    runs = {"without": None, "with": str(tmp_path / "mark")}
    for name, mark in runs.items():
        env = batch()
        numbers = env.from_collection(range(1000), Types.LONG()).rebalance()
        to_files(numbers.map(fault(mark, 500), Types.LONG()), tmp_path / name)
        vertices = run(env)
        assert {vertex.state for vertex in vertices} == {ExecutionState.FINISHED}
    assert Path(runs["with"]).exists()
    assert max(attempts_of(vertices, "Map")) > 0
    assert files_of(tmp_path / "without") == files_of(tmp_path / "with")
    lines = b"".join(files_of(tmp_path / "with").values()).split()
    assert Counter(map(int, lines)) == Counter(range(1000))
    assert executor_jvms()


def remove_shuffle_files():
    """Of all executors of this cluster, from a task in one of them."""
    (own, *_) = os.environ["SPARK_LOCAL_DIRS"].split(",")
    removed = 0
    for path in Path(own).parents[1].rglob("shuffle_*.data"):
        path.unlink()
        removed += 1
    assert removed


class LosesWhatItReads(MapFunction):
    """Subtask 0 waits until the others have finished, has all files of the shuffle removed, and fails, once."""

    def __init__(self, folder) -> None:
        self.folder = Path(folder)

    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.others = runtime_context.get_number_of_parallel_subtasks() - 1

    def map(self, value):
        mark = self.folder / "removed"
        if self.subtask == 0 and not mark.exists():
            for other in range(1, self.others + 1):
                until_there(self.folder / f"over-{other}")
            mark.touch()
            remove_shuffle_files()
            raise ValueError("what it reads is gone")
        return value

    def close(self):
        (self.folder / f"over-{self.subtask}").touch()


@pytest.mark.long
def test_lost_shuffle_files_are_made_again_by_further_attempts_of_who_made_them(
    spark_cluster, tmp_path
):
    """Two stages have to be run again; what they deal out in turns then goes to other subtasks than before, of which some have
    finished.
    """
    count = 3000
    env = batch(3)
    source = NumberSequenceSource(1, count)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    dealt = numbers.map(lambda value: value, Types.LONG()).rebalance()
    again = dealt.map(lambda value: value, Types.LONG()).name("Middle").rebalance()
    to_files(again.map(LosesWhatItReads(tmp_path), Types.LONG()).name("Last"), tmp_path / "out")
    vertices = run(env)
    lines = b"".join(files_of(tmp_path / "out").values()).split()
    assert Counter(map(int, lines)) == Counter(range(1, count + 1))
    assert len(files_of(tmp_path / "out")) == 3
    assert {vertex.state for vertex in vertices} == {ExecutionState.FINISHED}
    for name in ("numbers", "Middle", "Last"):
        assert max(attempts_of(vertices, name)) > 0, name


def test_a_function_that_always_fails_is_tried_as_often_as_spark_does(spark_cluster):
    env = batch()
    env.from_collection([1, 2, 3], Types.LONG()).map(lambda value: 1 // (value - 2)).print()
    client = env.execute_async("wrong")
    with pytest.raises(JobExecutionError) as told:
        client.get_job_execution_result().result()
    text = str(told.value)
    assert text.count("ZeroDivisionError") == 1
    assert "attempt 3" in text
    assert "at record:   2" in text
    vertices = control_of(client).master.graph.vertices
    (failed,) = [vertex for vertex in vertices if vertex.state is ExecutionState.FAILED]
    tried = [*failed.history, failed.execution]
    assert [one.state for one in tried] == [ExecutionState.FAILED] * 4
    assert all(one.failure.is_user_code for one in tried)


class SlowFirst(MapFunction):
    """The first attempt of one subtask stands still until a second one has come that far; then both go on."""

    def __init__(self, folder) -> None:
        self.folder = folder

    def open(self, runtime_context):
        self.attempt = runtime_context.get_attempt_number()
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        if self.folder is not None and self.subtask == 1 and value % 100 == 50:
            (Path(self.folder) / f"attempt-{self.attempt}").touch()
            if self.attempt == 0:
                until_there(Path(self.folder) / "attempt-1")
        return value


@pytest.fixture
def speculating(spark_on, tmp_path):
    """Spark runs no twin of a task on the host of the first one, so there are two."""
    with standalone(tmp_path / "spark", ["127.0.0.1", "127.0.0.2"], 2) as master:
        yield spark_on(
            master,
            spark_speculation="true",
            spark_speculation_interval="50ms",
            spark_speculation_quantile="0.3",
            spark_speculation_multiplier="1.0",
            spark_speculation_minTaskRuntime="50ms",
        )
        spark_on(LOCAL)  # leave the master before it goes


@pytest.mark.long
def test_of_two_attempts_at_once_one_wins_and_its_output_is_all_there_is(speculating, tmp_path):
    for name, folder in (("without", None), ("with", str(tmp_path))):
        env = batch(3)
        source = NumberSequenceSource(1, 3000)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "n", Types.LONG())
        to_files(numbers.map(SlowFirst(folder), Types.LONG()), tmp_path / name)
        vertices = run(env)
    assert (tmp_path / "attempt-1").exists()
    assert {vertex.state for vertex in vertices} == {ExecutionState.FINISHED}
    tried = [one.state for vertex in vertices for one in vertex.history]
    assert set(tried) <= {ExecutionState.CANCELED}  # nobody failed: it was a race
    assert files_of(tmp_path / "without") == files_of(tmp_path / "with")
    lines = b"".join(files_of(tmp_path / "with").values()).split()
    assert Counter(map(int, lines)) == Counter(range(1, 3001))
