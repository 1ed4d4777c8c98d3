"""A slow subtask on executors of Spark gets a second attempt there. Both executors are on this machine, so no node is blocked."""

import os
import threading

import pytest

from penstock.common import Encoder, WatermarkStrategy
from penstock.datastream import MapFunction
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.hosting.observer import JobObserver
from penstock.hosting.program.executor import ClusterExecutor
from penstock.hosting.spark.host import SparkHost
from penstock.model.states import ExecutionState
from tests.spark.processes import taskmanagers_left
from tests.spark.programs import environment
from tests.spark.sessions import LOCAL_CLUSTER
from tests.tools.output_files import committed_lines

pytestmark = pytest.mark.spark
SETTINGS = {
    "execution.batch.speculative.enabled": "true",
    "execution.batch.speculative.block-slow-node-duration": "0 ms",
    "slow-task-detector.check-interval": "50 ms",
    "slow-task-detector.execution-time.baseline-lower-bound": "500 ms",
    "slow-task-detector.execution-time.baseline-ratio": "0.75",
    "taskmanager.numberOfTaskSlots": "1",
}
LAST = 400


class Watcher(JobObserver):
    def __init__(self):
        self.states = {}
        self.resets = 0

    def execution_changed(self, event, job_graph):
        self.states[event.attempt_id.subtask, event.attempt_id.attempt] = event.new

    def restarting(self, event):
        self.resets += 1


class StandsStill(MapFunction):
    """The first attempt that meets the last number stays there for good."""

    def __init__(self, gate):
        self.gate = gate

    def open(self, runtime_context):
        self.attempt = runtime_context.get_attempt_number()

    def map(self, value):
        never = threading.Event()
        while self.attempt == 0 and value == LAST and not os.path.exists(self.gate):
            never.wait(0.02)
        return value


def test_the_second_attempt_wins_and_each_record_is_written_once(sessions, tmp_path):
    sessions.on(LOCAL_CLUSTER)
    watcher = Watcher()
    env = environment(4, **SETTINGS).use_executor(ClusterExecutor(SparkHost(), watcher))
    source = NumberSequenceSource(1, LAST)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    numbers.map(StandsStill(str(tmp_path / "open"))).map(str).sink_to(sink)
    env.execute("copy")
    assert sorted(map(int, committed_lines(tmp_path / "out"))) == list(range(1, LAST + 1))
    [slow] = [subtask for subtask, attempt in watcher.states if attempt == 1]
    assert watcher.states[slow, 1] is ExecutionState.FINISHED
    assert watcher.states[slow, 0] is not ExecutionState.FINISHED
    assert watcher.resets == 0
    assert not taskmanagers_left()
