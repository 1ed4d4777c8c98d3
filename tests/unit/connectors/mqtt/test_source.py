"""MqttSource on a real broker."""

import uuid

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from penstock.common import Row, Types
from penstock.common.serialization import Several, SimpleStringSchema
from penstock.common.time import Duration
from penstock.connectors.mqtt import MqttSource
from penstock.connectors.mqtt import source as mqtt_source
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.testing import check_source
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.brokers.mqtt_topics import cut, publish, subscribed
from tests.tools.connectors.silent_server import silent_server
from tests.tools.relay import Relay
from tests.tools.small_servers import free_port, mosquitto
from tests.tools.waiting import wait_until

WORDS = [f"word {number}" for number in range(12)]


def builder(port, topic, client_id=None):
    made = MqttSource.builder().set_url(f"mqtt://127.0.0.1:{port}").set_topics(topic)
    return made.set_client_id(client_id or uuid.uuid4().hex).set_deserializer(SimpleStringSchema())


def begun(port, topic, source):
    """A run whose clients have subscribed."""
    run = SourceRun(source, 1)
    mark = uuid.uuid4().hex
    wait_until(
        lambda: publish(port, topic.replace("#", "mark"), mark) or run.look_on(2) or run.records,
        "no message comes",
    )
    return run


def test_the_kit_sees_that_no_message_is_lost(port):
    def make():
        client_id, topic = uuid.uuid4().hex, f"kit/{uuid.uuid4().hex}"
        subscribed(port, f"{client_id}-0", topic)
        publish(port, topic, *WORDS)
        return builder(port, topic, client_id).build()

    report = check_source(make, WORDS, parallelisms=(1, 2), most_points=2)
    report.require(DeliveryGuarantee.AT_LEAST_ONCE)


def test_what_a_complete_checkpoint_covers_does_not_come_again_and_the_rest_does(port, topic):
    source = builder(port, topic, "job" + topic[2:]).build()
    run = begun(port, topic, source)
    publish(port, topic, "a", "b")
    wait_until(lambda: run.look_on(1) or "b" in run.records, "b does not come")
    kept = run.checkpoint(1)
    run.complete(1)
    publish(port, topic, "c")
    wait_until(lambda: run.look_on(1) or "c" in run.records, "c does not come")
    run.close()
    publish(port, topic, "d")
    run = SourceRun(source, 1, kept)
    wait_until(lambda: run.look_on(1) or "d" in run.records, "d does not come")
    run.look_on()
    run.close()
    assert run.records == ["c", "d"]


def test_a_connection_that_breaks_doubles_nothing_while_the_session_is_there(port, topic):
    """What was read and not acknowledged comes again with its old packet id, and is known by it."""
    client_id = uuid.uuid4().hex
    subscribed(port, f"{client_id}-0", topic)
    publish(port, topic, *WORDS)
    with Relay(("127.0.0.1", port)) as relay:
        run = SourceRun(builder(relay.address[1], topic, client_id).build(), 1)
        run.read(records=12)
        sockets = len(relay._sockets)
        cut(relay)
        wait_until(lambda: run.look_on(1) or len(relay._sockets) > sockets, "it does not connect")
        publish(port, topic, "late")
        wait_until(lambda: run.look_on(1) or "late" in run.records, "late does not come")
        run.look_on()
        run.checkpoint(1)
        run.complete(1)
        run.close()
    assert run.records == [*WORDS, "late"]


@pytest.mark.server
def test_a_broker_that_is_killed_and_comes_back_costs_no_message():
    with mosquitto(keeps=True) as server:
        run = begun(server.port, "t", builder(server.port, "t").build())
        for word in WORDS[:3]:
            publish(server.port, "t", word)
            wait_until(lambda word=word: run.look_on(1) or word in run.records, "missing")
            server.kill()
            server.start()
        publish(server.port, "t", "late")
        wait_until(lambda: run.look_on(1) or "late" in run.records, "late does not come")
        run.close()
        assert {*WORDS[:3], "late"} <= set(run.records)


NO_CONNECTION = r"client job-0: no connection to mqtt://127\.0\.0\.1:\d+ for 0 s\. .*firewall"


@pytest.mark.server
def test_a_source_whose_connection_does_not_come_back_fails(monkeypatch):
    with mosquitto() as server:
        poller = builder(server.port, "t", "job").build().create_poller(0)
        poller.open(None)
        wait_until(lambda: publish(server.port, "t", "a") or len(poller.poll()), "a does not come")
        monkeypatch.setattr(mqtt_source, "PATIENCE_S", 0.0)
        poller.poll()
        server.kill()
        with pytest.raises(ExternalError, match=NO_CONNECTION):
            wait_until(lambda: poller.poll() is None, "it does not fail")
        poller.close()


def test_a_source_fails_whose_broker_does_not_answer(monkeypatch):
    monkeypatch.setattr(mqtt_source, "PATIENCE_S", 0.0)
    with silent_server() as port:
        poller = builder(port, "t", "job").build().create_poller(0)
        poller.open(None)
        with pytest.raises(ExternalError, match=NO_CONNECTION):
            poller.poll()
        poller.close()


class Odd(SimpleStringSchema):
    def deserialize(self, data):
        text = super().deserialize(data)
        return text if text == "end" or int(text) % 2 else None


