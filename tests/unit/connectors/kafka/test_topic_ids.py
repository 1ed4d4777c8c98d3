"""A real broker's topic is deleted, or made anew, while it is read: that is an error with its name, never silence."""

import math
import pickle
from concurrent.futures import Future

import pytest
from confluent_kafka import TopicPartition

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.api.messaging.source import UnknownTopic
from penstock.connectors.kafka import KafkaOffsetsInitializer, KafkaSource, reader
from penstock.connectors.kafka.offsets import KafkaSplit, KafkaTopicPartition
from penstock.connectors.kafka.reader import TopicWatch
from penstock.engine.model.errors import ExternalError, RefusedForGood
from tests.tools.brokers.kafka_topics import produce, source_builder
from tests.tools.connectors.played_by_hand import FakeEnumeratorContext
from tests.tools.connectors.reading_thread import Task

OLD, NEW = 25, 50


def filled(kafka, topic, count):
    kafka.create(topic, 2)
    for partition in range(2):
        produce(kafka, topic, *[f"{partition}:{n}" for n in range(count)], partition=partition)


def by_pattern(kafka):
    return (
        KafkaSource
        .builder()
        .set_bootstrap_servers(kafka.servers)
        .set_topic_pattern("shop-.*")
        .set_value_only_deserializer(SimpleStringSchema())
    )


def read(kafka, topic):
    """A source, and a task that has read what there is."""
    filled(kafka, topic, OLD)
    source = source_builder(kafka.servers, topic).build()
    task = Task(source)
    assert len(task.read(2 * OLD)) == 2 * OLD
    return source, task


def made_anew(kafka, topic):
    kafka.delete(topic)
    filled(kafka, topic, NEW)


def closed(task):
    """Its checkpoint: the coordinator's state and the reader's splits."""
    state = task.enumerator.snapshot_state(), task.reader.snapshot_state()
    task.close()
    return pickle.loads(pickle.dumps(state))


def restored(source, checkpoint):
    state, splits = checkpoint
    coordinator = FakeEnumeratorContext()
    task = Task(source, enumerator=source.restore_enumerator(coordinator, state))
    task.coordinator = coordinator
    task.reader.add_splits(splits)
    return task


@pytest.mark.server
def test_a_checkpoint_of_a_topic_that_was_made_anew_is_refused(apache_kafka):
    source, task = read(apache_kafka, "anew")
    checkpoint = closed(task)
    again = restored(source, checkpoint)
    produce(apache_kafka, "anew", "more")
    assert again.read(1) == ["more"], "the topic is still the same"
    checkpoint = closed(again)
    made_anew(apache_kafka, "anew")
    again = restored(source, checkpoint)
    with pytest.raises(RefusedForGood, match=r"topic 'anew' was deleted and made anew") as told:
        again.read(1)
    assert "anew[0] up to offset 26, anew[1] up to offset 25" in str(told.value)
    again.close()


@pytest.mark.server
def test_a_topic_that_is_made_anew_while_it_is_read_is_an_error(apache_kafka, monkeypatch):
    monkeypatch.setattr(reader, "LOOK_EVERY_S", math.inf)
    _, task = read(apache_kafka, "replaced")
    made_anew(apache_kafka, "replaced")
    monkeypatch.setattr(reader, "LOOK_EVERY_S", 0)
    with pytest.raises(RefusedForGood, match=r"topic 'replaced' was deleted and made anew"):
        task.read(1000)  # More than there are.
    task.close()


@pytest.mark.server
def test_a_topic_that_is_deleted_while_it_is_read_is_an_error(apache_kafka, monkeypatch):
    monkeypatch.setattr(reader, "LOOK_EVERY_S", 0)
    _, task = read(apache_kafka, "gone")
    apache_kafka.delete("gone")
    with pytest.raises(UnknownTopic, match=r"topic 'gone' is gone") as told:
        task.read(2 * OLD + 1)
    assert "gone[0] up to offset 25, gone[1] up to offset 25" in str(told.value)
    task.close()


