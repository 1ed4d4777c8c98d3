"""KafkaSink on Apache Kafka, or on a broker that fails when it is told to: what is written, and that it is written once, whatever fails in between."""

import pickle
import random
import weakref
from dataclasses import replace

import confluent_kafka
import numpy as np
import pytest

from penstock.common import Row
from penstock.common.serialization import RowFieldExtractorSchema, SerializationSchema
from penstock.connectors.api.messaging.staging import (
    FRAME_BYTES,
    MAX_RETRIES,
    ProducedRecords,
    StagedRecords,
    pack,
    unpack,
)
from penstock.connectors.kafka import KafkaTopicSelector
from penstock.connectors.kafka.staging import MARKED_WRITERS, KafkaStaging, Marker, Written
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ExternalError
from penstock.engine.runtime.elements import NO_TIMESTAMP, RowBatch
from tests.tools.brokers.kafka_topics import consumed, sink_builder, texts
from tests.tools.connectors.played_by_hand import writer_context

ONCE, AT_LEAST = DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE
SHORT = "default.api.timeout.ms", "1000"


def written(sink, *values, writer=None):
    """A writer that wrote these."""
    writer = writer or sink.create_writer(writer_context())
    writer.write(RowBatch(list(values)), 0)
    return writer


# ------------------------------------------------------------------ as records come


@pytest.mark.parametrize("guarantee", [AT_LEAST, DeliveryGuarantee.NONE])
def test_all_is_delivered_before_a_checkpoint_goes_on(broker, guarantee):
    broker.create("a")
    sink = pickle.loads(pickle.dumps(sink_builder(broker.servers, "a", guarantee).build()))
    assert sink.create_committer() is None
    writer = written(sink, *[f"r{i}" for i in range(1000)])
    assert list(writer.prepare_checkpoint(1)) == []
    assert len(texts(broker.servers, "a")) == 1000
    writer.close()
    assert texts(broker.servers, "a") == [f"r{i}" for i in range(1000)]


class First(SerializationSchema):
    def serialize(self, value):
        return value[0].encode()


class ByName(KafkaTopicSelector):
    def apply(self, data):
        return data[0]


def test_topics_keys_values_and_timestamps_are_those_of_the_records(broker):
    broker.create("a")
    broker.create("b")
    sink = sink_builder(
        broker.servers, ByName(), AT_LEAST, value=First(), key=RowFieldExtractorSchema(1)
    ).build()
    writer = sink.create_writer(writer_context())
    stamps = np.array([1000, NO_TIMESTAMP, 3000])
    writer.write(RowBatch([Row("a", b"k1"), Row("b", b"k2"), Row("a", b"k3")], stamps), 0)
    writer.prepare_commit()
    writer.close()
    found = consumed(broker.servers, "a")
    assert [(one.key(), one.value(), one.timestamp()[1]) for one in found] == [
        (b"k1", b"a", 1000),
        (b"k3", b"a", 3000),
    ]
    (other,) = consumed(broker.servers, "b")
    assert other.key() == b"k2"
    assert other.timestamp()[1] > 1_600_000_000_000, "none of its own: when it was sent"


def test_keys_go_to_the_partitions_that_javas_producer_chooses(broker):
    broker.create("a", 8)
    sink = sink_builder(broker.servers, "a", AT_LEAST, key=RowFieldExtractorSchema(0)).build()
    written(
        sink, *[(name.encode(),) for name in ("21", "foobar", "a-little-bit-long-string")]
    ).prepare_commit()
    # murmur2 of these, as Kafka's own tests have them.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    found = {one.key(): one.partition() for one in consumed(broker.servers, "a", range(8))}
    assert found == {key: (value & 0x7FFFFFFF) % 8 for key, value in hashes.items()}


def test_a_topic_selector_has_to_give_a_name(broker):
    sink = sink_builder(broker.servers, lambda value: None, AT_LEAST).build()
    with pytest.raises(TypeError, match="the topic selector returned None for 'x'"):
        written(sink, "x")


def test_a_record_that_cannot_be_delivered_is_an_error_at_the_next_checkpoint(broker):
    sink = sink_builder(broker.servers, "not-there", AT_LEAST)
    writer = written(sink.set_property("delivery.timeout.ms", "300").build(), "x")
    with pytest.raises(ExternalError, match="a record for the topic 'not-there' was not delivered"):
        writer.prepare_checkpoint(1)
    writer.close()


# ------------------------------------------------------------------ staged records


def test_staged_records_come_back_as_they_were():
    parts = [
        ProducedRecords(["a", "b"], [b"k", None], [b"v", None], np.array([1, NO_TIMESTAMP])),
        ProducedRecords(["c"], None, [b""], None),
    ]
    (found,) = unpack(pack(parts))
    assert list(found.topics) == ["a", "b", "c"]
    assert list(found.keys) == [b"k", None, None]
    assert list(found.values) == [b"v", None, b""]
    assert found.timestamps.tolist() == [1, NO_TIMESTAMP, NO_TIMESTAMP]