@pytest.mark.parametrize("with_topic", [True, False])
def test_messages_that_give_no_record_are_acknowledged_too(port, topic, with_topic):
    client_id = uuid.uuid4().hex
    subscribed(port, f"{client_id}-0", topic)
    publish(port, topic, "2", "4", "6")
    made = builder(port, topic, client_id)
    source = made.set_deserializer(Odd(), with_topic=with_topic).build()
    run = SourceRun(source, 1)
    poller = source.create_poller(0)
    run.close()
    poller.open(None)
    wait_until(lambda: poller.poll() and False or poller.position() == 3, "it stays")
    poller.acknowledge(3)
    poller.close()
    publish(port, topic, "1")
    run = SourceRun(source, 1)
    run.read(records=1)
    run.look_on()
    run.close()
    assert run.records == ([Row(topic=topic, value="1")] if with_topic else ["1"])


def test_records_may_have_their_topic(port, topic):
    source = (
        builder(port, f"{topic}/#").set_deserializer(SimpleStringSchema(), with_topic=True).build()
    )
    assert source.produced_type == Types.ROW_NAMED(
        ["topic", "value"], [Types.STRING(), Types.STRING()]
    )
    run = begun(port, f"{topic}/#", source)
    publish(port, f"{topic}/a/b", "x")
    wait_until(lambda: run.look_on(1) or run.records[-1]["value"] == "x", "x does not come")
    run.close()
    assert run.records[-1] == Row(topic=f"{topic}/a/b", value="x")


class Letters(SimpleStringSchema):
    def deserialize(self, data):
        return Several(super().deserialize(data))


def test_each_of_several_values_has_its_topic(port, topic):
    made = builder(port, f"{topic}/#").set_deserializer(Letters(), with_topic=True)
    run = begun(port, f"{topic}/#", made.build())
    publish(port, f"{topic}/a", "xyz")
    wait_until(lambda: run.look_on(1) or run.records[-1]["value"] == "z", "z does not come")
    run.close()
    assert run.records[-3:] == [Row(topic=f"{topic}/a", value=letter) for letter in "xyz"]


@pytest.mark.parametrize("with_topic", [True, False])
def test_a_message_that_cannot_be_read_says_where_it_came_from(port, topic, with_topic):
    source = builder(port, topic).set_deserializer(Odd(), with_topic=with_topic).build()
    run = SourceRun(source, 1)
    with pytest.raises(ValueError, match=f"the topic '{topic}' cannot be deserialized.*b'odd'"):
        wait_until(lambda: publish(port, topic, "odd") or run.look_on(1), "it is read")
    run.close()


def test_several_clients_share_the_messages(port, topic):
    source = builder(port, topic).set_clients(3).build()
    assert source.default_parallelism == 3
    run = SourceRun(source, 3)
    wait_until(
        lambda: publish(port, topic, uuid.uuid4().hex) or run.look_on(2) or len(run.records) > 5,
        "no messages",
    )
    publish(port, topic, *WORDS)
    wait_until(lambda: run.look_on(1) or set(WORDS) <= set(run.records), "missing")
    run.look_on()
    run.close()
    assert len(run.records) == len(set(run.records))
    assert sum(bool(one.records) for one in run._subtasks) > 1


def test_another_client_with_the_id_is_told_of_where_the_broker_tells(port, topic):
    """Mosquitto 2.0 only closes the connection, so what MQTT 5 has the broker say is said here."""
    poller = builder(port, topic).build().create_poller(0)
    poller.open(None)
    reason = ReasonCode(PacketTypes.DISCONNECT, "Session taken over")
    poller._client.on_disconnect(poller._client, None, None, reason, None)
    with pytest.raises(ExternalError, match="another client with this id"):
        poller.poll()
    poller.close()


def test_a_broker_that_is_away_restarts_the_job(topic):
    poller = builder(free_port(), topic).build().create_poller(0)
    with pytest.raises(ExternalError, match="cannot be reached"):
        poller.open(None)
    poller.close()


@pytest.mark.server
def test_a_wrong_password_and_missing_rights_are_told_and_the_password_is_not(tmp_path):
    (tmp_path / "passwords").write_text("jobs:right\n")
    import subprocess

    subprocess.run(["mosquitto_passwd", "-U", str(tmp_path / "passwords")], check=True)
    with mosquitto("allow_anonymous false", f"password_file {tmp_path}/passwords") as server:
        url = f"mqtt://jobs:wrong-secret@127.0.0.1:{server.port}"
        source = builder(server.port, "t").set_url(url).build()
        with pytest.raises(
            ConfigurationError, match="refuses the connection.*Not authorized"
        ) as one:
            source.validate()
        assert "wrong-secret" not in f"{one.value} {source!r} {source.settings!r}"
        run = SourceRun(source, 1)
        with pytest.raises(RefusedForGood, match="refuses the connection"):
            wait_until(lambda: run.look_on(1), "nothing is told")
        run.close()
        builder(server.port, "t").set_credentials("jobs", "right").build().validate()


def test_a_broker_that_the_driver_does_not_reach_is_no_error_at_submit(topic):
    builder(free_port(), topic).build().validate()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda made: made.set_url("localhost:1883"), "expected mqtt://"),
        (lambda made: made.set_url("mqtt://u:geheim/@host"), "password as %2F|without a path"),
        (lambda made: made.set_url("mqtt://host/topic"), "without a path"),
        (lambda made: made.set_topics("a/#/b"), "topic filter"),
        (lambda made: made.set_topics("a+"), "topic filter"),
        (lambda made: made.set_topics(""), "topic filter"),
        (lambda made: made.set_client_id(""), "set_client_id"),
        (lambda made: made.set_clients(0), "1 or more"),
        (lambda made: made.set_session_expiry(Duration.of_millis(1)), "1 s to"),
        (lambda made: made.set_url("mqtt://h").build(), "set_client_id.*is missing"),
    ],
)
def test_wrong_settings_are_refused(make, text):
    with pytest.raises(ConfigurationError, match=text) as told:
        make(MqttSource.builder())
    assert "geheim" not in str(told.value)
