"""Readers of a RMQSource on a broker: what is acknowledged when, what comes again and is left out, what is waited for, and errors."""

import socket

import pytest

from penstock.common.serialization import DeserializationSchema
from penstock.connectors.rabbitmq.source import SeenIds
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.runtime.records.dead_letters import Malformed
from tests.tools.brokers.rabbit_queues import (
    config_builder,
    delete_queue,
    drained,
    make_queue,
    numbers,
    publish,
    reading,
    sink_of,
    source_of,
    texts_in,
)


class Odd(DeserializationSchema):
    """Numbers that are odd; others are passed over."""

    def deserialize(self, data):
        number = int(data)
        return number if number % 2 else None


def large_texts(broker):
    """More than a reader takes in advance: 20 MB in the queue."""
    texts = [f"{number}".ljust(10_000) for number in range(2000)]
    publish(broker, "q", *texts, has_ids=False)
    return texts


def test_messages_come_in_order_and_stay_until_their_checkpoint_is_complete(amqp, queue):
    publish(amqp, queue, *numbers(0, 10))
    with reading(source_of(amqp, queue)) as task:
        assert task.read(10) == numbers(0, 10)
        task.checkpoint(1, completes=False)
    assert texts_in(amqp, queue) == numbers(0, 10)


def test_those_of_a_complete_checkpoint_are_gone_and_later_ones_are_not(amqp, queue):
    publish(amqp, queue, *numbers(0, 10))
    with reading(source_of(amqp, queue)) as task:
        task.read(10)
        task.checkpoint(1, completes=False)
        publish(amqp, queue, "late")
        task.read(11)
        task.reader.notify_checkpoint_complete(1)
    assert texts_in(amqp, queue) == ["late"]


def test_a_later_checkpoint_acknowledges_what_an_aborted_one_had(amqp, queue):
    publish(amqp, queue, *numbers(0, 4))
    with reading(source_of(amqp, queue)) as task:
        task.read(4)
        task.checkpoint(1, completes=False)
        task.checkpoint(2)
    assert texts_in(amqp, queue) == []


def test_without_checkpoints_messages_count_as_acknowledged_when_they_are_sent(amqp, queue):
    publish(amqp, queue, *numbers(0, 10), has_ids=False)
    source = source_of(amqp, queue)
    with reading(source, takes_checkpoints=False) as task:
        assert task.read(10) == numbers(0, 10)
        assert task.reader.snapshot_state() == []
    assert texts_in(amqp, queue) == []


def test_what_a_checkpoint_has_read_is_left_out_when_it_comes_again(amqp, queue):
    """The job failed between the end of the checkpoint and the acknowledgement."""
    publish(amqp, queue, *numbers(0, 6))
    with reading(source_of(amqp, queue)) as task:
        task.read(6)
        state = task.checkpoint(1, completes=False)
    publish(amqp, queue, "new")
    with reading(source_of(amqp, queue), state) as task:
        assert task.read(1) == ["new"]
        task.checkpoint(2)
    assert texts_in(amqp, queue) == []


def test_what_was_read_behind_the_checkpoint_comes_again(amqp, queue):
    publish(amqp, queue, *numbers(0, 3))
    with reading(source_of(amqp, queue)) as task:
        task.read(3)
        state = task.checkpoint(1)
        publish(amqp, queue, *numbers(3, 6))
        task.read(6)
    with reading(source_of(amqp, queue), state) as task:
        assert task.read(3) == numbers(3, 6)


def test_without_ids_everything_that_is_not_acknowledged_comes_again(amqp, queue):
    publish(amqp, queue, *numbers(0, 6), has_ids=False)
    source = source_of(amqp, queue, uses_ids=False)
    with reading(source) as task:
        task.read(6)
        assert task.checkpoint(1, completes=False) == []
    with reading(source) as task:
        assert task.read(6) == numbers(0, 6)


def test_a_connection_that_breaks_costs_and_doubles_nothing(amqp, queue):
    publish(amqp, queue, *numbers(0, 5))
    with reading(source_of(amqp, queue)) as task:
        task.read(5)
        task.checkpoint(1, completes=False)
        amqp.cut()
        publish(amqp, queue, *numbers(5, 10))
        assert task.read(10) == numbers(0, 10)
        task.reader.notify_checkpoint_complete(
            1
        )  # what it had came again, and is not acknowledged by it
        task.checkpoint(2)
    assert texts_in(amqp, queue) == []


def test_without_checkpoints_a_connection_that_breaks_is_opened_again(amqp, queue):
    publish(amqp, queue, "first")
    with reading(source_of(amqp, queue), takes_checkpoints=False) as task:
        task.read(1)
        amqp.cut()
        publish(amqp, queue, "second")
        assert task.read(2) == ["first", "second"]


