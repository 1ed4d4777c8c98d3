"""KafkaSource on Apache Kafka, or on a broker that fails when it is told to: what is read, from where to where, by whom."""

import pickle

import pytest
from confluent_kafka import KafkaError, TopicPartition

from penstock.common import Row, Types
from penstock.common.serialization import DeserializationSchema, SimpleStringSchema
from penstock.connectors.api.messaging.source import owner_of
from penstock.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaTopicPartition,
    reader,
)
from penstock.connectors.kafka.client import LastError
from penstock.connectors.kafka.offsets import KafkaSplit
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.partial_columns import DecodedColumns
from penstock.formats.json import JsonRowDeserializationSchema
from tests.tools.brokers.kafka_topics import (
    bounded,
    produce,
    produce_in_transaction,
    source_builder,
)
from tests.tools.connectors.played_by_hand import FakeEnumeratorContext
from tests.tools.connectors.reading_thread import Task
from tests.tools.waiting import wait_until

PAIR = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])


def at(topic, partition, offset):
    return KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, partition): offset})


# ------------------------------------------------------------------ what is read


def test_a_bounded_source_reads_all_partitions_in_order_with_kafkas_timestamps(broker):
    broker.create("a", 2)
    produce(broker, "a", *[(f"0-{i}", 1000 + i) for i in range(100)], partition=0)
    produce(broker, "a", *[(f"1-{i}", 2000 + i) for i in range(50)], partition=1)
    source = pickle.loads(pickle.dumps(bounded(broker.servers, "a").build()))
    task = Task(source)
    found = task.read_to_end()
    assert [one for one in found if one[0] == "0"] == [f"0-{i}" for i in range(100)]
    assert [one for one in found if one[0] == "1"] == [f"1-{i}" for i in range(50)]
    stamps = [int(stamp) for batch in task.batches for stamp in batch.timestamps]
    assert dict(zip(found, stamps, strict=True))["1-49"] == 2049
    assert len(task.batches) < 50, "record by record"


def test_where_it_begins_and_ends_are_offsets(broker):
    broker.create("a")
    produce(broker, "a", *"abcdefgh")
    source = (
        source_builder(broker.servers, "a")
        .set_starting_offsets(at("a", 0, 2))
        .set_bounded(at("a", 0, 5))
        .build()
    )
    assert Task(source).read_to_end() == ["c", "d", "e"]


def test_it_begins_at_a_time(broker):
    broker.create("a", 2)
    produce(broker, "a", *[(f"r{i}", 1000 + i) for i in range(5)], one_by_one=True)
    produce(broker, "a", ("too old", 5), partition=1, one_by_one=True)
    source = (
        bounded(broker.servers, "a")
        .set_starting_offsets(KafkaOffsetsInitializer.timestamp(1003))
        .build()
    )
    assert Task(source).read_to_end() == ["r3", "r4"]


def test_an_empty_partition_and_one_without_a_subtask_end_at_once(broker):
    broker.create("a", 1)
    source = bounded(broker.servers, "a").build()
    assert Task(source).read_to_end() == []
    reader_of_nothing = 1 - owner_of("a", 0, 2)
    assert Task(source, reader_of_nothing, 2).read_to_end() == []


def test_a_transactions_marker_at_the_end_holds_nothing_up_and_aborted_records_are_not_read(broker):
    broker.create("a")
    produce_in_transaction(broker, "a", "no 1", "no 2", commits=False)
    produce_in_transaction(broker, "a", "yes", commits=True)
    produce_in_transaction(broker, "a", "no 3", commits=False)
    assert Task(bounded(broker.servers, "a").build()).read_to_end() == ["yes"]
    builder = bounded(broker.servers, "a").set_property("isolation.level", "read_uncommitted")
    assert Task(builder.build()).read_to_end() == ["no 1", "no 2", "yes", "no 3"]


