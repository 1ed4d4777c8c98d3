"""Whole jobs of a MiniCluster from Pulsar to Pulsar: once each, whatever fails, at any parallelism."""

import pytest

from penstock.common import Time, WatermarkStrategy
from penstock.connectors.pulsar import PulsarSink, StopCursor
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.model.errors import JobExecutionError
from tests.tools.brokers.pulsar_topics import (
    bounded,
    produce,
    sink_builder,
    source_builder,
    texts,
)
from tests.tools.programs.checkpoint_programs import (
    Watcher,
    restarting_environment,
    wait_until_running,
)
from tests.tools.programs.copying import (
    CountOf,
    DyingCommitter,
    FailsAt,
    checkpointed,
    copy,
)

ONCE, AT_LEAST = DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE
COUNT = 40


class DyingSink(PulsarSink):
    """Its first commit does not come back: the task fails before anything was written, or behind it."""

    def create_committer(self):
        return DyingCommitter(super().create_committer(), *self.plan)


def in_both(broker, topic, start, stop):
    for partition in range(2):
        records = [f"{partition}:{number}" for number in range(start, stop)]
        produce(broker, topic, *records, partition=partition, batch=True)


def pairs(stop):
    return sorted(f"{partition}:{n}" for partition in range(2) for n in range(stop))


def results(broker):
    return sorted(texts(broker, "out", range(2)))


def small_turns(broker, guarantee):
    """So that records go to both partitions."""
    builder = sink_builder(broker, "out", guarantee)
    return builder.set_config("pulsar.producer.batchingMaxMessages", 7)


@pytest.fixture
def topics(pulsar_broker):
    pulsar_broker.create("in", 2)
    pulsar_broker.create("out", 2)
    in_both(pulsar_broker, "in", 0, COUNT)
    return pulsar_broker


def test_a_failing_task_costs_and_doubles_nothing(topics, tmp_path, stage):
    watcher = Watcher()
    env = checkpointed(watcher, tmp_path)
    source = source_builder(topics, "in").build()
    copy(env, source, FailsAt(stage.name, f"1:{COUNT + 5}"), small_turns(topics, ONCE).build())
    client = env.execute_async("copy")
    topics.wait_for(lambda: topics.count("out") == 2 * COUNT)
    in_both(topics, "in", COUNT, 2 * COUNT)
    topics.wait_for(lambda: topics.count("out") >= 4 * COUNT)
    ends = [topics.log("in", number).end - 1 for number in range(2)]
    topics.wait_for(
        lambda: (
            [topics.acknowledged(f"in-partition-{number}", "tests") for number in range(2)] == ends
        )
    )
    client.cancel().result()
    assert stage.failed.is_set()
    assert watcher.restored[0] is not None, "it began anew"
    assert results(topics) == pairs(2 * COUNT)


@pytest.mark.parametrize("is_before", [True, False])
def test_a_commit_that_dies_is_made_again_after_the_restart(topics, tmp_path, stage, is_before):
    sink = DyingSink(small_turns(topics, ONCE).build().settings)
    sink.plan = stage.name, is_before
    watcher = Watcher()
    env = checkpointed(watcher, tmp_path)
    copy(env, bounded(topics, "in").build(), str, sink)
    env.execute("copy")
    assert watcher.restored[0] is not None
    assert results(topics) == pairs(COUNT)


def test_at_least_once_loses_nothing_when_a_task_fails(topics, tmp_path, stage):
    watcher = Watcher()
    env = checkpointed(watcher, tmp_path)
    source = source_builder(topics, "in").build()
    copy(env, source, FailsAt(stage.name, f"1:{COUNT + 5}"), small_turns(topics, AT_LEAST).build())
    client = env.execute_async("copy")
    topics.wait_for(lambda: topics.count("out") == 2 * COUNT)
    in_both(topics, "in", COUNT, 2 * COUNT)
    topics.wait_for(lambda: set(pairs(2 * COUNT)) == set(results_of(topics)))
    client.cancel().result()
    assert stage.failed.is_set()


