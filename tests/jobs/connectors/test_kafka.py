"""Whole jobs of a MiniCluster from Kafka to Kafka: once each, whatever fails, at any parallelism; and librdkafka's own broker."""

import pytest
from confluent_kafka import Producer

from penstock.common import Time, WatermarkStrategy
from penstock.connectors.kafka import KafkaSink
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.model.errors import JobExecutionError
from tests.tools.brokers.kafka_door import door
from tests.tools.brokers.kafka_topics import (
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
from tests.tools.waiting import wait_until

ONCE = DeliveryGuarantee.EXACTLY_ONCE
COUNT = 40


class DyingSink(KafkaSink):
    """Its first commit does not come back: the task fails before anything was written, or behind it."""

    def create_committer(self):
        return DyingCommitter(super().create_committer(), *self.plan)


class LaterRefused(KafkaSink):
    def validate(self):
        """As if the password had been right at submit."""


def numbers(start, stop):
    return [str(number) for number in range(start, stop)]


def in_both(broker, topic, start, stop):
    for partition in range(2):
        produce(
            broker, topic, *[f"{partition}:{n}" for n in range(start, stop)], partition=partition
        )


def pairs(stop):
    return sorted(f"{partition}:{n}" for partition in range(2) for n in range(stop))


def results(broker):
    return sorted(texts(broker.servers, "out", range(2)))


def test_a_failing_task_costs_and_doubles_nothing(broker, tmp_path, stage):
    broker.create("in", 2)
    broker.create("out", 2)
    in_both(broker, "in", 0, COUNT)
    watcher = Watcher()
    env = checkpointed(watcher, tmp_path)
    source = source_builder(broker.servers, "in").set_group_id("g").build()
    sink = sink_builder(broker.servers, "out", ONCE).build()
    copy(env, source, FailsAt(stage.name, f"1:{COUNT + 5}"), sink)
    client = env.execute_async("copy")
    wait_until(lambda: len(results(broker)) == 2 * COUNT, "they are not there")
    in_both(broker, "in", COUNT, 2 * COUNT)
    wait_until(lambda: len(results(broker)) >= 4 * COUNT, "they are not there")
    group = [("g", "in", partition) for partition in range(2)]
    wait_until(lambda: [broker.offset(*one) for one in group] == [2 * COUNT] * 2, "no commit")
    client.cancel().result()
    assert stage.failed.is_set()
    assert watcher.restored[0] is not None, "it began anew"
    assert results(broker) == pairs(2 * COUNT)


@pytest.mark.parametrize("guarantee", [ONCE, DeliveryGuarantee.AT_LEAST_ONCE])
def test_a_password_that_is_refused_later_ends_the_job_without_a_restart(
    broker, tmp_path, guarantee
):
    broker.create("in")
    broker.create("out")
    produce(broker, "in", *numbers(0, COUNT))
    with door(broker.servers, users={"job": "secret"}) as locks:
        builder = sink_builder(locks.address, "out", guarantee)
        for key, value in {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "job",
            "sasl.password": "wrong",
            "default.api.timeout.ms": "1000",
        }.items():
            builder.set_property(key, value)
        watcher = Watcher()
        env = checkpointed(watcher, tmp_path, parallelism=1)
        sink = LaterRefused(builder.build().settings)
        copy(env, bounded(broker.servers, "in").build(), str, sink)
        with pytest.raises(JobExecutionError, match="refuses the login.*Correct user and password"):
            env.execute("refused")
    assert watcher.restored == []
    assert texts(broker.servers, "out") == []


@pytest.mark.parametrize("is_before", [True, False])
def test_a_commit_that_dies_is_made_again_after_the_restart(broker, tmp_path, stage, is_before):
    broker.create("in", 2)
    broker.create("out", 2)
    in_both(broker, "in", 0, COUNT)
    sink = DyingSink(sink_builder(broker.servers, "out", ONCE).build().settings)
    sink.plan = stage.name, is_before
    watcher = Watcher()
    env = checkpointed(watcher, tmp_path)
    copy(env, bounded(broker.servers, "in").build(), str, sink)
    env.execute("copy")
    assert watcher.restored[0] is not None
    assert results(broker) == pairs(COUNT)


def test_a_savepoint_is_gone_on_from_at_another_parallelism(broker, tmp_path):
    broker.create("in", 2)
    broker.create("out", 2)
    in_both(broker, "in", 0, COUNT)
    env = checkpointed(Watcher(), tmp_path, parallelism=2)
    sink = sink_builder(broker.servers, "out", ONCE).build()
    copy(env, source_builder(broker.servers, "in").build(), str, sink)
    client = env.execute_async("copy")
    wait_until(lambda: len(results(broker)) == 2 * COUNT, "they are not there")
    wait_until_running(client)
    folder = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    client.get_job_execution_result().result()
    broker.create("in", 3)
    in_both(broker, "in", COUNT, 2 * COUNT)
    produce(broker, "in", "new", partition=2)
    env = checkpointed(
        Watcher(), tmp_path, 3, execution__state_recovery__path=folder,
    )  # fmt: skip
    copy(env, source_builder(broker.servers, "in").build(), str, sink)
    client = env.execute_async("copy")
    wait_until(lambda: len(results(broker)) >= 4 * COUNT + 1, "they are not there")
    client.cancel().result()
    assert results(broker) == sorted([*pairs(2 * COUNT), "new"])


def test_without_checkpoints_all_is_committed_at_the_end(broker, tmp_path):
    broker.create("in", 2)
    broker.create("out", 2)
    in_both(broker, "in", 0, COUNT)
    env = restarting_environment(Watcher())
    sink = sink_builder(broker.servers, "out", ONCE).build()
    copy(env, bounded(broker.servers, "in").build(), str, sink)
    env.execute("copy")
    assert results(broker) == pairs(COUNT)


def test_a_batch_job_commits_at_its_end(broker):
    broker.create("in", 2)
    broker.create("out", 2)
    in_both(broker, "in", 0, COUNT)
    env = restarting_environment(Watcher())
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    sink = sink_builder(broker.servers, "out", ONCE).build()
    copy(env, bounded(broker.servers, "in").build(), str, sink)
    env.execute("copy")
    assert results(broker) == pairs(COUNT)


def test_a_bad_record_ends_the_job_and_is_named(broker):
    broker.create("in")
    produce(broker, "in", "text", b"\xff")
    env = restarting_environment(Watcher(), restart_strategy__type="none")
    stream = env.from_source(
        bounded(broker.servers, "in").build(), WatermarkStrategy.no_watermarks(), "kafka"
    )
    error = r"Kafka record in\[0\] at offset 1 cannot be deserialized by SimpleStringSchema"
    with pytest.raises(JobExecutionError, match=error), stream.execute_and_collect() as found:
        list(found)


def test_each_partition_has_its_own_watermark(broker):
    """The one that is behind holds the window open, however far the other one is."""
    broker.create("in", 2)
    produce(broker, "in", *[(f"early {n}", 1000 + n) for n in range(5)], partition=0)
    produce(broker, "in", ("late", 900_000), partition=1)
    env = restarting_environment(Watcher(), parallelism=1)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    stream = env.from_source(bounded(broker.servers, "in").build(), strategy, "kafka")
    windows = stream.window_all(TumblingEventTimeWindows.of(Time.seconds(10)))
    with windows.process(CountOf()).execute_and_collect() as found:
        assert sorted(found) == [1, 5]


def test_a_job_reads_and_writes_librdkafkas_own_broker():
    """Which shares nothing with the other one here; topics have four partitions there."""
    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 2})
    (one,) = host.list_topics(timeout=30).brokers.values()
    servers = f"{one.host}:{one.port}"
    for number in range(COUNT):
        host.produce("in", str(number).encode(), str(number).encode())
        host.produce("out", b"first")
    assert host.flush(30) == 0
    env = restarting_environment(Watcher())
    sink = sink_builder(servers, "out", DeliveryGuarantee.AT_LEAST_ONCE).build()
    copy(env, bounded(servers, "in").build(), str, sink)
    env.execute("copy")
    found = texts(servers, "out", range(4))
    assert sorted(one for one in found if one != "first") == sorted(numbers(0, COUNT))
