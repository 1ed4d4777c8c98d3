"""PulsarSink on a broker of the tests' own: what is written, and that it is written once, whatever fails in between."""

import pickle

import numpy as np
import pytest

from penstock.common import Duration
from penstock.connectors.api.messaging.staging import (
    FRAME_BYTES,
    MAX_RETRIES,
    ProducedRecords,
    pack,
)
from penstock.connectors.pulsar import MessageDelayer, TopicRoutingMode
from penstock.connectors.pulsar.sink import (
    CHUNK_BYTES,
    CHUNK_MESSAGES,
    MAX_RECORD_BYTES,
    PulsarStaging,
    chunks_of,
)
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.elements import NO_TIMESTAMP, RowBatch
from tests.tools.brokers.pulsar_topics import consumed, sink_builder, texts
from tests.tools.connectors.played_by_hand import writer_context

ONCE, AT_LEAST = DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE
SHORT = "pulsar.producer.sendTimeoutMs", 300


def written(sink, *values, writer=None, stamps=None):
    """A writer that wrote these."""
    writer = writer or sink.create_writer(writer_context())
    writer.write(RowBatch(list(values), stamps), 0)
    return writer


def names(count):
    return [f"r{number}" for number in range(count)]


# ------------------------------------------------------------------ as records come


@pytest.mark.parametrize("guarantee", [AT_LEAST, DeliveryGuarantee.NONE])
def test_all_is_delivered_before_a_checkpoint_goes_on(pulsar_broker, guarantee):
    pulsar_broker.create("out")
    sink = pickle.loads(pickle.dumps(sink_builder(pulsar_broker, "out", guarantee).build()))
    sink.validate()
    assert sink.create_committer() is None
    writer = written(sink, *names(5000))
    assert list(writer.prepare_checkpoint(1)) == []
    assert texts(pulsar_broker, "out") == names(5000)
    written(sink, "last", writer=writer).prepare_commit()
    assert texts(pulsar_broker, "out")[-1] == "last"
    writer.close()


def test_event_times_are_those_of_the_records(pulsar_broker):
    pulsar_broker.create("out")
    for guarantee in (AT_LEAST, ONCE):
        sink = sink_builder(pulsar_broker, "out", guarantee).build()
        writer = written(sink, "a", "b", stamps=np.array([1000, NO_TIMESTAMP]))
        prepared = writer.prepare_commit()
        if prepared:
            sink.create_committer().commit(prepared)
        writer.close()
    found = [(one.data(), one.event_timestamp()) for one in consumed(pulsar_broker, "out")]
    assert found == [(b"a", 1000), (b"b", 0)] * 2


def test_partitions_take_turns_of_a_batch_each(pulsar_broker):
    pulsar_broker.create("a", 2)
    pulsar_broker.create("b")
    builder = sink_builder(pulsar_broker, ["a", "b"], AT_LEAST)
    writer = written(builder.set_config("pulsar.producer.batchingMaxMessages", 3).build(), *"abcd")
    written(None, *"efghijk", writer=writer).prepare_commit()
    assert texts(pulsar_broker, "a", (0, 1)) == [*"abc", *"jk", *"def"]
    assert texts(pulsar_broker, "b") == [*"ghi"]
    writer.close()


def test_without_keys_their_hash_is_chance(pulsar_broker):
    pulsar_broker.create("out", 2)
    builder = sink_builder(pulsar_broker, "out", AT_LEAST)
    sink = builder.set_topic_routing_mode(TopicRoutingMode.MESSAGE_KEY_HASH).build()
    writer = written(sink, *names(200))
    writer.prepare_commit()
    parts = [texts(pulsar_broker, "out", (number,)) for number in range(2)]
    assert all(parts), "of 200 none went to one of two"
    assert sorted(parts[0] + parts[1]) == sorted(names(200))
    writer.close()


@pytest.mark.parametrize("guarantee", [AT_LEAST, ONCE])
def test_messages_may_be_delayed(pulsar_broker, guarantee):
    pulsar_broker.create("out")
    builder = sink_builder(pulsar_broker, "out", guarantee)
    sink = builder.delay_sending_message(MessageDelayer.fixed(Duration.of_seconds(5))).build()
    writer = written(sink, "a", "b")
    prepared = writer.prepare_commit()
    for _ in prepared:
        sink.create_committer().commit(prepared)
        sink.create_committer().commit(prepared)
    entries = pulsar_broker.log("out").entries
    assert [entry.count for entry in entries] == [1, 1]
    assert all(5000 <= entry.deliver_at - entry.publish_time + 100 <= 6000 for entry in entries)
    writer.close()


