"""MqttSink on a real broker."""

import itertools
import uuid

import pytest

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.mqtt import MqttSink, sink
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from penstock.testing import check_sink
from tests.tools.brokers.mqtt_topics import collecting, connected, cut, wait_for
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.hosting.checked_locks import check_locks, users_code
from tests.tools.relay import Relay
from tests.tools.small_servers import free_port, mosquitto
from tests.tools.waiting import wait_until


def builder(port, topic):
    made = MqttSink.builder().set_url(f"mqtt://127.0.0.1:{port}").set_topic(topic)
    return made.set_serializer(SimpleStringSchema())


def test_the_kit_sees_at_least_once(port, topic):
    numbers = itertools.count()
    with collecting(port, f"{topic}/#") as seen:

        def make():
            own = f"{topic}/{next(numbers)}"

            def read():
                # What the sink has published before, the broker has in order: a last message tells that all is here.
                end = uuid.uuid4().hex
                with connected(port) as client:
                    client.publish(f"{topic}/end", end, 1).wait_for_publish(30)
                wait_for(seen, [end])
                return [text for name, text in seen if name == own]

            return builder(port, own).build(), read

        report = check_sink(make, most_points=3)
    assert report.guarantee is DeliveryGuarantee.AT_LEAST_ONCE, str(report)


def test_many_messages_of_several_topics_are_all_there_at_the_barrier(port, topic):
    words = [f"{number % 3} {number}" for number in range(25_000)]
    with collecting(port, f"{topic}/#") as seen:
        writer = (
            builder(port, lambda word: f"{topic}/{word[0]}").build().create_writer(writer_context())
        )
        writer.write(RowBatch(words[:100]), 0)
        writer.write(RowBatch(words[100:]), 0)
        writer.prepare_commit()
        assert writer._confirmed == 25_000
        assert writer.sent.bytes == sum(map(len, words))
        writer.close()
        wait_for(seen, words)
        assert len(seen) == 25_000
        assert all(name == f"{topic}/{text[0]}" for name, text in seen)


def test_what_was_not_confirmed_when_a_connection_broke_is_sent_again(port, topic):
    words = [str(number) for number in range(5000)]
    with collecting(port, topic) as seen, Relay(("127.0.0.1", port)) as relay:
        writer = builder(relay.address[1], topic).build().create_writer(writer_context())
        for begin in range(0, 5000, 1000):
            writer.write(RowBatch(words[begin : begin + 1000]), 0)
            cut(relay)
        writer.prepare_commit()
        writer.close()
        wait_for(seen, words)


@pytest.mark.server
def test_a_broker_that_is_killed_and_comes_back_gets_what_it_did_not_confirm():
    words = [str(number) for number in range(300)]
    with mosquitto(keeps=True) as server, collecting(server.port, "t") as seen:
        writer = builder(server.port, "t").build().create_writer(writer_context())
        writer.write(RowBatch(words[:100]), 0)
        writer.prepare_commit()
        wait_for(seen, words[:100])
        server.kill()
        writer.write(RowBatch(words[100:]), 0)
        server.start()
        writer.prepare_commit()
        writer.close()
        wait_for(seen, words)


@pytest.mark.server
def test_a_broker_that_stays_away_restarts_the_job(monkeypatch, topic):
    with mosquitto() as server:
        writer = builder(server.port, topic).build().create_writer(writer_context())
        writer.write(RowBatch(["confirmed"]), 0)
        writer.prepare_commit()
        monkeypatch.setattr(sink, "PATIENCE_S", 0.2)
        server.kill()
        writer.write(RowBatch(["a", "b"]), 0)
        with pytest.raises(ExternalError, match="confirmed none of 2 messages"):
            writer.prepare_commit()
        assert writer.sent.errors == 2
        writer.close()
    with pytest.raises(ExternalError, match="cannot be reached"):
        builder(free_port(), topic).build().create_writer(writer_context())


@pytest.mark.server
def test_a_topic_that_the_user_may_not_write_ends_the_job(tmp_path):
    (tmp_path / "acl").write_text("topic write allowed\n")
    with mosquitto("allow_anonymous true", f"acl_file {tmp_path}/acl") as server:
        made = builder(server.port, "forbidden").build()
        made.validate()
        writer = made.create_writer(writer_context())
        writer.write(RowBatch(["a"]), 0)
        with pytest.raises(RefusedForGood, match="refuses a message: Not authorized"):
            writer.prepare_commit()
        writer.close()


