"""Jobs of a MiniCluster that change their parallelism while they run: each record counts once, wherever its state goes."""

import threading
from collections import Counter

import pytest

from penstock.common import JobClient, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream.functions import KeyedBroadcastProcessFunction, KeyedProcessFunction
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.rescaling import parallelism_of
from tests.tools.hosting.running_job import control_of, manager_of
from tests.tools.output_files import files_below
from tests.tools.programs.checkpoint_programs import (
    WAIT_S,
    expected_sums,
    file_sink,
    lines_of,
    sums_to_file,
    wait_until_running,
)
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.programs.rescaled_programs import Generations, SharedSplits
from tests.tools.programs.user_functions import first_of, running_sum, same
from tests.tools.waiting import wait_until

AT_ONCE = {
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "execution.checkpointing.interval": "1 h",
    "parallelism.default": "2",
}


def environment(observer, tmp_path, slots=1, taskmanagers=None, **more):
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}
    place = {"execution.checkpointing.dir": str(tmp_path / "checkpoints")}
    cluster = MiniCluster(
        slots_per_taskmanager=slots, taskmanagers=taskmanagers, parallelism=2, observer=observer
    )
    return minicluster_environment(cluster, RESTARTS | AT_ONCE | place | given), cluster


def all_at(client, count):
    """The same parallelism for every vertex."""
    return dict.fromkeys(parallelism_of(manager_of(client).job_graph), count)


def rescaled(client, watcher, count):
    """Every vertex has this parallelism, and all tasks run."""
    before = len(watcher.replaced)
    wait_until_running(client)
    client.rescale(all_at(client, count)).result()
    watcher.wait_for_generation(before + 1)
    wait_until_running(client)


def source_of(env, stage, splits=6, count=40, hold=20, step=1):
    source = SharedSplits(stage.name, splits, count, hold, step)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "shared").uid("shared")


def test_state_moves_to_more_and_to_fewer_subtasks_and_each_record_counts_once(tmp_path, stage):
    watcher = Generations()
    env, _ = environment(watcher, tmp_path)
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    rescaled(client, watcher, 4)
    rescaled(client, watcher, 1)
    stage.gate.set()
    client.get_job_execution_result().result()
    assert watcher.parallelisms == [{4}, {1}]
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)
    assert watcher.restored == [], "a change that is wished for is no restart"
    assert files_below(tmp_path / "checkpoints") == []


def test_a_job_is_rescaled_while_records_flow(tmp_path, stage):
    """The source never stands still: each generation hands over in the middle of its work."""
    stage.gate.set()
    wishes = iter([4, 1, 3])
    asked = threading.Semaphore(0)
    watcher = Generations(then=lambda _count: asked.release())
    env, _ = environment(watcher, tmp_path, execution__checkpointing__interval="50 ms")
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 4_000, 0, step=3), same)
    client = env.execute_async("sums")
    for count in wishes:
        wait_until_running(client)
        client.rescale(all_at(client, count)).result()
        assert asked.acquire(timeout=WAIT_S)
    client.get_job_execution_result().result()
    assert watcher.parallelisms == [{4}, {1}, {3}]
    assert lines_of(tmp_path / "out") == expected_sums(6, 4_000)


def test_one_vertex_is_rescaled_and_a_forward_edge_to_it_hands_out_in_turn(tmp_path, stage):
    watcher = Generations()
    env, _ = environment(watcher, tmp_path)
    chain = source_of(env, stage).map(same).uid("first").name("first").disable_chaining()
    chain = chain.map(same).uid("second").name("second").start_new_chain()
    keyed = chain.key_by(first_of).reduce(running_sum).uid("sum").name("sum")
    texts = keyed.map(lambda pair: f"{pair[0]} {pair[1]}").uid("text")
    texts.sink_to(file_sink(tmp_path / "out")).uid("out")
    client = env.execute_async("sums")
    stage.wait_until_held(6)

    for generation, count in ((1, 3), (2, 2)):
        wait_until_running(client)
        client.rescale({"second": (1, count)}).result()
        watcher.wait_for_generation(generation)
    wait_until_running(client)
    assert watcher.shipped("second") == [["REBALANCE"], ["FORWARD"]]
    stage.gate.set()
    client.get_job_execution_result().result()
    found = Counter(split for split, _ in lines_of(tmp_path / "out"))
    assert found == dict.fromkeys(range(6), 40)
    last = {
        split: max(total for one, total in lines_of(tmp_path / "out") if one == split)
        for split in range(6)
    }
    assert last == dict.fromkeys(range(6), sum(range(40)))