def test_a_message_that_cannot_be_delivered_is_an_error_at_the_next_checkpoint(pulsar_broker):
    pulsar_broker.create("out")
    writer = written(sink_builder(pulsar_broker, "out", AT_LEAST).set_config(*SHORT).build(), "a")
    writer.prepare_checkpoint(1)
    pulsar_broker.fail("SEND", is_before=True, is_for_good=True)
    with pytest.raises(ExternalError, match="PulsarSink, subtask 0 of 1"):
        written(None, "b", writer=writer).prepare_checkpoint(2)
    writer.close()


def test_a_connection_that_breaks_again_and_again_is_an_error_in_the_end(pulsar_broker):
    pulsar_broker.create("out")
    builder = sink_builder(pulsar_broker, "out", AT_LEAST).set_config(*SHORT)
    builder.set_config("pulsar.client.operationTimeoutMs", 700)
    pulsar_broker.fail("SEND", 10_000, is_before=True)
    writer = written(builder.build(), "a")
    # Which of both times is over first depends on when the connection breaks.
    told = "cannot deliver to .*out: (not all messages were delivered in 1 s|no answer in time)"
    with pytest.raises(ExternalError, match=told):
        writer.prepare_checkpoint(1)
    writer.close()


def test_a_connection_that_breaks_is_made_anew(pulsar_broker):
    pulsar_broker.create("out")
    pulsar_broker.fail("SEND", 1, is_before=True)
    writer = written(sink_builder(pulsar_broker, "out", AT_LEAST).build(), "a")
    writer.prepare_checkpoint(1)
    assert texts(pulsar_broker, "out") == ["a"]
    writer.close()


def test_a_topic_that_is_not_there_is_an_error_before_the_job_starts(pulsar_broker):
    with pytest.raises(ConfigurationError, match="'nothing'.*there is no such topic"):
        sink_builder(pulsar_broker, "nothing", AT_LEAST).build().validate()


# ------------------------------------------------------------------ batches that do not depend on time


def staging(*values, topics=("a",)):
    records = ProducedRecords(
        [topics[number % len(topics)] for number in range(len(values))], None, list(values), None
    )
    return PulsarStaging("p", (pack([records]),))


def test_chunks_are_bounded_in_messages_and_bytes():
    many = list(chunks_of(staging(*[b"x"] * (2 * CHUNK_MESSAGES + 1))))
    assert [(one.first, len(one.values)) for one in many] == [(1, 1000), (1001, 1000), (2001, 1)]
    large = list(chunks_of(staging(b"x" * CHUNK_BYTES, b"y", b"z" * CHUNK_BYTES)))
    assert [one.first for one in large] == [1, 2, 3]


def test_chunks_of_several_partitions_count_each_for_itself():
    found = list(chunks_of(staging(*[b"x"] * 2002, topics=("a", "b"))))
    assert [(one.topic, one.first, len(one.values)) for one in found] == [
        ("a", 1, 1000),
        ("b", 1, 1000),
        ("a", 1001, 1),
        ("b", 1001, 1),
    ]


# ------------------------------------------------------------------ exactly once


def once(broker, **options):
    builder = sink_builder(broker, "out", ONCE)
    return builder.set_properties({
        f"pulsar.{key.replace('__', '.')}": value for key, value in options.items()
    }).build()


def test_nothing_is_visible_before_the_commit_and_all_after_it(pulsar_broker):
    pulsar_broker.create("out", 2)
    sink = once(pulsar_broker, producer__batchingMaxMessages=100)
    writer = written(sink, *names(3000))
    prepared = writer.prepare_commit()
    assert pulsar_broker.count("out") == 0
    assert sink.create_committer().commit(prepared) is None
    assert sorted(texts(pulsar_broker, "out", range(2))) == sorted(names(3000))
    assert list(writer.prepare_commit()) == [], "a checkpoint without records"
    writer.close()


