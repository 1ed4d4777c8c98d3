"""Slow subtasks of running jobs (docs/spec/elasticity.md#second-attempts). Each TaskManager is on a node of its own, or all are on one."""

import re
import threading

import pytest

from penstock.common import Encoder, WatermarkStrategy
from penstock.datastream import MapFunction, RuntimeExecutionMode
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.connectors.sinks import DiscardingSink
from penstock.hosting.minicluster import MiniCluster, ThreadProvider
from penstock.hosting.observer import JobObserver
from penstock.hosting.wire.addresses import Endpoint
from penstock.model.errors import ConfigurationError, JobExecutionError, PenstockError
from penstock.model.messages import ExecutionStateChanged
from penstock.model.states import ExecutionState
from tests.tools.output_files import committed_lines
from tests.tools.programs.environments import minicluster_environment
from tests.tools.waiting import wait_until

SPECULATE = {
    "execution.batch.speculative.enabled": "true",
    "slow-task-detector.check-interval": "20 ms",
    "slow-task-detector.execution-time.baseline-lower-bound": "20 ms",
    "slow-task-detector.execution-time.baseline-ratio": "0.75",
    "slow-task-detector.execution-time.baseline-multiplier": "1",
}
AT_ONCE = {"jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "0 s"}
NUMBERS = range(1, 201)
GATES: dict[str, threading.Event] = {}


class Nodes(ThreadProvider):
    """Each TaskManager has an address of its own."""

    def data_endpoint(self, resource_id):
        return Endpoint(f"127.0.0.{1 + int(resource_id.removeprefix('tm-'))}")


class NodesCluster(MiniCluster):
    def provider(self, settings, needed):
        self.last_provider = Nodes(self._slots, self._max)
        return self.last_provider


class Watcher(JobObserver):
    """Who was where."""

    def __init__(self):
        self.hosts = {}
        self.states = {}
        self.resets = 0

    def state(self, number):
        """Of this attempt of the slow subtask."""
        slow = [subtask for subtask, attempt in dict(self.states) if attempt == 1]
        return self.states.get((slow[0], number)) if slow else None

    def task_deployed(self, attempt_id, location, slot):
        self.hosts[attempt_id.subtask, attempt_id.attempt] = location.host

    def execution_changed(self, event: ExecutionStateChanged, job_graph):
        self.states[event.attempt_id.subtask, event.attempt_id.attempt] = event.new

    def restarting(self, event):
        self.resets += 1


class StandsStill(MapFunction):
    """The first attempt that meets the last number does not go on until the gate opens; then it fails if it is to."""

    def __init__(self, name, *, fails=False):
        self.name = name
        self.fails = fails

    def open(self, runtime_context):
        self.attempt = runtime_context.get_attempt_number()

    def map(self, value):
        if self.attempt == 0 and value == NUMBERS[-1]:
            GATES[self.name].wait()
            if self.fails:
                raise ValueError("the slow one")
        return value


@pytest.fixture
def gate(request):
    found = GATES[request.node.name] = threading.Event()
    yield found
    found.set()


def program(cluster, folder, function, **more):
    env = minicluster_environment(cluster, SPECULATE | more)
    env.set_parallelism(4)
    source = NumberSequenceSource(NUMBERS[0], NUMBERS[-1])
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    sink = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder()).build()
    stream.map(function).map(str).sink_to(sink)
    return env


def written(folder):
    return sorted(map(int, committed_lines(folder)))


def test_a_second_attempt_on_another_node_wins_and_each_record_is_written_once(
    gate, tmp_path, request, capfd
):
    watcher = Watcher()
    cluster = NodesCluster(observer=watcher)
    env = program(cluster, tmp_path / "out", StandsStill(request.node.name))
    env.execute("copy")
    assert written(tmp_path / "out") == list(NUMBERS)
    assert watcher.state(1) is ExecutionState.FINISHED
    assert watcher.state(0) is not ExecutionState.FINISHED
    [subtask] = [one for one, number in watcher.hosts if number == 1]
    assert watcher.hosts[subtask, 0] != watcher.hosts[subtask, 1]
    assert watcher.resets == 0
    hidden = [one for one in (tmp_path / "out").rglob(".*") if one.is_file()]
    assert hidden == []
    assert "Slow subtasks get a second attempt" in "".join(capfd.readouterr())


def test_without_a_block_the_same_node_runs_the_second_attempt(gate, tmp_path, request):
    block = "execution.batch.speculative.block-slow-node-duration"
    watcher = Watcher()
    function = StandsStill(request.node.name)
    env = program(MiniCluster(observer=watcher), tmp_path / "out", function, **{block: "0 ms"})
    env.execute("copy")
    assert written(tmp_path / "out") == list(NUMBERS)
    assert watcher.state(1) is ExecutionState.FINISHED
    assert set(watcher.hosts.values()) == {"127.0.0.1"}


def test_if_the_first_attempt_goes_on_in_time_it_wins_and_nothing_is_written_twice(
    gate, tmp_path, request
):
    """All TaskManagers are on the node that is blocked, so the second attempt never starts."""
    watcher = Watcher()
    env = program(MiniCluster(observer=watcher), tmp_path / "out", StandsStill(request.node.name))
    client = env.execute_async("copy")
    wait_until(lambda: watcher.state(1) is not None, "nobody is slow")
    gate.set()
    client.get_job_execution_result().result()
    assert watcher.state(0) is ExecutionState.FINISHED
    assert watcher.state(1) is ExecutionState.CANCELED
    assert written(tmp_path / "out") == list(NUMBERS)