class _Numbered(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] * 1_000


def test_windows_and_their_timers_go_on(tmp_path, stage):
    watcher = Generations()
    env, _ = environment(watcher, tmp_path)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Numbered())
    source = SharedSplits(stage.name, 6, 40, 25)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "shared").uid("shared")
    stream = stream.assign_timestamps_and_watermarks(strategy).uid("times")
    windows = (
        stream
        .key_by(first_of, key_type=Types.INT())
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .reduce(lambda one, other: (one[0], one[1] + other[1]))
        .uid("windows")
    )
    windows.map(lambda pair: f"{pair[0]} {pair[1]}").uid("text").sink_to(
        file_sink(tmp_path / "out")
    ).uid("out")
    client = env.execute_async("windows")
    stage.wait_until_held(6)
    rescaled(client, watcher, 4)
    rescaled(client, watcher, 1)
    stage.gate.set()
    client.get_job_execution_result().result()
    sums = [sum(range(begin, begin + 10)) for begin in range(0, 40, 10)]
    assert lines_of(tmp_path / "out") == sorted((split, one) for split in range(6) for one in sums)


class _CountsAndTimer(KeyedProcessFunction):
    """Counts, and tells the count when a timer rings that was set with the first record."""

    def open(self, context):
        self.count = context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value, ctx):
        known = self.count.value()
        if known is None:
            ctx.timer_service().register_processing_time_timer(
                ctx.timer_service().current_processing_time() + 60_000_000
            )
        self.count.update((known or 0) + 1)
        if value[1] == 39:
            yield value[0], self.count.value()


def test_timers_of_processing_time_move_with_their_keys(tmp_path, stage):
    """They ring at the end of the data at the latest; here only their state has to follow."""
    watcher = Generations()
    env, _ = environment(watcher, tmp_path)
    keyed = source_of(env, stage).key_by(first_of, key_type=Types.INT())
    counted = keyed.process(_CountsAndTimer()).uid("counts")
    counted.map(lambda pair: f"{pair[0]} {pair[1]}").uid("text").sink_to(
        file_sink(tmp_path / "out")
    ).uid("out")
    client = env.execute_async("timers")
    stage.wait_until_held(6)
    rescaled(client, watcher, 3)
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == [(split, 40) for split in range(6)]


RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class _Adds(KeyedBroadcastProcessFunction):
    """Adds to each number what the rule says, and counts per key."""

    def process_element(self, value, ctx):
        yield value[0], value[1] + ctx.get_broadcast_state(RULES).get("plus")

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put("plus", value)


def test_broadcast_state_is_there_in_every_new_subtask(tmp_path, stage):
    watcher = Generations()
    env, _ = environment(watcher, tmp_path, execution__checkpointing__unaligned__enabled="true")
    rules = env.from_collection([100], Types.INT()).uid("rules").broadcast(RULES)
    keyed = source_of(env, stage, hold=0).key_by(first_of, key_type=Types.INT())
    added = keyed.connect(rules).process(_Adds()).uid("adds")
    added.map(lambda pair: f"{pair[0]} {pair[1]}").uid("text").sink_to(
        file_sink(tmp_path / "out")
    ).uid("out")
    client = env.execute_async("rules")
    stage.wait_until_held(6)
    wait_until(lambda: _is_at_end(client, "Collection"), "the rules are not read")
    for generation, count in ((1, 4), (2, 3)):
        client.rescale({"shared": count, "adds": count}).result()
        watcher.wait_for_generation(generation)
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == sorted(
        (split, number + 100) for split in range(6) for number in range(40)
    )


def _is_at_end(client, part) -> bool:
    """All subtasks of the vertices with this in their names have read their last record, and wait for a checkpoint."""
    job = manager_of(client).job_master
    waiting = job.checkpoints.coordinator.ends.waiting
    found = [one for one in job.state.graph.vertices if part in one.job_vertex.name]
    return bool(found) and all(one.execution.attempt_id in waiting for one in found)


def test_rows_that_are_collected_come_once(tmp_path, stage):
    watcher = Generations()
    env, _ = environment(watcher, tmp_path)
    stream = source_of(env, stage).key_by(first_of).reduce(running_sum).uid("sum")
    with stream.execute_and_collect("collected") as found:
        stage.wait_until_held(6)
        rescaled(JobClient(control_of(found)), watcher, 4)
        stage.gate.set()
        assert sorted(found) == expected_sums(6, 40)
    assert watcher.parallelisms == [{4}]