def test_a_commit_that_comes_again_from_anywhere_writes_nothing(pulsar_broker):
    pulsar_broker.create("out")
    sink = once(pulsar_broker)
    writer = written(sink, "a")
    first = pickle.loads(pickle.dumps(writer.prepare_commit()))
    second = written(sink, "b", writer=writer).prepare_commit()
    for _ in range(2):
        assert sink.create_committer().commit(first) is None
    same = once(pulsar_broker).create_committer()
    assert same.commit([*first, *second]) is None
    assert same.commit([*second, *first]) is None
    assert texts(pulsar_broker, "out") == ["a", "b"]
    writer.close()
    same.close()


def test_stagings_of_one_writer_may_be_committed_in_any_order_by_several(pulsar_broker):
    pulsar_broker.create("out")
    sink = once(pulsar_broker)
    writer = sink.create_writer(writer_context())
    made = [written(sink, name, writer=writer).prepare_commit()[0] for name in "abc"]
    for number in (2, 0, 2, 1, 0, 1):
        sink.create_committer().commit([made[number]])
    assert texts(pulsar_broker, "out") == ["c", "a", "b"]
    writer.close()


@pytest.mark.parametrize("is_before", [True, False])
def test_a_commit_that_breaks_off_in_the_middle_is_made_again_and_written_once(
    pulsar_broker, is_before
):
    """`is_before`: the broker never got a batch; else it has it, and nobody was told."""
    pulsar_broker.create("out")
    sink = once(pulsar_broker, producer__sendTimeoutMs=300)
    writer = written(sink, *names(2500))
    prepared = writer.prepare_commit()
    committer = sink.create_committer()
    other = written(sink, "before")
    assert committer.commit(other.prepare_commit()) is None
    pulsar_broker.fail("SEND", is_before=is_before, is_for_good=True)
    assert list(committer.commit(prepared)) == list(prepared), "put off"
    assert pulsar_broker.count("out") == (1 if is_before else 1001)
    pulsar_broker.heal()
    assert committer.commit(prepared) is None
    assert texts(pulsar_broker, "out") == ["before", *names(2500)]
    other.close()
    writer.close()
    committer.close()


def test_a_commit_that_fails_for_long_is_an_error_and_can_be_made_later(pulsar_broker):
    pulsar_broker.create("out")
    sink = once(pulsar_broker, client__operationTimeoutMs=1000)
    writer = written(sink, "a")
    prepared = writer.prepare_commit()
    pulsar_broker.fail("PRODUCER", 10_000, is_before=True)
    committer = sink.create_committer()
    for _ in range(MAX_RETRIES):
        assert committer.commit(prepared)
    with pytest.raises(ExternalError, match="PulsarSink's committer: cannot write to .*out"):
        committer.commit(prepared)
    pulsar_broker.heal()
    assert once(pulsar_broker).create_committer().commit(prepared) is None
    assert texts(pulsar_broker, "out") == ["a"]
    writer.close()


@pytest.mark.parametrize("options", [{}, {"producer__initialSequenceId": 1}])
def test_a_topic_that_does_not_deduplicate_is_told_of_at_once(pulsar_broker, options):
    pulsar_broker.deduplicates = False
    pulsar_broker.create("out")
    sink = once(pulsar_broker, **options)
    writer = written(sink, *names(2500))
    with pytest.raises(ConfigurationError, match="out does not have.*set-deduplication --enable"):
        sink.create_committer().commit(writer.prepare_commit())
    assert pulsar_broker.count("out") == CHUNK_MESSAGES, "no more than it takes to see it"
    writer.close()


def test_a_record_that_no_commit_could_write_is_refused_before_it_is_in_a_checkpoint(pulsar_broker):
    pulsar_broker.create("out")
    sink = once(pulsar_broker)
    largest = "x" * (MAX_RECORD_BYTES - FRAME_BYTES)
    writer = written(sink, largest)
    with pytest.raises(ValueError, match=f"at most {MAX_RECORD_BYTES}"):
        written(None, "small", largest + "x", writer=writer)
    assert sink.create_committer().commit(writer.prepare_commit()) is None
    assert texts(pulsar_broker, "out") == [largest]
    writer.close()


def test_a_commit_is_not_what_anything_else_prepared(pulsar_broker):
    pulsar_broker.create("out")
    with pytest.raises(TypeError, match="a PulsarSink commits"):
        once(pulsar_broker).create_committer().commit(["file"])
