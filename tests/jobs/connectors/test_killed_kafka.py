"""A job writes exactly once to a real broker that is killed during a commit: it begins again, and nothing is lost or doubled."""

import threading

import pytest

from penstock.connectors.kafka.staging import RecordProducer
from penstock.datastream.connectors import DeliveryGuarantee
from tests.tools.brokers.kafka_topics import bounded, produce, sink_builder, texts
from tests.tools.programs.checkpoint_programs import Watcher
from tests.tools.programs.copying import checkpointed, copy
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.server
COUNT = 500
LONG_S = 120


def test_a_broker_that_is_killed_during_a_commit_costs_and_doubles_nothing(
    own_kafka, apache_kafka, tmp_path, monkeypatch
):
    own_kafka.create("in", 2)
    apache_kafka.create("out", 2)
    sent = [[f"{partition}:{n}" for n in range(COUNT)] for partition in range(2)]
    for partition, values in enumerate(sent):
        produce(own_kafka, "in", *values, partition=partition)
    flush, is_killed = RecordProducer.flush, threading.Event()

    def flush_and_kill(self):
        flush(self)
        if not is_killed.is_set():
            is_killed.set()
            apache_kafka.kill()

    monkeypatch.setattr(RecordProducer, "flush", flush_and_kill)
    watcher = Watcher()
    endless = {"restart_strategy__fixed_delay__attempts": "1000"}
    env = checkpointed(watcher, tmp_path, **endless)
    sink = sink_builder(apache_kafka.servers, "out", DeliveryGuarantee.EXACTLY_ONCE)
    sink.set_property("default.api.timeout.ms", "1000")
    copy(env, bounded(own_kafka.servers, "in").build(), str, sink.build())
    job = env.execute_async("copy")
    try:
        wait_until(lambda: watcher.restored, "the job does not begin again", LONG_S)
    finally:
        apache_kafka.kill()
        apache_kafka.start()
    job.get_job_execution_result().result()
    assert sorted(texts(apache_kafka.servers, "out", range(2))) == sorted(sum(sent, []))