def test_an_unbounded_source_reads_what_comes_and_stops_where_it_is_told(broker):
    broker.create("a")
    produce(broker, "a", "1", "2")
    task = Task(source_builder(broker.servers, "a").build())
    task.read(2)
    produce(broker, "a", "3")
    assert task.read(3) == ["1", "2", "3"]
    task.close()
    until = source_builder(broker.servers, "a").set_unbounded(at("a", 0, 2)).build()
    task = Task(until)
    assert task.read(2) == ["1", "2"]
    assert not task.coordinator.no_more, "partitions may come"
    task.close()


def test_a_reader_goes_on_exactly_behind_what_it_gave(broker):
    broker.create("a")
    produce(broker, "a", *map(str, range(10)), one_by_one=True)
    source = bounded(broker.servers, "a").build()
    first = Task(source)
    seen = first.read(1)
    (split,) = pickle.loads(pickle.dumps(first.reader.snapshot_state()))
    state = pickle.loads(pickle.dumps(first.enumerator.snapshot_state()))
    assert split.offset == len(seen)
    first.close()
    context = FakeEnumeratorContext()
    second = Task(source, enumerator=source.restore_enumerator(context, state))
    second.coordinator = context
    second.reader.add_splits([split])
    assert seen + second.read_to_end() == list(map(str, range(10)))


def test_rows_of_json_come_as_columns_and_odd_ones_one_by_one(broker):
    broker.create("a")
    produce(broker, "a", '{"name": "x", "n": 1}', '{"n": 2, "more": [1]}', '{"name": null}')
    schema = JsonRowDeserializationSchema.builder().type_info(PAIR).build()
    task = Task(bounded(broker.servers, "a", schema=schema).build())
    task.read_to_end()
    assert all(isinstance(batch, ColumnBatch) for batch in task.batches)
    rows = [row for batch in task.batches for row in to_rows(batch, PAIR).values]
    assert rows == [Row(name="x", n=1), Row(name=None, n=2), Row(name="x", n=1)][:2] + [
        Row(name=None, n=None)
    ]
    produce(broker, "a", '{"name": 5, "n": 1.0}', "")
    odd = bounded(broker.servers, "a", schema=schema).set_starting_offsets(at("a", 0, 3)).build()
    assert Task(odd).read_to_end() == [Row(name="5", n=1)]


def test_only_the_fields_that_are_read_are_parsed(broker):
    broker.create("a")
    produce(broker, "a", '{"name": "x", "n": 1}', '{"n": [], "name": "y"}', '{"name": 5}')
    schema = JsonRowDeserializationSchema.builder().type_info(PAIR).build()
    task = Task(bounded(broker.servers, "a", schema=schema).build())
    task.reader.read_fields(["name"])
    assert [row["name"] for row in task.read_to_end()] == ["x", "y", "5"]
    assert all(isinstance(batch, DecodedColumns) for batch in task.batches)
    assert [stamp > 0 for batch in task.batches for stamp in batch.timestamps] == [True] * 3


class Told:
    """What a consumer gives; without a value an error: by default, that the partition ends here."""

    def __init__(self, offset, value=None, error=KafkaError._PARTITION_EOF) -> None:
        self.offset = lambda: offset
        self.value = lambda: value
        self.topic = lambda: "in"
        self.partition = lambda: 0
        self.timestamp = lambda: (1, offset)
        end = None if value is not None else KafkaError(error)
        self.error = lambda: end

    def __len__(self) -> int:
        return 1


class TellsAtOnce:
    """A consumer that has records and the end behind them for one call."""

    def __init__(self, told) -> None:
        self.told = told
        self.incremental_assign = self.incremental_unassign = lambda _places: None
        self.commit = lambda **_options: None
        self.close = lambda: None

    def consume(self, _count, _wait_s):
        told, self.told = self.told, []
        return told


def test_records_that_come_together_with_the_end_are_read_first(monkeypatch):
    consumer = TellsAtOnce([Told(0, b"a"), Told(1, b"b"), Told(2)])
    monkeypatch.setattr(reader, "make_consumer", lambda *_args, **_options: (consumer, LastError()))
    settings = reader.KafkaSourceSettings(
        schema=SimpleStringSchema(), stopping=KafkaOffsetsInitializer.latest()
    )
    split_reader = reader.KafkaSplitReader(settings, 0)
    one = KafkaTopicPartition("in", 0)
    split_reader.add_splits([KafkaSplit(one, 0, 2)])
    fetched = split_reader.fetch()
    assert [value for batch in fetched.batches for value in batch.batch.values] == ["a", "b"]
    assert fetched.finished == [one]
    split_reader.close()