@pytest.mark.server
def test_a_topic_that_was_deleted_on_purpose_is_named_and_the_others_are_read_on(
    apache_kafka, caplog
):
    """By a pattern, as it is found. When it comes back, it is a new topic and read from its first record."""
    filled(apache_kafka, "shop-a", OLD)
    filled(apache_kafka, "shop-b", OLD)
    task = Task(by_pattern(apache_kafka).build())
    assert len(task.read(4 * OLD)) == 4 * OLD
    checkpoint = closed(task)
    apache_kafka.delete("shop-a")
    again = restored(by_pattern(apache_kafka).build(), checkpoint)
    with pytest.raises(UnknownTopic, match=r"set_deleted_topics\('shop-a'\)"):
        again.read(1)
    again.close()
    source = by_pattern(apache_kafka).set_deleted_topics("shop-a").build()
    again = restored(source, checkpoint)
    produce(apache_kafka, "shop-b", "more")
    assert again.read(1) == ["more"]
    assert "no longer reads shop-a[0] up to offset 25, shop-a[1] up to offset 25" in caplog.text
    checkpoint = closed(again)
    assert {split.partition.topic for split in checkpoint[1]} == {"shop-b"}
    filled(apache_kafka, "shop-a", NEW)
    back = restored(source, checkpoint)
    assert len(back.read(2 * NEW)) == 2 * NEW
    back.close()


@pytest.mark.server
def test_a_topic_that_is_named_as_deleted_and_is_there_is_read(apache_kafka):
    filled(apache_kafka, "kept", OLD)
    builder = source_builder(apache_kafka.servers, "kept").set_deleted_topics("kept")
    task = Task(builder.build())
    assert len(task.read(2 * OLD)) == 2 * OLD
    again = restored(builder.build(), closed(task))
    produce(apache_kafka, "kept", "more")
    assert again.read(1) == ["more"]
    again.close()


@pytest.mark.server
def test_records_that_retention_has_removed_are_counted_with_their_place(apache_kafka, caplog):
    apache_kafka.create("expired")
    produce(apache_kafka, "expired", *map(str, range(100)))
    apache_kafka.remove_records([TopicPartition("expired", 0, 75)])
    place = KafkaTopicPartition("expired", 0)
    builder = source_builder(apache_kafka.servers, "expired")
    builder.set_starting_offsets(KafkaOffsetsInitializer.offsets({place: 25}))
    task = Task(builder.build())
    assert task.read(25) == [str(number) for number in range(75, 100)]
    assert "expired[0]" in caplog.text
    assert "removed 50 offsets that were not read, 25 to 74" in caplog.text
    counts = {one.name: one.value for one in task.reader.measured()}
    assert counts["recordsRemoved"] == 50
    task.close()


class Brokers:
    """What is asked for topics' ids, in the place of `TopicIds`."""

    are_away = False

    def __init__(self, properties, where):
        self.where = where

    def ask(self, topics):
        answer = Future()
        answer.set_result(None)
        return dict.fromkeys(topics, answer)

    def id_in(self, topic, answer):
        if self.are_away:
            raise ExternalError("timed out")
        return "id"


def test_brokers_that_do_not_answer_are_logged_once_with_address_and_time(monkeypatch, caplog):
    monkeypatch.setattr(reader, "LOOK_EVERY_S", 0)
    monkeypatch.setattr(reader, "TopicIds", Brokers)
    split = KafkaSplit(KafkaTopicPartition("a", 0), 7)
    watch = TopicWatch({"bootstrap.servers": "broker-1:9092"}, "KafkaSource, subtask 0")

    def looked(times):
        caplog.clear()
        for _ in range(2 * times):  # asked, and the answer taken
            watch.look([split])
        return [one.getMessage() for one in caplog.records]

    assert looked(2) == []
    monkeypatch.setattr(Brokers, "are_away", True)
    (line,) = looked(3)
    assert line.startswith("KafkaSource, subtask 0: no answer from broker-1:9092 for 0 s")
    monkeypatch.setattr(Brokers, "are_away", False)
    assert looked(1) == []
    monkeypatch.setattr(Brokers, "are_away", True)
    assert len(looked(2)) == 1