class BothStandStill(StandsStill):
    """The second attempt waits for a gate of its own."""

    def map(self, value):
        if self.attempt == 1:
            GATES["second"].wait()
        return super().map(value)


@pytest.fixture
def both(gate, tmp_path, request):
    """A job whose slow subtask has two attempts that stand still: its client, cluster and watcher."""
    GATES["second"] = threading.Event()
    cluster = NodesCluster(observer=(watcher := Watcher()))
    client = program(cluster, tmp_path / "out", BothStandStill(request.node.name)).execute_async(
        "copy"
    )
    running = ExecutionState.RUNNING
    wait_until(lambda: watcher.state(1) is running, "it has no second attempt")
    yield client, cluster, watcher
    GATES["second"].set()


def test_a_lost_taskmanager_of_the_slow_attempt_restarts_nothing(both, tmp_path):
    client, cluster, watcher = both
    vertices = client._control.manager.job_master.execution_graph.vertices
    slow = next(one for one in vertices if not one.state.is_terminal)
    cluster.last_provider.stop(slow.execution.location.resource_id)
    wait_until(lambda: slow.execution.attempt_id.attempt == 1, "the loss is not noticed")
    GATES["second"].set()
    client.get_job_execution_result().result()
    assert watcher.resets == 0
    assert written(tmp_path / "out") == list(NUMBERS)


def test_such_a_job_has_no_savepoint(both, tmp_path):
    client, *_ = both
    with pytest.raises(PenstockError, match="cannot take any"):
        client.trigger_savepoint(str(tmp_path / "savepoints")).result()


def test_an_error_of_the_users_code_ends_the_job_though_another_attempt_runs(
    gate, tmp_path, request
):
    """The default restart strategy restarts after lost TaskManagers only."""
    watcher = Watcher()
    env = program(
        MiniCluster(observer=watcher), tmp_path / "out", StandsStill(request.node.name, fails=True)
    )
    client = env.execute_async("copy")
    wait_until(lambda: watcher.state(1) is not None, "nobody is slow")
    gate.set()
    with pytest.raises(JobExecutionError, match="the slow one"):
        client.get_job_execution_result().result()
    assert written(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"execution.checkpointing.interval": "1 h"}, "it takes checkpoints"),
        ({"jobmanager.scheduler": "Adaptive", **AT_ONCE}, "it is elastic"),
    ],
)
def test_a_job_that_cannot_have_any_runs_as_always_and_says_why(tmp_path, capfd, settings, why):
    program(MiniCluster(), tmp_path / "out", lambda one: one, **settings).execute("copy")
    assert f"has no effect on this job: {why}" in "".join(capfd.readouterr())
    assert written(tmp_path / "out") == list(NUMBERS)


def test_a_value_out_of_its_range_is_refused(tmp_path):
    ratio = {"slow-task-detector.execution-time.baseline-ratio": "1"}
    with pytest.raises(ConfigurationError, match="below 1"):
        program(MiniCluster(), tmp_path, str, **ratio).execute()


def test_vertices_that_cannot_are_named_at_submit(gate, tmp_path, request, capfd):
    env = program(NodesCluster(), tmp_path / "out", StandsStill(request.node.name))
    env.from_collection([1, 2]).key_by(lambda one: one).print()
    env.execute("both")
    told = "".join(capfd.readouterr())
    assert re.search(r"Slow subtasks get a second attempt: '.*numbers.*'\. Not so: ", told)
    assert "it exchanges records with other vertices" in told
    assert written(tmp_path / "out") == list(NUMBERS)


def test_a_batch_job_is_told_whose_option_decides(tmp_path, capfd):
    env = program(MiniCluster(), tmp_path / "out", lambda one: one)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.execute("batch")
    assert "spark.speculation=true" in "".join(capfd.readouterr())


HYBRID = HybridSource.builder(NumberSequenceSource(1, 2)).add_source(NumberSequenceSource(3, 4))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (HYBRID.build(), "send events of their own"),
        (NumberSequenceSource(1, 2), "'Sink: Writer' writes is visible at once"),
    ],
)
def test_what_is_not_safe_is_named_with_its_reason(source, why, capfd):
    env = minicluster_environment(MiniCluster(), SPECULATE)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.map(str).sink_to(DiscardingSink())
    env.execute("unsafe")
    assert why in "".join(capfd.readouterr())


def test_printed_records_are_seen_at_once(capfd):
    env = minicluster_environment(MiniCluster(), SPECULATE)
    source = NumberSequenceSource(1, 2)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").print()
    env.execute("prints")
    assert "its records are printed or collected" in "".join(capfd.readouterr())


def test_a_source_without_an_end_is_never_read_twice():
    env = minicluster_environment(MiniCluster(), SPECULATE)
    source = DataGeneratorSource(lambda number: number, None)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.map(str).sink_to(DiscardingSink())
    client = env.execute_async("endless")
    assert client._control.manager.parts.settings.job.speculation is None
    client.cancel().result()