def test_a_record_that_cannot_be_deserialized_is_named(broker):
    broker.create("a")
    produce(broker, "a", '{"n": 1}', '{"n": 2}', '{"n": "x"}')
    schema = JsonRowDeserializationSchema.builder().type_info(PAIR).build()
    task = Task(bounded(broker.servers, "a", schema=schema).build())
    with pytest.raises(ValueError, match=r"a\[0\] at offset 2 cannot be deserialized by JsonRow"):
        task.read_to_end()
    task.close()


class Picky(DeserializationSchema):
    def deserialize(self, data):
        return None if data is None or data == b"" else data.decode()


def test_a_schema_may_pass_records_over_and_sees_tombstones(broker):
    broker.create("a")
    produce(broker, "a", ("x", 1), (None, 2), (b"", 3), ("y", 4))
    task = Task(bounded(broker.servers, "a", schema=Picky()).build())
    assert task.read_to_end() == ["x", "y"]
    assert [int(stamp) for batch in task.batches for stamp in batch.timestamps] == [1, 4]
    strict = Task(bounded(broker.servers, "a").build())
    with pytest.raises(ValueError, match=r"at offset 1 .*SimpleStringSchema(.|\n)*Its value: None"):
        strict.read_to_end()
    strict.close()


def removed(task):
    return {one.name: one.value for one in task.reader.measured()}["recordsRemoved"]


def test_an_offset_that_is_gone_is_reset_or_an_error(broker, caplog):
    broker.create("a")
    produce(broker, "a", *"abcdef", one_by_one=True)
    broker.remove_records([TopicPartition("a", 0, 4)])
    builder = bounded(broker.servers, "a").set_starting_offsets(at("a", 0, 1))
    task = Task(builder.build())
    assert task.read_to_end() == ["e", "f"]
    assert removed(task) == 3
    assert "a[0]" in caplog.text
    assert "removed 3 offsets that were not read, 1 to 3" in caplog.text
    latest = KafkaOffsetsInitializer.offsets(
        {KafkaTopicPartition("a", 0): 1}, KafkaOffsetResetStrategy.LATEST
    )
    task = Task(builder.set_starting_offsets(latest).build())
    assert task.read_to_end() == []
    assert removed(task) == 3
    assert "Reading continues at offset 6" in caplog.text
    strict = KafkaOffsetsInitializer.offsets(
        {KafkaTopicPartition("a", 0): 1}, KafkaOffsetResetStrategy.NONE
    )
    task = Task(builder.set_starting_offsets(strict).build())
    with pytest.raises(ExternalError, match=r"a\[0\] has no record at offset 1 \(any more\)"):
        task.read_to_end()
    task.close()


# ------------------------------------------------------------------ the group


@pytest.mark.parametrize("code", [-1, 2, 7, 13, 56])
def test_a_fetch_that_fails_once_is_made_again(own_kafka, code):
    """UNKNOWN_SERVER_ERROR, CORRUPT_MESSAGE, REQUEST_TIMED_OUT, NETWORK_EXCEPTION, KAFKA_STORAGE_ERROR."""
    own_kafka.create("a")
    produce(own_kafka, "a", "1", "2")
    own_kafka.fetch_errors = [code]
    task = Task(bounded(own_kafka.servers, "a").build())
    assert task.read_to_end() == ["1", "2"]
    assert own_kafka.fetch_errors == []


def test_a_partition_that_may_not_be_read_is_an_error_at_once(own_kafka):
    own_kafka.create("a")
    produce(own_kafka, "a", "1")
    own_kafka.fetch_errors = [29] * 9
    task = Task(bounded(own_kafka.servers, "a").build())
    with pytest.raises(ExternalError, match=r"cannot read of a\[0\].*TOPIC_AUTHORIZATION_FAILED"):
        task.read_to_end()
    task.close()


