"""A TaskManager process or an executor JVM dies in the middle of a bounded job: the file result is right.

`PENSTOCK_CHAOS_RUNS` repeats each test (default 1; the release gate runs 10).
"""

import os
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from penstock.common import Encoder
from penstock.connectors.file_system import FileSink
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.spark_host import SparkHost
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.model.states import ExecutionState, JobStatus
from tests.spark.processes import executor_jvms, taskmanagers_left
from tests.spark.programs import LINES, environment, expected_counts, last_counts
from tests.tools.output_files import committed_lines

pytestmark = [pytest.mark.spark, pytest.mark.chaos]
RUNS = range(int(os.environ.get("PENSTOCK_CHAOS_RUNS", "1")))


class Watcher(JobObserver):
    """Remembers restarts and tells when a subtask has finished."""

    def __init__(self) -> None:
        self.restarts = 0
        self.lost: list[str] = []
        self.finished = threading.Event()

    def on_job_submitted(self, event) -> None:
        self.job_graph = event.job_graph

    def on_job_status_changed(self, change) -> None:
        self.restarts += change.status is JobStatus.RESTARTING

    def on_task_manager_lost(self, event) -> None:
        self.lost.append(event.cause)

    def on_execution_state_changed(self, change) -> None:
        name = self.job_graph.vertices[change.attempt_id.vertex_id].name
        if change.new is ExecutionState.FINISHED and "Writer" in name:
            self.finished.set()


class Trap:
    """A function that, once over all attempts, tells its process id and then waits to be killed."""

    def __init__(self, folder: Path, springs_at) -> None:
        self.fifo = str(folder / "trap")
        self.marker = str(folder / "sprung")
        self.springs_at = springs_at
        os.mkfifo(self.fifo)

    def __call__(self, value):
        if self.springs_at(value):
            try:
                os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return value
            with open(self.fifo, "w") as fifo:
                fifo.write(str(os.getpid()))
            threading.Event().wait()
        return value

    def wait(self) -> int:
        with open(self.fifo) as fifo:
            return int(fifo.read())


def counts_to_files(folder: Path, trap_before=None, trap_after=None):
    watcher = Watcher()
    env = environment(2).use_executor(ClusterExecutor(SparkHost(), watcher))
    words = env.from_collection(LINES).rebalance().flat_map(str.split)
    if trap_before is not None:
        words = words.map(trap_before)
    counts = (
        words
        .map(lambda word: (word, 1))
        .key_by(lambda pair: pair[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    if trap_after is not None:
        counts = counts.map(trap_after)
    lines = counts.map(lambda pair: f"{pair[0]} {pair[1]}")
    lines.sink_to(FileSink.for_row_format(str(folder), Encoder.simple_string_encoder()).build())
    return env, watcher


def check_files(folder: Path) -> None:
    pairs = [line.rsplit(" ", 1) for line in committed_lines(folder)]
    updates = [(word, int(count)) for word, count in pairs]
    assert last_counts(updates) == expected_counts()
    assert Counter(word for word, _ in updates) == expected_counts()


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    "moment",
    [pytest.param("before the first output", marks=pytest.mark.long), "in mid exchange"],
)
def test_a_killed_taskmanager_restarts_the_job(spark, tmp_path, moment, run):
    word = "line" if moment == "before the first output" else "1234"
    trap = Trap(tmp_path, lambda value: value == word)
    env, watcher = counts_to_files(tmp_path / "out", trap_before=trap)
    client = env.execute_async("killed")
    os.kill(trap.wait(), signal.SIGKILL)
    client.get_job_execution_result().result()
    assert watcher.restarts == 1
    check_files(tmp_path / "out")
    assert not taskmanagers_left()


def test_a_stopped_taskmanager_is_silent_not_frozen(spark, tmp_path):
    """Its supervisor vouches for one in which a call may hold the GIL, and not for one that cannot run."""
    trap = Trap(tmp_path, lambda value: value == "1234")
    env, watcher = counts_to_files(tmp_path / "out", trap_before=trap)
    client = env.execute_async("stopped")
    os.kill(trap.wait(), signal.SIGSTOP)
    client.get_job_execution_result().result()
    assert watcher.restarts == 1
    (cause,) = watcher.lost
    assert "no heartbeat" in cause
    check_files(tmp_path / "out")
    assert not taskmanagers_left()


@pytest.mark.long  # the audit kills them at any moment
@pytest.mark.parametrize("run", RUNS)
def test_a_kill_after_one_sink_subtask_finished(spark, tmp_path, run):
    last = max(expected_counts().items(), key=lambda item: item[1])
    trap = Trap(tmp_path, lambda pair: pair == last)
    env, watcher = counts_to_files(tmp_path / "out", trap_after=trap)
    client = env.execute_async("killed late")
    pid = trap.wait()
    assert watcher.finished.wait(30)
    os.kill(pid, signal.SIGKILL)
    client.get_job_execution_result().result()
    assert watcher.restarts == 1
    check_files(tmp_path / "out")


@pytest.mark.long  # the audit kills executors, too
@pytest.mark.parametrize("run", RUNS)
def test_a_killed_executor_jvm_restarts_the_job(spark_cluster, tmp_path, run):
    trap = Trap(tmp_path, lambda value: value == "777")
    env, watcher = counts_to_files(tmp_path / "out", trap_before=trap)
    client = env.execute_async("executor killed")
    pid = trap.wait()
    for jvm in executor_jvms():
        if pid in {child.pid for child in jvm.children(recursive=True)}:
            jvm.kill()
    client.get_job_execution_result().result()
    assert watcher.restarts == 1
    check_files(tmp_path / "out")


def test_rows_that_were_handed_out_are_not_handed_out_twice(spark, tmp_path):
    trap = Trap(tmp_path, lambda value: value == 1500)
    # Few frames may wait for the driver, so they are to be large from the first one on.
    env = environment(1, **{"penstock.exchange.in-flight-time": "0 ms"})
    env.use_executor(ClusterExecutor(SparkHost(), Watcher()))
    numbers = env.from_collection(list(range(2000))).map(lambda v: v).disable_chaining()
    slow_start = numbers.flat_map(lambda v: [v] * (4097 if v == 0 else 1)).map(trap)
    with slow_start.execute_and_collect() as rows:
        assert next(rows) == 0
        os.kill(trap.wait(), signal.SIGKILL)
        with pytest.raises(JobExecutionError, match="had been handed out"):
            list(rows)