def test_a_connection_that_breaks_ends_a_reader_that_could_not_tell_what_it_has_read(amqp, queue):
    publish(amqp, queue, "first")
    with reading(source_of(amqp, queue, uses_ids=False)) as task:
        task.read(1)
        amqp.cut()
        with pytest.raises(ExternalError, match=r"RMQSource, subtask 0: the broker at .* was lost"):
            task.read(2)


def test_without_recovery_a_connection_that_breaks_ends_the_reader(amqp, queue):
    publish(amqp, queue, "first")
    builder = config_builder(amqp).set_automatic_recovery(False)
    with reading(source_of(amqp, queue, builder=builder)) as task:
        task.read(1)
        amqp.cut()
        with pytest.raises(ExternalError, match="was lost"):
            task.read(2)


def test_a_queue_that_is_gone_is_an_error(amqp, queue):
    publish(amqp, queue, "first")
    with reading(source_of(amqp, queue)) as task:
        task.read(1)
        delete_queue(amqp, queue)
        with pytest.raises(
            ExternalError,
            match=rf"has cancelled the consumer of the queue '{queue}': the queue was deleted",
        ):
            task.read(2)


def test_no_more_messages_come_than_the_prefetch_count(own_amqp):
    publish(own_amqp, "q", *numbers(0, 10))
    builder = config_builder(own_amqp).set_prefetch_count(4)
    with reading(source_of(own_amqp, "q", builder=builder)) as task:
        assert task.read(4) == numbers(0, 4)
        assert (own_amqp.unacknowledged("q"), own_amqp.ready("q")) == (4, 6)
        task.checkpoint(1)
        assert task.read(8) == numbers(0, 8)
        task.checkpoint(2)
        assert task.read(10) == numbers(0, 10)


def test_the_prefetch_count_holds_the_next_messages_back(amqp, queue):
    publish(amqp, queue, *numbers(0, 10))
    builder = config_builder(amqp).set_prefetch_count(4)
    with reading(source_of(amqp, queue, builder=builder)) as task:
        assert task.read(4) == numbers(0, 4)
        assert texts_in(amqp, queue) == numbers(4, 10)


def test_a_queue_that_is_not_there_is_made_durable(own_amqp):
    with reading(source_of(own_amqp, "new")):
        own_amqp.wait_for(lambda: own_amqp.consumers)
    assert own_amqp.arguments["new"] == {
        "durable": True,
        "exclusive": False,
        "auto_delete": False,
    }


@pytest.mark.parametrize("arguments", [{"x-max-length": 100}, {"x-queue-type": "quorum"}])
def test_a_queue_that_is_there_is_taken_as_it_is(amqp, queue, arguments):
    make_queue(amqp, queue, **arguments)
    builder = config_builder(amqp).set_prefetch_count(2)
    with reading(source_of(amqp, queue, builder=builder)) as task:
        publish(amqp, queue, *numbers(0, 4), declares=False)
        assert task.read(2) == numbers(0, 2)
        task.checkpoint(1)
        assert task.read(4) == numbers(0, 4)
        task.checkpoint(2)
    assert texts_in(amqp, queue) == []


def test_without_topology_recovery_a_queue_is_not_made_again(own_amqp):
    publish(own_amqp, "q", "first")
    builder = config_builder(own_amqp).set_topology_recovery_enabled(False)
    with reading(source_of(own_amqp, "q", builder=builder)) as task:
        task.read(1)
        with own_amqp.lock:
            own_amqp.queues.clear()
        own_amqp.cut()
        with pytest.raises(ExternalError, match=r"closed the channel for the queue 'q'.*404"):
            task.read(2)


def test_messages_of_the_same_id_are_one(amqp, queue):
    publish(amqp, queue, "a", "a", "b")
    with reading(source_of(amqp, queue)) as task:
        assert task.read(2) == ["a", "b"]
        task.checkpoint(1)
    assert texts_in(amqp, queue) == []


def test_a_message_without_an_id_is_an_error_that_names_the_queue(amqp, queue):
    publish(amqp, queue, "lost", has_ids=False)
    with reading(source_of(amqp, queue)) as task:
        error = rf"a message of the queue '{queue}' has no correlation id.*b'lost'"
        with pytest.raises(ValueError, match=error):
            task.read(1)
    assert texts_in(amqp, queue) == ["lost"]


def test_messages_without_an_id_are_marked_and_the_others_are_read(amqp, queue):
    publish(amqp, queue, "1", "2")
    publish(amqp, queue, "lost", has_ids=False)
    with reading(source_of(amqp, queue)) as task:
        rows = task.marked(3)
        task.checkpoint(1)
    assert rows[:2] == ["1", "2"]
    assert isinstance(rows[2], Malformed)
    assert rows[2].raw == b"lost"
    assert texts_in(amqp, queue) == []