def test_fetches_that_fail_again_and_again_are_an_error(monkeypatch):
    told = [Told(0, error=56) for _ in range(reader.MOST_FAILED_FETCHES)]
    consumer = TellsAtOnce(told)
    monkeypatch.setattr(reader, "make_consumer", lambda *_args, **_options: (consumer, LastError()))
    settings = reader.KafkaSourceSettings(
        schema=SimpleStringSchema(), stopping=KafkaOffsetsInitializer.latest()
    )
    split_reader = reader.KafkaSplitReader(settings, 0)
    with pytest.raises(ExternalError, match=r"60 fetches of in\[0\] in a row have failed"):
        split_reader.fetch()
    split_reader.close()


def test_offsets_are_committed_when_their_checkpoint_is_complete(broker):
    broker.create("a")
    produce(broker, "a", *"abc")
    source = source_builder(broker.servers, "a").set_group_id("g").build()
    task = Task(source)
    task.read(3)
    task.reader.before_checkpoint(1)
    task.reader.snapshot_state()
    produce(broker, "a", "d")
    task.read(4)
    task.reader.before_checkpoint(2)
    task.reader.notify_checkpoint_complete(1)
    wait_until(lambda: broker.offset("g", "a") is not None, "nothing is committed")
    assert broker.offset("g", "a") == 3
    task.reader.before_checkpoint(3)
    task.reader.notify_checkpoint_complete(3)
    task.close()
    assert broker.offset("g", "a") == 4
    later = (
        bounded(broker.servers, "a")
        .set_group_id("g")
        .set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
    )
    produce(broker, "a", "e")
    assert Task(later.build()).read_to_end() == ["e"]


@pytest.mark.parametrize("is_bounded_end", [True, False])
def test_a_split_that_is_read_to_its_end_is_committed_too(broker, is_bounded_end):
    broker.create("a")
    produce(broker, "a", *"abc")
    builder = bounded(broker.servers, "a").set_group_id("g")
    if not is_bounded_end:
        builder.set_property("commit.offsets.on.checkpoint", "false")
    task = Task(builder.build())
    while not task.poll():
        pass
    task.reader.before_checkpoint(1)
    task.reader.notify_checkpoint_complete(1)
    task.close()
    assert broker.offset("g", "a") == (3 if is_bounded_end else None)


def test_without_a_group_nothing_is_committed(broker):
    broker.create("a")
    produce(broker, "a", *"abc")
    task = Task(bounded(broker.servers, "a").build())
    while not task.poll():
        pass
    task.reader.before_checkpoint(1)
    task.reader.notify_checkpoint_complete(1)
    task.close()
    assert broker.groups() == []


def test_committed_offsets_that_are_not_there_are_an_error_at_the_start(broker):
    broker.create("a")
    source = (
        bounded(broker.servers, "a")
        .set_group_id("g")
        .set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
        .build()
    )
    enumerator = source.create_enumerator(FakeEnumeratorContext())
    with pytest.raises(ExternalError, match=r"no offset is known for a\[0\]"):
        enumerator.start()
    enumerator.close()


# ------------------------------------------------------------------ partitions


def test_each_partition_is_given_to_its_owner_once_it_is_there(broker):
    broker.create("a", 5)
    context = FakeEnumeratorContext(3)
    context.registered_readers = lambda: there
    there = []
    enumerator = bounded(broker.servers, "a").build().create_enumerator(context)
    enumerator.start()
    assert context.assigned == {0: [], 1: [], 2: []}
    for subtask in range(3):
        there.append(subtask)
        enumerator.handle_split_request(subtask, "host")
    given = {one.partition: subtask for subtask in range(3) for one in context.assigned[subtask]}
    assert given == {
        KafkaTopicPartition("a", number): owner_of("a", number, 3) for number in range(5)
    }
    assert context.no_more == {0, 1, 2}
    lost = list(context.assigned[1])
    context.assigned[1].clear()
    there.remove(1)
    enumerator.add_splits_back(lost, 1)
    assert context.assigned[1] == []
    there.append(1)
    enumerator.handle_split_request(1, "host")
    assert context.assigned[1] == lost
    enumerator.close()