def test_many_records_are_staged_in_pieces_in_order():
    staged = StagedRecords(1_000_000, "make them smaller")
    for number in range(12):
        staged.add(ProducedRecords(["a"], None, [bytes([number]) * 900_000], None))
    pieces = staged.take()
    assert len(pieces) == 3
    order = [value[0] for piece in pieces for part in unpack(piece) for value in part.values]
    assert order == list(range(12))
    assert staged.take() == ()


def staging(writer, number):
    return KafkaStaging("tests-0", writer, "out", number, ())


def test_a_marker_knows_what_is_written_in_whatever_order_it_came():
    numbers = list(range(1, 41))
    random.Random(7).shuffle(numbers)
    marker = Marker()
    stagings = [staging(name, number) for number in numbers for name in ("one", "other")]
    for place, next_one in enumerate(stagings):
        assert next_one not in marker
        marker = Marker.of(marker.plus(next_one).metadata)
        assert all(one in marker for one in stagings[: place + 1])
    assert marker == Marker({"one": Written(40), "other": Written(40)})
    assert Marker.of(None) == Marker()


def test_a_marker_keeps_the_last_writers_and_fits_into_what_brokers_keep():
    marker = Marker()
    for number in range(3 * MARKED_WRITERS):
        marker = marker.plus(staging(f"{number:016x}", 1))
        marker = marker.plus(staging("writes again", number + 1))
    assert len(marker.writers) == MARKED_WRITERS
    assert staging("writes again", 2 * MARKED_WRITERS) in marker
    assert staging(f"{3 * MARKED_WRITERS - 1:016x}", 1) in marker
    assert len(marker.metadata) < 4096, "offset.metadata.max.bytes"


# ------------------------------------------------------------------ exactly once


def once(broker, **properties):
    builder = sink_builder(broker.servers, "out", ONCE)
    for key, value in properties.items():
        builder.set_property(key.replace("__", "."), value)
    return builder.build()


def test_nothing_is_visible_before_the_commit_and_all_after_it(broker):
    broker.create("out", 2)
    sink = once(broker)
    writer = written(sink, "a", "b")
    first = (
        writer.prepare_checkpoint(1)
        if hasattr(writer, "prepare_checkpoint")
        else writer.prepare_commit()
    )
    assert texts(broker.servers, "out", range(2)) == []
    assert sink.create_committer().commit(first) is None
    assert sorted(texts(broker.servers, "out", range(2))) == ["a", "b"]
    assert list(writer.prepare_commit()) == [], "a checkpoint without records"
    writer.close()


def test_a_commit_that_comes_again_from_anywhere_writes_nothing(broker):
    broker.create("out")
    sink = once(broker)
    writer = written(sink, "a")
    first = pickle.loads(pickle.dumps(writer.prepare_commit()))
    second = written(sink, "b", writer=writer).prepare_commit()
    for _ in range(2):
        assert sink.create_committer().commit(first) is None
    same = once(broker).create_committer()
    assert same.commit([*first, *second]) is None
    assert same.commit([*second, *first]) is None
    assert texts(broker.servers, "out") == ["a", "b"]


def test_stagings_of_one_writer_may_be_committed_in_any_order_by_several(broker):
    broker.create("out")
    sink = once(broker)
    writer = sink.create_writer(writer_context())
    made = [*written(sink, "a", writer=writer).prepare_commit()]
    made += written(sink, "b", writer=writer).prepare_commit()
    made += written(sink, "c", writer=writer).prepare_commit()
    for number in (2, 0, 2, 1, 0, 1):
        sink.create_committer().commit([made[number]])
    assert texts(broker.servers, "out") == ["c", "a", "b"]


@pytest.mark.parametrize("is_before", [True, False])
def test_a_commit_whose_end_is_not_heard_of_is_made_again_and_written_once(own_kafka, is_before):
    """`is_before`: the own_kafka never got the order to commit; else it did, and nobody was told."""
    own_kafka.create("out")
    sink = once(own_kafka, default__api__timeout__ms="1000")
    prepared = written(sink, "a", "b").prepare_commit()
    own_kafka.fail("EndTxn", 1000, is_before=is_before)
    committer = sink.create_committer()
    assert list(committer.commit(prepared)) == list(prepared), "put off"
    assert own_kafka.visible("out") == (0 if is_before else 2)
    own_kafka.heal()
    while committer.commit(prepared):
        pass  # a second may be too short for a busy machine; a few are put off
    assert texts(own_kafka.servers, "out") == ["a", "b"]


def test_a_commit_that_cannot_begin_leaves_no_producer_behind(own_kafka, monkeypatch):
    """It would go on trying, and fence off the one of a later try when the own_kafka is back."""
    made = []

    class WatchedProducer(confluent_kafka.Producer):
        """The client ends with the object: nothing else tells whether it has."""

        def __init__(self, *settings):
            super().__init__(*settings)
            made.append(weakref.ref(self))

    own_kafka.create("out")
    sink = once(own_kafka, default__api__timeout__ms="300")
    prepared = written(sink, "a").prepare_commit()
    own_kafka.fail("InitProducerId", 10_000, is_before=True)
    monkeypatch.setattr(confluent_kafka, "Producer", WatchedProducer)
    assert sink.create_committer().commit(prepared) == prepared
    assert [one() for one in made] == [None]