def test_a_message_that_gives_no_record_is_acknowledged_too(amqp, queue):
    publish(amqp, queue, *numbers(0, 5))
    with reading(source_of(amqp, queue, schema=Odd())) as task:
        assert task.read(2) == [1, 3]
        publish(amqp, queue, "5")
        task.read(3)
        task.checkpoint(1)
    assert drained(amqp, queue) == []


def test_a_message_that_is_refused_by_the_schema_is_named(amqp, queue):
    publish(amqp, queue, "1", "one")
    with reading(source_of(amqp, queue, schema=Odd())) as task:
        error = (
            rf"a message of the queue '{queue}' \(delivery tag 2\) cannot be deserialized by Odd"
        )
        with pytest.raises(ValueError, match=error):
            task.read(2)


def test_two_readers_share_a_queue(own_amqp):
    publish(own_amqp, "q", *numbers(0, 10))
    builder = config_builder(own_amqp).set_prefetch_count(5)
    source = source_of(own_amqp, "q", builder=builder)
    with reading(source) as one, reading(source, subtask=1) as other:
        assert sorted(one.read(5) + other.read(5)) == numbers(0, 10)


# ---------------------------------------------------------------------- connections


def test_a_broker_that_does_not_answer_is_named_without_the_password(own_amqp):
    own_amqp.refused_connections = 1
    with reading(source_of(own_amqp, "q")) as task:
        host = own_amqp.uri.partition("@")[2].rstrip("/")
        with pytest.raises(ExternalError) as caught:
            task.read(1)
    assert f"the broker at {host}, virtual host '/' cannot be used" in str(caught.value)
    assert "guest" not in str(caught.value)


def test_a_wrong_password_is_told_as_such(amqp):
    builder = config_builder(amqp).set_uri(amqp.uri.replace("guest@", "secret@"))
    with (
        reading(source_of(amqp, "q", builder=builder)) as task,
        pytest.raises(RefusedForGood, match="ACCESS_REFUSED") as caught,
    ):
        task.read(1)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("make", [source_of, sink_of])
def test_a_wrong_password_is_found_at_submit(amqp, make):
    builder = config_builder(amqp).set_uri(amqp.uri.replace("guest@", "secret@"))
    end = make(amqp, "q", builder=builder)
    with pytest.raises(
        ConfigurationError, match="refuses the connection.*ACCESS_REFUSED"
    ) as caught:
        end.validate()
    assert "secret" not in str(caught.value)
    make(amqp, "q").validate()


def test_a_broker_that_only_subtasks_reach_is_no_error_at_submit(amqp):
    builder = config_builder(amqp).set_uri("amqp://guest:guest@127.0.0.1:1/")
    source_of(amqp, "q", builder=builder).validate()


def test_a_virtual_host_that_is_not_there_is_named(amqp):
    builder = config_builder(amqp).set_uri(f"{amqp.uri}nowhere")
    with (
        reading(source_of(amqp, "q", builder=builder)) as task,
        pytest.raises(ExternalError, match=r"virtual host 'nowhere' refuses the.*not found"),
    ):
        task.read(1)


def test_connecting_again_goes_on_until_it_works(own_amqp):
    publish(own_amqp, "q", "first")
    with reading(source_of(own_amqp, "q")) as task:
        task.read(1)
        own_amqp.refused_connections = 3
        own_amqp.cut()
        own_amqp.wait_for(lambda: not own_amqp.refused_connections)
        publish(own_amqp, "q", "second")
        assert task.read(2) == ["first", "second"]


def test_an_acknowledgement_that_is_lost_with_its_connection_doubles_nothing(own_amqp):
    publish(own_amqp, "q", *numbers(0, 5))
    with reading(source_of(own_amqp, "q")) as task:
        task.read(5)
        own_amqp.cut_at("Tx.Commit", is_before=True)
        task.checkpoint(1)
        own_amqp.wait_for(lambda: own_amqp.has_cut)
        publish(own_amqp, "q", "new")
        assert task.read(6) == [*numbers(0, 5), "new"]
        task.checkpoint(2)
    assert texts_in(own_amqp, "q") == []


def test_a_channel_that_the_broker_closes_ends_the_reader_with_its_reason(own_amqp):
    publish(own_amqp, "q", "first")
    with reading(source_of(own_amqp, "q")) as task:
        task.read(1)
        own_amqp.close_channels(406, "PRECONDITION_FAILED - acknowledgement timed out")
        with pytest.raises(ExternalError, match="acknowledgement timed out"):
            task.read(2)


