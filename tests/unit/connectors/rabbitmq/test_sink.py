"""Writers of a RMQSink on a broker: what is there when a checkpoint's barrier goes on, what is sent again, and errors."""

import threading

import pytest
from pika import spec

from penstock.common.serialization import SerializationSchema
from penstock.connectors.rabbitmq import RMQSink
from penstock.engine.model.errors import ExternalError
from tests.tools.brokers.rabbit_queues import (
    config_builder,
    delete_queue,
    drained,
    make_queue,
    numbers,
    rows_of,
    sink_of,
    texts_in,
    writing,
)


class Broken(SerializationSchema):
    def serialize(self, value):
        return value


def test_all_messages_are_there_when_the_barrier_goes_on(amqp, queue):
    with writing(sink_of(amqp, queue)) as writer:
        writer.write(rows_of(*numbers(0, 500)), 0)
        writer.write(rows_of(*numbers(500, 1000)), 0)
        assert writer.prepare_commit() == ()
        assert texts_in(amqp, queue) == numbers(0, 1000)
        writer.write(rows_of("more"), 0)
        writer.prepare_commit()
    assert texts_in(amqp, queue) == ["more"]


def test_messages_survive_the_broker(amqp, queue):
    with writing(sink_of(amqp, queue)) as writer:
        writer.write(rows_of("a"), 0)
        writer.prepare_commit()
    ((text, properties),) = drained(amqp, queue)
    assert (text, properties.delivery_mode) == ("a", 2)


def test_an_idle_writer_has_nothing_to_wait_for_and_closes_without_complaint(amqp, queue):
    with writing(sink_of(amqp, queue)) as writer:
        writer.prepare_commit()


def test_what_was_not_confirmed_is_sent_again_when_the_connection_breaks(own_amqp):
    own_amqp.holds_confirms = True
    with writing(sink_of(own_amqp, "q")) as writer:
        writer.write(rows_of("a", "b"), 0)
        own_amqp.wait_for(lambda: own_amqp.ready("q") == 2)
        own_amqp.holds_confirms = False
        own_amqp.cut()
        writer.write(rows_of("c"), 0)
        writer.prepare_commit()
    assert texts_in(own_amqp, "q") == ["a", "b", "a", "b", "c"]


def test_a_connection_that_breaks_loses_nothing(amqp, queue):
    with writing(sink_of(amqp, queue)) as writer:
        for begin in range(0, 1000, 100):
            writer.write(rows_of(*numbers(begin, begin + 100)), 0)
            if begin == 0:
                writer.prepare_commit()  # there is a connection: one that never came up is an error
            if begin == 500:
                amqp.cut()
        writer.prepare_commit()
    found = texts_in(amqp, queue)
    assert set(found) == set(numbers(0, 1000))
    assert list(dict.fromkeys(found)) == numbers(0, 1000)


def test_confirmations_of_several_at_once_count(own_amqp):
    own_amqp.holds_confirms = True
    with writing(sink_of(own_amqp, "q")) as writer:
        writer.write(rows_of(*numbers(0, 10)), 0)
        own_amqp.wait_for(lambda: own_amqp.ready("q") == 10)
        (connection,) = own_amqp.connections
        connection._send(1, spec.Basic.Ack(10, True))
        writer.prepare_commit()


def test_a_full_queue_that_refuses_what_is_new_is_an_error(amqp, queue):
    make_queue(amqp, queue, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    if hasattr(amqp, "refuses_messages"):
        amqp.refuses_messages = True
    with (
        writing(sink_of(amqp, queue)) as writer,
        pytest.raises(ExternalError, match=rf"refuses messages for the queue '{queue}'"),
    ):
        for _ in range(100):
            writer.write(rows_of("a", "b", "c"), 0)
            writer.prepare_commit()


def test_a_queue_that_is_gone_is_an_error(amqp, queue):
    with writing(sink_of(amqp, queue)) as writer:
        writer.write(rows_of("a"), 0)
        writer.prepare_commit()
        delete_queue(amqp, queue)
        writer.write(rows_of("b"), 0)
        with pytest.raises(ExternalError, match=rf"has no queue '{queue}' any more"):
            writer.prepare_commit()


def write_and_wait(writer, *values):
    """Whichever of the two sees first that something is wrong."""
    writer.write(rows_of(*values), 0)
    writer.prepare_commit()


def test_without_recovery_a_connection_that_breaks_is_an_error(amqp, queue):
    builder = config_builder(amqp).set_automatic_recovery(False)
    with writing(sink_of(amqp, queue, builder)) as writer:
        writer.write(rows_of("a"), 0)
        writer.prepare_commit()
        amqp.cut()
        with pytest.raises(
            ExternalError, match=r"RMQSink, subtask 0 of 1: the broker at .* was lost"
        ):
            write_and_wait(writer, "b")


def test_a_broker_that_is_not_there_is_an_error_of_the_next_write(own_amqp):
    own_amqp.refused_connections = 1
    with (
        writing(sink_of(own_amqp, "q")) as writer,
        pytest.raises(ExternalError, match="cannot be used"),
    ):
        write_and_wait(writer, "a")


def test_a_writer_waits_while_much_is_not_confirmed(own_amqp):
    own_amqp.holds_confirms = True
    with writing(sink_of(own_amqp, "q")) as writer:
        writer.write(rows_of(*numbers(0, 17_000)), 0)
        waiting = threading.Thread(target=writer.write, args=(rows_of("later"), 0))
        waiting.start()
        own_amqp.wait_for(lambda: own_amqp.ready("q") == 17_000)
        assert waiting.is_alive()
        own_amqp.holds_confirms = False
        own_amqp.cut()
        waiting.join()
        writer.prepare_commit()
        assert own_amqp.ready("q") == 34_001


def test_heartbeats_are_sent_while_nothing_is_written(own_amqp):
    builder = config_builder(own_amqp).set_requested_heartbeat(1)
    with writing(sink_of(own_amqp, "q", builder)):
        own_amqp.wait_for(lambda: own_amqp.heartbeats >= 2)


def test_a_broker_that_blocks_its_publishers_is_waited_for_and_logged(own_amqp, caplog):
    with writing(sink_of(own_amqp, "q")) as writer:
        own_amqp.wait_for(lambda: "Confirm.Select" in own_amqp.methods)
        (connection,) = own_amqp.connections
        connection._send(0, spec.Connection.Blocked("low on memory"))
        writer.write(rows_of("a"), 0)
        writer.prepare_commit()
    assert "connection=BLOCKED cause=low on memory" in caplog.text


def test_a_schema_that_gives_no_bytes_is_named(own_amqp):
    sink = RMQSink(config_builder(own_amqp).build(), "q", Broken())
    with (
        writing(sink) as writer,
        pytest.raises(TypeError, match="Broken gave str for 'a'; expected bytes"),
    ):
        writer.write(rows_of("a"), 0)
