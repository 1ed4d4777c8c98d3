"""Whole jobs of a MiniCluster from topic to topic on a real broker: a failure or a broken connection loses nothing."""

import threading
import uuid

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.mqtt import MqttSink, MqttSource
from penstock.datastream import OutputTag
from penstock.formats.json import JsonRowDeserializationSchema
from tests.tools.brokers.mqtt_topics import collecting, cut, publish, subscribed, wait_for
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment
from tests.tools.relay import Relay
from tests.tools.small_servers import mosquitto
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.server

FAILED = threading.Event()


@pytest.fixture
def port():
    FAILED.clear()
    with mosquitto() as server:
        yield server.port


def fails_once(value):
    if value == "late 50" and not FAILED.is_set():
        FAILED.set()
        raise RuntimeError("planted")
    return value


def checkpointed(tmp_path, watcher):
    return restarting_environment(
        watcher,
        execution__checkpointing__interval="20 ms",
        execution__checkpointing__dir=str(tmp_path / "checkpoints"),
        restart_strategy__fixed_delay__attempts="50",
    )


def sink_to(port, topic):
    made = MqttSink.builder().set_url(f"mqtt://127.0.0.1:{port}").set_topic(topic)
    return made.set_serializer(SimpleStringSchema()).build()


def test_a_job_that_fails_and_whose_connections_break_writes_every_message(port, tmp_path):
    client_id, watcher = uuid.uuid4().hex, Watcher()
    subscribed(port, f"{client_id}-0", "in")
    early, late = ([f"{when} {number}" for number in range(300)] for when in ("early", "late"))
    publish(port, "in", *early)
    with Relay(("127.0.0.1", port)) as relay, collecting(port, "out") as seen:
        there = relay.address[1]
        made = MqttSource.builder().set_url(f"mqtt://127.0.0.1:{there}").set_client_id(client_id)
        source = made.set_topics("in").set_deserializer(SimpleStringSchema()).build()
        env = checkpointed(tmp_path, watcher)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
        copied = stream.map(fails_once, Types.STRING()).uid("map")
        copied.sink_to(sink_to(there, "out")).uid("out")
        client = env.execute_async("copy")
        try:
            wait_for(seen, early)
            cut(relay)
            publish(port, "in", *late)
            wait_for(seen, [*early, *late])
        finally:
            client.cancel().result()
    assert FAILED.is_set()


def test_messages_that_cannot_be_read_are_put_aside(port, tmp_path):
    client_id, tag = uuid.uuid4().hex, OutputTag("bad")
    subscribed(port, f"{client_id}-0", "in/#")
    publish(port, "in/a", '{"n": 1}', "no json", '{"n": 3}')
    kind = Types.ROW_NAMED(["n"], [Types.LONG()])
    schema = JsonRowDeserializationSchema.builder().type_info(kind).build()
    made = MqttSource.builder().set_url(f"mqtt://127.0.0.1:{port}").set_client_id(client_id)
    source = made.set_topics("in/#").set_deserializer(schema, with_topic=True).build()
    env = checkpointed(tmp_path, Watcher())
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in").on_error(tag)
    told = rows.get_side_output(tag).map(lambda one: one.error_text, Types.STRING())
    told.sink_to(sink_to(port, "bad"))
    numbers = rows.map(lambda row: f"{row['topic']} {row['value']['n']}", Types.STRING())
    numbers.sink_to(sink_to(port, "out"))
    with collecting(port, "out") as out, collecting(port, "bad") as bad:
        client = env.execute_async("poison")
        try:
            wait_for(out, ["in/a 1", "in/a 3"])
            wait_until(lambda: bad, "no letter comes")
        finally:
            client.cancel().result()
    assert "a message of the topic 'in/a' cannot be deserialized" in bad[0][1]
    assert "no json" in bad[0][1]