def test_what_waits_for_a_slow_task_is_bounded_and_comes_when_it_reads(own_amqp):
    """No prefetch count, nothing to acknowledge: what is not read stays in sockets and with the broker."""
    texts = large_texts(own_amqp)
    with reading(source_of(own_amqp, "q"), takes_checkpoints=False) as task:
        consumer = task.reader._consumer
        with consumer.changed:
            assert consumer.changed.wait_for(
                lambda: consumer._loop and consumer._loop.is_paused, 30
            )
            assert consumer._waiting_bytes < 10_000_000
        assert task.read(len(texts)) == texts


def test_heartbeats_are_sent_while_the_task_reads_nothing(own_amqp):
    texts = large_texts(own_amqp)
    builder = config_builder(own_amqp).set_requested_heartbeat(1)
    source = source_of(own_amqp, "q", builder=builder)
    with reading(source, takes_checkpoints=False) as task:
        own_amqp.wait_for(lambda: own_amqp.heartbeats >= 3)
        assert task.read(len(texts)) == texts


@pytest.mark.long
def test_a_broker_whose_messages_are_left_unread_is_not_taken_for_dead(own_amqp):
    """pika looks 5 s behind the heartbeat whether anything came."""
    texts = large_texts(own_amqp)
    builder = config_builder(own_amqp).set_requested_heartbeat(1).set_automatic_recovery(False)
    with reading(source_of(own_amqp, "q", builder=builder), takes_checkpoints=False) as task:
        own_amqp.wait_for(lambda: own_amqp.heartbeats >= 16)
        assert task.read(len(texts)) == texts


def test_closing_does_not_wait_for_a_broker_that_says_nothing(own_amqp):
    with reading(source_of(own_amqp, "q")) as task:
        own_amqp.wait_for(lambda: own_amqp.consumers)
        with own_amqp.lock:  # so that it answers nothing
            task.close()


def test_closing_does_not_wait_for_a_connection(own_amqp):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        builder = config_builder(own_amqp).set_uri(f"amqp://127.0.0.1:{port}")
        with reading(source_of(own_amqp, "q", builder=builder)) as task:
            accepted, _ = mute.accept()
            with accepted:
                task.close()
                assert not task.reader._consumer._thread.is_alive()


def test_a_connection_that_takes_too_long_is_an_error(own_amqp):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        builder = config_builder(own_amqp).set_uri(f"amqp://127.0.0.1:{port}")
        builder.set_connection_timeout(50)
        with (
            reading(source_of(own_amqp, "q", builder=builder)) as task,
            pytest.raises(ExternalError, match=f"127.0.0.1:{port}.*cannot be used.*[Tt]imeout"),
        ):
            task.read(1)


# ---------------------------------------------------------------------- ids


def test_ids_are_in_the_state_until_the_broker_has_confirmed(own_amqp):
    publish(own_amqp, "q", "a", "b")
    with reading(source_of(own_amqp, "q")) as task:
        task.read(2)
        (state,) = task.checkpoint(1)
        assert set(state.ids) == {"a", "b"}
        own_amqp.wait_for(lambda: "Tx.Commit" in own_amqp.methods)
        publish(own_amqp, "q", "c")
        task.read(3)  # behind the confirmation, which came before it
        (state,) = task.checkpoint(2)
        assert set(state.ids) == {"c"}


def test_restored_ids_are_kept_until_nothing_can_come_again(own_amqp):
    with reading(source_of(own_amqp, "q")) as task:
        publish(own_amqp, "q", "a")
        task.read(1)
        state = task.checkpoint(1, completes=False)
    texts_in(own_amqp, "q")  # somebody else takes it: it never comes again
    with reading(source_of(own_amqp, "q"), state) as task:
        publish(own_amqp, "q", "b")
        task.read(1)
        assert set(task.checkpoint(2)[0].ids) == {"a", "b"}
        task.clock_ms = 3 * 60_000
        task.reader.poll_next()
        own_amqp.wait_for(lambda: "Tx.Commit" in own_amqp.methods)
        publish(own_amqp, "q", "c")
        task.read(2)
        assert set(task.checkpoint(3)[0].ids) == {"c"}


def test_an_id_that_came_again_belongs_to_the_next_checkpoint():
    seen = SeenIds()
    seen.carry_over(["a", "b"])
    assert seen.add_all(["a", "a"]) == []
    seen.mark(1)
    assert sorted(seen.all()) == ["a", "b"]
    seen.forget(1)
    assert seen.all() == ("b",)
    assert seen.has_carried
    seen.forget_carried()
    assert seen.all() == ()
    assert seen.add_all(["b", "c"]) is None
    assert seen.add_all(["d", "b", "d"]) == [0]
    assert sorted(seen.all()) == ["b", "c", "d"]