def results_of(broker):
    """As the broker has them, without asking it: from within one of its requests."""
    data = b"".join(
        entry.data for number in range(2) for entry in broker.log("out", number).entries
    )
    return {name for name in pairs(2 * COUNT) if name.encode() in data}


def test_a_savepoint_is_gone_on_from_at_another_parallelism(topics, tmp_path):
    env = checkpointed(Watcher(), tmp_path, parallelism=2)
    sink = small_turns(topics, ONCE).build()
    copy(env, source_builder(topics, "in").build(), str, sink)
    client = env.execute_async("copy")
    topics.wait_for(lambda: topics.count("out") == 2 * COUNT)
    wait_until_running(client)
    folder = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    client.get_job_execution_result().result()
    topics.create("in", 3)
    in_both(topics, "in", COUNT, 2 * COUNT)
    produce(topics, "in", "new", partition=2)
    env = checkpointed(Watcher(), tmp_path, 3, execution__state_recovery__path=folder)
    copy(env, source_builder(topics, "in").build(), str, sink)
    client = env.execute_async("copy")
    topics.wait_for(lambda: topics.count("out") >= 4 * COUNT + 1)
    client.cancel().result()
    assert results(topics) == sorted([*pairs(2 * COUNT), "new"])


def test_a_partition_that_comes_while_the_job_runs_is_read(topics):
    env = restarting_environment(Watcher())
    builder = source_builder(topics, "in")
    source = builder.set_config("pulsar.source.partitionDiscoveryIntervalMs", 50).build()
    copy(env, source, str, small_turns(topics, AT_LEAST).build())
    client = env.execute_async("copy")
    topics.wait_for(lambda: topics.count("out") == 2 * COUNT)
    topics.create("in", 3)
    produce(topics, "in", "new", partition=2)
    topics.wait_for(lambda: topics.count("out") == 2 * COUNT + 1)
    client.cancel().result()
    assert results(topics) == sorted([*pairs(COUNT), "new"])


@pytest.mark.parametrize("mode", list(RuntimeExecutionMode)[:2])
def test_without_checkpoints_all_is_committed_at_the_end(topics, mode):
    env = restarting_environment(Watcher())
    env.set_runtime_mode(mode)
    copy(env, bounded(topics, "in").build(), str, small_turns(topics, ONCE).build())
    env.execute("copy")
    assert results(topics) == pairs(COUNT)


def test_a_bad_message_ends_the_job_and_is_named(pulsar_broker):
    pulsar_broker.create("in")
    produce(pulsar_broker, "in", "text", b"\xff")
    env = restarting_environment(Watcher(), restart_strategy__type="none")
    stream = env.from_source(
        bounded(pulsar_broker, "in").build(), WatermarkStrategy.no_watermarks(), "pulsar"
    )
    error = r"Pulsar message 7:1, of persistent://public/default/in, cannot be deserialized by SimpleStringSchema"
    with pytest.raises(JobExecutionError, match=error), stream.execute_and_collect() as found:
        list(found)


def test_each_partition_has_its_own_watermark(pulsar_broker):
    """The one that is behind holds the window open, however far the other one is."""
    pulsar_broker.create("in", 2)
    produce(pulsar_broker, "in", *[(f"early {n}", 1000 + n) for n in range(5)], partition=0)
    produce(pulsar_broker, "in", ("late", 900_000), partition=1)
    env = restarting_environment(Watcher(), parallelism=1)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    source = source_builder(pulsar_broker, "in").set_bounded_stop_cursor(StopCursor.latest())
    stream = env.from_source(source.build(), strategy, "pulsar")
    windows = stream.window_all(TumblingEventTimeWindows.of(Time.seconds(10)))
    with windows.process(CountOf()).execute_and_collect() as found:
        assert sorted(found) == [1, 5]