@pytest.mark.server
def test_a_broker_that_takes_fewer_at_once_says_so(topic):
    with mosquitto("allow_anonymous true", "max_inflight_messages 5") as server:
        writer = builder(server.port, topic).build().create_writer(writer_context())
        with pytest.raises(RefusedForGood, match="takes 5 messages at once.*set_max_in_flight"):
            wait_until(writer.prepare_commit, "nothing is told")
        writer.close()
        made = builder(server.port, topic).set_max_in_flight(5)
        writer = made.build().create_writer(writer_context())
        writer.write(RowBatch([str(number) for number in range(100)]), 0)
        writer.prepare_commit()
        writer.close()


@pytest.mark.server
def test_a_message_that_is_larger_than_the_broker_says_is_refused_before_it_is_sent():
    """By what the policy for errors looks at: a packet has 5 bytes in front, 2 for the size of the topic, 2 of the id, 1."""
    with mosquitto("allow_anonymous true", "max_packet_size 1000") as server:
        writer = builder(server.port, "t").build().create_writer(writer_context())
        largest = "x" * (1000 - 5 - 5 - 1)
        with pytest.raises(RefusedForGood, match="'t' has 990 bytes.* packets of 1000 bytes"):
            writer.convert(RowBatch(["small", largest + "x"]))
        writer.write(RowBatch([largest]), 0)
        writer.prepare_commit()
        writer.close()


@pytest.mark.server
@pytest.mark.parametrize(
    ("setting", "topic", "size"),
    [
        ("message_size_limit 1000", "t", 5000),  # told by an answer that the client does not know
        ("max_keepalive 60", "t/" * 250, 1),  # Mosquitto takes 200 levels
    ],
)
def test_a_message_at_which_the_broker_ends_the_connection_ends_the_job(setting, topic, size):
    with mosquitto("allow_anonymous true", setting) as server:
        writer = builder(server.port, topic).build().create_writer(writer_context())
        writer.write(RowBatch(["x" * size]), 0)
        with pytest.raises(
            RefusedForGood, match=r"ended the connection at a message: (Protocol er|Malformed p)"
        ):
            writer.prepare_commit()
        writer.close()


def test_a_topic_that_is_too_long_is_a_record_that_is_refused(port):
    writer = builder(port, lambda word: word).build().create_writer(writer_context())
    with pytest.raises(ConfigurationError, match="up to 65535 bytes, got 70000"):
        writer.convert(RowBatch(["x" * 70_000]))
    writer.close()


def test_a_retained_message_is_there_for_who_comes_later(port, topic):
    writer = builder(port, topic).set_retained(True).build().create_writer(writer_context())
    writer.write(RowBatch(["a", "b"]), 0)
    writer.prepare_commit()
    writer.close()
    with collecting(port, topic) as seen:
        wait_until(lambda: seen, "nothing comes")
    assert seen == [(topic, "b")]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda made: made.set_topic("a/+"), "without \\+ and #"),
        (lambda made: made.set_max_in_flight(0), "1 to 65535"),
        (lambda made: made.set_topic(7), "name of a topic"),
        (lambda made: made.set_url("mqtt://h").build(), "set_topic.*is missing"),
        (lambda made: made.build(), "set_url.*is missing"),
    ],
)
def test_wrong_settings_are_refused(make, text):
    with pytest.raises(ConfigurationError, match=text):
        make(MqttSink.builder())


def test_a_schema_that_gives_no_bytes_is_told(port, topic):
    class Odd(SimpleStringSchema):
        def serialize(self, value):
            return value

    made = builder(port, topic).set_serializer(Odd()).build()
    assert "geheim" not in repr(builder(port, topic).set_url("mqtt://u:geheim@h").build())
    writer = made.create_writer(writer_context())
    with pytest.raises(TypeError, match="gave str for 'a'; expected bytes"):
        writer.convert(RowBatch(["a"]))
    writer.close()


def test_no_lock_is_taken_where_a_cancel_may_interrupt(port, topic, monkeypatch):
    """The client's thread takes the locks of the writer and of the client too, and would wait for ever for one that stays taken."""
    locks = check_locks(monkeypatch, "penstock.", "paho.")
    words = [str(number) for number in range(300)]
    with collecting(port, topic) as seen:
        # While it connects, it has no thread yet.
        writer = builder(port, topic).build().create_writer(writer_context())
        with users_code():
            writer.write(RowBatch(words), 0)
            writer.prepare_commit()
            writer.close()
        wait_for(seen, words)
    assert locks.taken > len(words)
    assert not locks.violations, "\n\n".join(locks.violations)