def test_a_commit_that_fails_for_long_is_an_error_and_can_be_made_later(own_kafka):
    own_kafka.create("out")
    sink = once(own_kafka, default__api__timeout__ms="300")
    prepared = written(sink, "a").prepare_commit()
    own_kafka.fail("InitProducerId", 10_000, is_before=True)
    committer = sink.create_committer()
    for _ in range(MAX_RETRIES):
        assert committer.commit(prepared)
    with pytest.raises(
        ExternalError, match="committer for the transactional id 'tests-00000000-0'"
    ):
        committer.commit(prepared)
    own_kafka.heal()
    assert once(own_kafka).create_committer().commit(prepared) is None
    assert texts(own_kafka.servers, "out") == ["a"]


def test_a_former_committer_that_is_still_there_cannot_write_any_more(broker):
    broker.create("out")
    sink = once(broker)
    writer = sink.create_writer(writer_context())
    first = written(sink, "a", writer=writer).prepare_commit()
    second = written(sink, "b", writer=writer).prepare_commit()
    former, successor = sink.create_committer(), sink.create_committer()
    assert former.commit(first) is None
    assert successor.commit([*first, *second]) is None
    assert list(former.commit(second)) == list(second), "it is fenced off, and looks again"
    assert former.commit(second) is None
    assert texts(broker.servers, "out") == ["a", "b"]


def test_what_an_other_program_stages_under_the_same_prefix_is_its_own(broker):
    broker.create("out")
    sink = once(broker)
    made = [written(sink, name).prepare_commit() for name in ("a", "b", "c")]
    for prepared in made:
        sink.create_committer().commit(prepared)
    assert texts(broker.servers, "out") == ["a", "b", "c"]


def test_all_attempts_of_a_subtask_share_a_transactional_id_and_a_group(own_kafka):
    """Kafka keeps each for days."""
    own_kafka.create("out")
    sink = once(own_kafka)
    made = [written(sink, str(number)).prepare_commit() for number in range(3)]
    for prepared in (*made, *made):
        assert sink.create_committer().commit(prepared) is None
    (name,) = own_kafka.producers
    assert name.startswith("tests-")
    assert list(own_kafka.committed) == [(name, "out", 0)]
    assert texts(own_kafka.servers, "out") == ["0", "1", "2"]


def test_sinks_of_one_job_have_ids_of_their_own(broker):
    sink = once(broker)
    ids = set()
    for uid in ("one", "other"):
        writer = sink.create_writer(replace(writer_context(), operator_id=uid))
        ids.add(written(sink, "a", writer=writer).prepare_commit()[0][0])
    assert len(ids) == 2


def test_a_record_that_is_refused_at_the_commit_leaves_nothing_behind(broker):
    broker.create("out")
    builder = sink_builder(broker.servers, lambda value: "out" if value == "a" else "gone", ONCE)
    builder.set_property("delivery.timeout.ms", "300").set_property(*SHORT)
    sink = builder.build()
    prepared = written(sink, "a", "b").prepare_commit()
    assert sink.create_committer().commit(prepared)
    assert texts(broker.servers, "out") == []
    broker.create("gone")
    assert once(broker).create_committer().commit(prepared) is None
    assert (texts(broker.servers, "out"), texts(broker.servers, "gone")) == (["a"], ["b"])


def test_a_record_that_no_commit_could_write_is_refused_before_it_is_in_a_checkpoint(broker):
    broker.create("out")
    sink = once(broker, max__request__size="2000")
    largest = "x" * (2000 - FRAME_BYTES)
    writer = written(sink, largest)
    with pytest.raises(ValueError, match="for the topic 'out' has 2001 bytes(.|\n)*at most 2000"):
        written(sink, "small", largest + "x", writer=writer)
    assert sink.create_committer().commit(writer.prepare_commit()) is None
    assert texts(broker.servers, "out") == [largest]


@pytest.mark.parametrize("guarantee", [ONCE, AT_LEAST])
def test_a_record_that_is_too_large_is_refused_before_it_is_sent_or_staged(broker, guarantee):
    """By what the policy for errors looks at, with topic, size and limit."""
    broker.create("out")
    builder = sink_builder(broker.servers, "out", guarantee)
    sink = builder.set_property("max.request.size", "2000").build()
    writer = sink.create_writer(writer_context())
    limit = 2000 - FRAME_BYTES
    with pytest.raises(ValueError, match="topic 'out' has 2001 bytes(.|\n)*at most 2000.*higher"):
        writer.convert(RowBatch(["small", "x" * (limit + 1)]))
    writer.write_converted(writer.convert(RowBatch(["x" * limit])), 0)
    prepared = writer.prepare_commit()
    if guarantee is ONCE:
        assert sink.create_committer().commit(prepared) is None
    writer.close()
    assert texts(broker.servers, "out") == ["x" * limit]


def test_a_commit_is_not_what_anything_else_prepared(broker):
    with pytest.raises(TypeError, match="a KafkaSink commits"):
        once(broker).create_committer().commit(["file"])
