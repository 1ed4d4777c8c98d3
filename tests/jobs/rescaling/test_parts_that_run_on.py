"""A job of two parts that nothing joins: one is rescaled, and the other one goes on emitting meanwhile, with the attempts that it has."""

import threading

import pytest

from penstock.common import WatermarkStrategy
from penstock.datastream.functions import MapFunction
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.graph.rescaling import parallelism_of
from penstock.engine.runtime.sources.contract import ReaderStatus
from tests.tools.hosting.running_job import manager_of
from tests.tools.programs.checkpoint_programs import (
    STAGES,
    WAIT_S,
    Stage,
    expected_sums,
    file_sink,
    lines_of,
    wait_until_running,
)
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.programs.rescaled_programs import Generations, SharedSplits, SplitReader
from tests.tools.programs.user_functions import first_of, running_sum
from tests.tools.waiting import wait_until

SETTINGS = RESTARTS | {
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "execution.checkpointing.interval": "50 ms",
}


class _UntilTheGateOpens(SharedSplits):
    """Emits all the time. When the gate of the stage opens, it ends."""

    def create_reader(self, context):
        return _Flowing(self, context)


class _Flowing(SplitReader):
    def poll_next(self):
        if STAGES[self.source.stage].gate.is_set():
            return ReaderStatus.END_OF_INPUT
        return super().poll_next()

    def _is_open(self):
        return True


class _Part(Stage):
    """What its tasks have done. `may_open`: tasks wait for it before they begin."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.may_open = threading.Event()
        self.may_open.set()
        self.lock = threading.Lock()
        self.begun = 0
        self.seen = 0


class _Noted(MapFunction):
    def __init__(self, stage: str) -> None:
        self.stage = stage

    def open(self, runtime_context):
        part = STAGES[self.stage]
        with part.lock:
            part.begun += 1
        assert part.may_open.wait(WAIT_S)

    def map(self, value):
        part = STAGES[self.stage]
        with part.lock:
            part.seen += 1
        return value


def add_part(env, source, name, folder):
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), name).uid(f"{name}-in")
    noted = stream.map(_Noted(source.stage)).uid(f"{name}-noted")
    summed = noted.key_by(first_of).reduce(running_sum).uid(f"{name}-sum")
    texts = summed.map(lambda pair: f"{pair[0]} {pair[1]}").uid(f"{name}-text")
    texts.sink_to(file_sink(folder)).uid(f"{name}-out")


@pytest.fixture
def parts(stage):
    """`left` stands still until its gate opens, `right` flows until its gate opens."""
    left, right = _Part(f"{stage.name} left"), _Part(f"{stage.name} right")
    yield left, right
    left.may_open.set()
    left.gate.set()
    right.gate.set()


def start(parts, watcher, tmp_path):
    left, right = parts
    place = {"execution.checkpointing.dir": str(tmp_path / "checkpoints")}
    cluster = MiniCluster(slots_per_taskmanager=1, parallelism=2, observer=watcher)
    env = minicluster_environment(cluster, SETTINGS | place | {"parallelism.default": "2"})
    add_part(env, SharedSplits(left.name, 6, 40, 20), "left", tmp_path / "left")
    add_part(env, _UntilTheGateOpens(right.name, 4, 10**9, 0), "right", tmp_path / "right")
    client = env.execute_async("two parts")
    left.wait_until_held(6)
    wait_until_running(client)
    return client, cluster


def rescale_left(client, count):
    client.rescale({"left-in": count, "left-sum": count}).result()


def attempts(client, name):
    """The attempts of one part, by subtask."""
    graph = manager_of(client).job_master.state.graph
    return {
        str(one): one.execution.attempt_id
        for one in graph.vertices
        if any(info.uid.startswith(name) for info in one.job_vertex.job_vertex.operators)
    }


def finish(client, parts, tmp_path):
    """Both parts end, and what they have made is there once."""
    left, right = parts
    left.gate.set()
    right.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "left") == expected_sums(6, 40)
    found = lines_of(tmp_path / "right")
    numbers = {split: sum(one == split for one, _ in found) for split in range(4)}
    assert found == sorted(
        (split, number * (number + 1) // 2)
        for split, count in numbers.items()
        for number in range(count)
    )
    return sum(numbers.values())


def test_the_other_part_goes_on_emitting_with_the_same_attempts(tmp_path, parts):
    left, right = parts
    watcher = Generations()
    client, _ = start(parts, watcher, tmp_path)
    before = attempts(client, "right")
    left.may_open.clear()
    rescale_left(client, 4)
    watcher.wait_for_generation(1)
    wait_until(lambda: left.begun > 2, "no new subtask begins")
    # The new subtasks stand still until the other part has gone on for a while.
    seen = right.seen
    wait_until(lambda: right.seen > seen + 200, "the other part stands still")
    left.may_open.set()
    wait_until_running(client)
    watcher.wait_for(len(watcher.completed) + 2)

    (replaced,) = watcher.replaced
    assert replaced.is_planned
    assert {one.vertex_id for one in before.values()} == replaced.kept
    names = {
        replaced.job_graph.vertices[one].operators[0].uid: count
        for one, count in parallelism_of(replaced.job_graph).items()
    }
    assert names == {"left-in": 4, "left-sum": 4, "right-in": 2, "right-sum": 2}
    assert attempts(client, "right") == before
    assert {one.attempt for one in attempts(client, "left").values()} == {1}
    assert (left.begun, right.begun) == (6, 2)
    assert finish(client, parts, tmp_path) > 200
    assert right.begun == 2
    assert watcher.restored == []


def test_a_taskmanager_killed_as_the_new_subtasks_begin_costs_no_record(tmp_path, parts):
    left, right = parts
    killed = threading.Event()

    def kill(_count):
        if not killed.is_set():
            killed.set()
            name = sorted(cluster.last_provider.managers)[0]
            cluster.last_provider.stop(name)

    watcher = Generations(then=kill)
    client, cluster = start(parts, watcher, tmp_path)
    rescale_left(client, 4)
    watcher.wait_for_generation(2)
    wait_until_running(client)
    watcher.wait_for(len(watcher.completed) + 1)
    first, second = watcher.replaced
    assert (first.is_planned, bool(first.kept)) == (True, True)
    assert (second.is_planned, second.kept) == (False, frozenset())
    finish(client, parts, tmp_path)
    assert right.begun >= 4