def test_without_periodic_checkpoints_results_are_committed_once(tmp_path, stage):
    watcher = Generations()
    cluster = MiniCluster(parallelism=2, observer=watcher)
    settings = {key: value for key, value in AT_ONCE.items() if "interval" not in key}
    env = minicluster_environment(cluster, RESTARTS | settings)
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    rescaled(client, watcher, 3)
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)


def test_taskmanagers_that_are_not_needed_any_more_end(tmp_path, stage):
    watcher = Generations()
    env, cluster = environment(watcher, tmp_path, resourcemanager__taskmanager_timeout="100 ms")
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    rescaled(client, watcher, 4)
    assert len(cluster.last_provider.managers) == 4
    rescaled(client, watcher, 1)
    wait_until(lambda: len(cluster.last_provider.managers) == 1, "they do not end")
    assert control_of(client).slots_held() == 1
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)


def test_a_job_takes_what_the_cluster_has_if_it_has_less_than_is_wanted(tmp_path, stage):
    watcher = Generations()
    env, _ = environment(watcher, tmp_path, taskmanagers=3)
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    rescaled(client, watcher, 8)
    assert watcher.parallelisms == [{3}]
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)


def test_a_savepoint_asked_for_with_the_rescale_holds_everything(tmp_path, stage):
    watcher = Generations()
    env, _ = environment(watcher, tmp_path)
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    wait_until_running(client)
    client.rescale(all_at(client, 4)).result()
    folder = client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    watcher.wait_for_generation(1)
    stage.gate.set()
    client.get_job_execution_result().result()
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)
    more = {"execution__state_recovery__path": folder}
    again, _ = environment(Generations(), tmp_path, **more)
    sums_to_file(again, tmp_path / "again", SharedSplits(stage.name, 6, 40, 20), same)
    again.execute("again")
    assert set(lines_of(tmp_path / "again")) <= set(expected_sums(6, 40))
    missing = set(expected_sums(6, 40)) - set(expected_sums(6, 20))
    assert missing <= set(lines_of(tmp_path / "again"))


def test_a_taskmanager_killed_as_the_next_generation_begins_costs_no_record(tmp_path, stage):
    killed = threading.Event()

    def kill(_count):
        if not killed.is_set():
            killed.set()
            name = sorted(cluster.last_provider.managers)[0]
            cluster.last_provider.stop(name)

    watcher = Generations(then=kill)
    env, cluster = environment(watcher, tmp_path)
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    wait_until_running(client)
    client.rescale(all_at(client, 4)).result()
    watcher.wait_for_generation(2)
    stage.gate.set()
    client.get_job_execution_result().result()
    assert killed.is_set()
    assert lines_of(tmp_path / "out") == expected_sums(6, 40)


class _Cancels(Generations):
    def __init__(self) -> None:
        super().__init__()
        self.client = None

    def on_trigger_checkpoint(self, first) -> None:
        if first.options.is_held:
            self.client.cancel()


def test_a_job_that_is_cancelled_in_the_middle_is_cancelled(tmp_path, stage):
    watcher = _Cancels()
    env, _ = environment(watcher, tmp_path)
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 40, 20), same)
    watcher.client = client = env.execute_async("sums")
    stage.wait_until_held(6)
    wait_until_running(client)
    client.rescale(all_at(client, 4)).result()
    control_of(client).wait(WAIT_S)
    assert client.get_job_status().result().name == "CANCELED"


@pytest.mark.parametrize("wish", [0, 100_000, (3, 2)])
def test_what_the_job_cannot_have_is_refused_and_changes_nothing(tmp_path, stage, wish):
    watcher = Generations()
    env, _ = environment(watcher, tmp_path)
    sums_to_file(env, tmp_path / "out", SharedSplits(stage.name, 6, 10, 5), same)
    client = env.execute_async("sums")
    stage.wait_until_held(6)
    with pytest.raises(ConfigurationError):
        client.rescale(all_at(client, wish))
    with pytest.raises(ConfigurationError, match="there is no vertex 'nobody'"):
        client.rescale({"nobody": 2})
    stage.gate.set()
    client.get_job_execution_result().result()
    assert watcher.replaced == []
