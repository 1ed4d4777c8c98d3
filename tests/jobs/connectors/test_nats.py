"""Whole jobs of a MiniCluster from stream to stream on a real NATS server: a failure costs nothing and doubles nothing."""

import threading

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.nats import JetStreamSink, JetStreamSource
from penstock.datastream.connectors import DeliveryGuarantee
from tests.tools.brokers.nats_streams import Streams
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment
from tests.tools.small_servers import nats_server
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.server

COUNT = 3000
FAILED = threading.Event()


@pytest.fixture
def streams():
    FAILED.clear()
    with nats_server() as server, Streams(server) as found:
        found.add("in")
        found.add("out")
        yield found


def fails_once(value):
    if value == str(COUNT // 2) and not FAILED.is_set():
        FAILED.set()
        raise RuntimeError("planted")
    return value


def copying(env, streams, *, is_bounded=True):
    made = JetStreamSource.builder().set_url(streams.url).set_stream("in")
    made.set_subjects("in.a", "in.b").set_deserializer(SimpleStringSchema())
    source = (made.set_bounded() if is_bounded else made).build()
    made = JetStreamSink.builder().set_url(streams.url).set_subject("out.x")
    made.set_serializer(SimpleStringSchema())
    sink = made.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
    stream.map(fails_once, Types.STRING()).uid("map").sink_to(sink).uid("out")


def checkpointed(tmp_path, watcher):
    return restarting_environment(
        watcher,
        execution__checkpointing__interval="20 ms",
        execution__checkpointing__dir=str(tmp_path / "checkpoints"),
        restart_strategy__fixed_delay__attempts="50",
    )


@pytest.mark.parametrize("has_checkpoints", [True, False])
def test_a_job_that_fails_in_between_writes_each_message_once(streams, tmp_path, has_checkpoints):
    streams.publish("in", *map(str, range(0, COUNT, 2)), subject="a")
    streams.publish("in", *map(str, range(1, COUNT, 2)), subject="b")
    env = (
        checkpointed(tmp_path, Watcher()) if has_checkpoints else restarting_environment(Watcher())
    )
    copying(env, streams)
    env.execute("copy")
    assert FAILED.is_set()
    assert sorted(streams.texts("out"), key=int) == [str(number) for number in range(COUNT)]


def test_a_server_that_is_killed_again_and_again_costs_and_doubles_nothing(streams, tmp_path):
    FAILED.set()
    watcher = Watcher()
    env = checkpointed(tmp_path, watcher)
    copying(env, streams, is_bounded=False)
    client = env.execute_async("copy")
    try:
        for turn in range(4):
            streams.publish("in", *(f"{turn}{number:04}" for number in range(1000)), subject="a")
            wait_until(lambda: streams.count("out"), "nothing comes")
            streams.server.kill()
            streams.server.start()
        wait_until(lambda: streams.count("out") >= 4000, "some are missing")
        seen = len(watcher.completed)
        wait_until(lambda: len(watcher.completed) > seen + 2, "no checkpoints")
    finally:
        client.cancel().result()
    expected = [f"{turn}{number:04}" for turn in range(4) for number in range(1000)]
    assert sorted(streams.texts("out")) == expected