def test_new_partitions_and_topics_are_found_and_read_from_their_start(broker):
    broker.create("logs-1")
    broker.create("other")
    produce(broker, "logs-1", "old")
    builder = KafkaSource.builder().set_bootstrap_servers(broker.servers)
    source = (
        builder
        .set_topic_pattern("logs-.*")
        .set_starting_offsets(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(Picky())
        .set_property("partition.discovery.interval.ms", "50")
        .build()
    )
    task = Task(source)
    ((period_ms, look),) = task.coordinator.periodic
    assert period_ms == 50
    broker.create("logs-1", 2)
    broker.create("logs-2")
    produce(broker, "logs-1", "new 1", partition=1)
    produce(broker, "logs-2", "new 2")
    look()
    assert sorted(task.read(2)) == ["new 1", "new 2"]
    known, waiting, has_begun = task.enumerator.snapshot_state()
    assert [str(one) for one in known] == ["logs-1[0]", "logs-1[1]", "logs-2[0]"]
    assert (waiting, has_begun) == ([], True)
    task.close()


def test_a_round_of_discovery_that_fails_is_made_again_later(own_kafka, caplog):
    own_kafka.create("a")
    source = (
        source_builder(own_kafka.servers, "a")
        .set_property("default.api.timeout.ms", "1000")
        .build()
    )
    task = Task(source)
    ((_, look),) = task.coordinator.periodic
    own_kafka.fail("Metadata", 100, is_before=True)
    own_kafka.create("a", 2)
    look()
    assert "discovery=FAILED" in caplog.text
    own_kafka.heal()
    produce(own_kafka, "a", "x", partition=1)
    while "discovery=FAILED" in caplog.text:
        caplog.clear()  # the client waits for a while before it connects again
        look()
    assert task.read(1) == ["x"]
    task.close()


def test_a_restored_enumerator_gives_nothing_twice_and_finds_what_is_new(broker):
    broker.create("a", 1)
    source = source_builder(broker.servers, "a").build()
    context = FakeEnumeratorContext()
    enumerator = source.create_enumerator(context)
    enumerator.start()
    state = pickle.loads(pickle.dumps(enumerator.snapshot_state()))
    enumerator.close()
    broker.create("a", 2)
    produce(broker, "a", "before it is found", partition=1)
    later = FakeEnumeratorContext()
    restored = source.restore_enumerator(later, state)
    restored.start()
    assert [(str(one.partition), one.offset) for one in later.assigned[0]] == [("a[1]", 0)]
    restored.close()


def test_single_partitions_can_be_read(broker):
    broker.create("a", 3)
    for number in range(3):
        produce(broker, "a", f"in {number}", partition=number)
    builder = KafkaSource.builder().set_bootstrap_servers(broker.servers)
    builder.set_partitions({KafkaTopicPartition("a", 1)}).set_value_only_deserializer(Picky())
    builder.set_bounded(KafkaOffsetsInitializer.latest())
    assert Task(builder.build()).read_to_end() == ["in 1"]
    builder = KafkaSource.builder().set_bootstrap_servers(broker.servers)
    builder.set_partitions({KafkaTopicPartition("a", 7)}).set_value_only_deserializer(Picky())
    with pytest.raises(
        ConfigurationError, match=r"no partition a\[7\]; its topic has the partitions \[0, 1, 2\]"
    ):
        builder.build().validate()


def test_paused_partitions_give_nothing_until_they_are_resumed(broker):
    broker.create("a", 2)
    task = Task(source_builder(broker.servers, "a").build())
    produce(broker, "a", "x", partition=0)
    task.read(1)
    places = [KafkaTopicPartition("a", 0)]
    task.reader.pause_or_resume_splits(places, [])
    produce(broker, "a", "paused", partition=0)
    produce(broker, "a", "goes on", partition=1)
    assert task.read(2) == ["x", "goes on"]
    task.reader.pause_or_resume_splits([], places)
    assert task.read(3) == ["x", "goes on", "paused"]
    task.close()
