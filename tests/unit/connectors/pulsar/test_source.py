"""PulsarSource on a broker of the tests' own: what is read, from where to where, by whom."""

import pickle
import re
import threading
from dataclasses import replace

import pytest

from penstock.common import Row, Types
from penstock.common.serialization import DeserializationSchema, SimpleStringSchema
from penstock.connectors.api.messaging.source import owner_of
from penstock.connectors.pulsar import PulsarSource, RangeGenerator, StartCursor, StopCursor
from penstock.connectors.pulsar.cursors import StartKind, TopicPartition
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.elements import NO_TIMESTAMP, ColumnBatch
from penstock.engine.runtime.partial_columns import DecodedColumns
from penstock.formats.json import JsonRowDeserializationSchema
from tests.tools.brokers.pulsar_topics import (
    bounded,
    client_of,
    part,
    produce,
    source_builder,
)
from tests.tools.connectors.played_by_hand import FakeEnumeratorContext
from tests.tools.connectors.reading_thread import WAIT_S, Task

PAIR = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])


def restored(source, task, split):
    """A task that goes on from what another one had in a checkpoint, with `split` as its reader's."""
    state = pickle.loads(pickle.dumps(task.enumerator.snapshot_state()))
    context = FakeEnumeratorContext()
    after = Task(source, enumerator=source.restore_enumerator(context, state))
    after.coordinator = context
    after.reader.add_splits([pickle.loads(pickle.dumps(split))])
    return after


# ------------------------------------------------------------------ what is read


def test_a_bounded_source_reads_all_partitions_in_order_with_event_times(pulsar_broker):
    pulsar_broker.create("a", 2)
    produce(
        pulsar_broker, "a", *[(f"0-{i}", 1000 + i) for i in range(100)], partition=0, batch=True
    )
    produce(pulsar_broker, "a", *[f"1-{i}" for i in range(50)], partition=1)
    task = Task(pickle.loads(pickle.dumps(bounded(pulsar_broker, "a").build())))
    found = task.read_to_end()
    assert [one for one in found if one[0] == "0"] == [f"0-{i}" for i in range(100)]
    assert [one for one in found if one[0] == "1"] == [f"1-{i}" for i in range(50)]
    stamps = {}
    for batch in task.batches:
        times = [None] * len(batch) if batch.timestamps is None else batch.timestamps
        stamps.update(zip(batch.values, times, strict=True))
    assert stamps["0-99"] == 1099
    assert stamps["1-7"] is None, "a message without an event time has no timestamp"
    assert len(task.batches) < 50, "message by message"


def test_an_event_time_of_one_message_is_not_that_of_the_next(pulsar_broker):
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", ("x", 5), "y", batch=True)
    task = Task(bounded(pulsar_broker, "a").build())
    task.read_to_end()
    assert task.batches[0].timestamps.tolist() == [5, NO_TIMESTAMP]


def test_rows_of_json_come_as_columns(pulsar_broker):
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", '{"name": "x", "n": 1}', '{"name": null}', batch=True)
    schema = JsonRowDeserializationSchema.builder().type_info(PAIR).build()
    task = Task(bounded(pulsar_broker, "a", schema=schema).build())
    task.read_to_end()
    assert all(isinstance(batch, ColumnBatch) for batch in task.batches)
    rows = [row for batch in task.batches for row in to_rows(batch, PAIR).values]
    assert rows == [Row(name="x", n=1), Row(name=None, n=None)]


def test_only_the_fields_that_are_read_are_parsed(pulsar_broker):
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", '{"name": "x", "n": 1}', '{"n": [], "name": "y"}', batch=True)
    schema = JsonRowDeserializationSchema.builder().type_info(PAIR).build()
    task = Task(bounded(pulsar_broker, "a", schema=schema).build())
    task.reader.read_fields(["name"])
    assert [row["name"] for row in task.read_to_end()] == ["x", "y"]
    assert all(isinstance(batch, DecodedColumns) for batch in task.batches)


def test_topics_that_are_empty_end_at_once_and_may_be_single_partitions(pulsar_broker):
    pulsar_broker.create("a")
    pulsar_broker.create("b", 2)
    produce(pulsar_broker, "b", "yes", partition=1)
    produce(pulsar_broker, "b", "no", partition=0)
    assert Task(bounded(pulsar_broker, "a", "b-partition-1").build()).read_to_end() == ["yes"]


def test_an_unbounded_source_reads_what_comes_and_stops_where_it_is_told(pulsar_broker):
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", "1", "2")
    task = Task(source_builder(pulsar_broker, "a").build())
    task.read(2)
    produce(pulsar_broker, "a", "3")
    assert task.read(3) == ["1", "2", "3"]
    task.close()
    until = source_builder(pulsar_broker, "a").set_unbounded_stop_cursor(StopCursor.latest())
    task = Task(until.build())
    assert task.read(3) == ["1", "2", "3"]
    assert not task.coordinator.no_more, "partitions may come"
    task.close()


def test_messages_of_fixed_keys(pulsar_broker):
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", "none")
    for key in ("k1", "k2", "k3"):
        produce(pulsar_broker, "a", f"of {key}", key=key)
    produce(pulsar_broker, "a", "ordered", key="k1", ordering_key="o")
    produce(pulsar_broker, "a", "bytes", key="/wA=")  # the bytes ff 00, as they travel

    def read(**wanted):
        builder = bounded(pulsar_broker, "a").set_range_generator(
            RangeGenerator.fixed_key(**wanted)
        )
        return Task(builder.build()).read_to_end()

    assert read(keys="k1") == ["of k1"]
    assert read(keys=["k1", "k3"], support_null_key=True) == ["none", "of k1", "of k3"]
    assert read(key_bytes=b"\xff\x00", ordering_key_bytes=b"o") == ["ordered", "bytes"]


def test_messages_that_give_no_record_count_as_read(pulsar_broker):
    """Else a key that is rare would leave all others to be read again, and never acknowledged."""
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", "1", "2", "3")
    builder = source_builder(pulsar_broker, "a")
    task = Task(builder.set_range_generator(RangeGenerator.fixed_key(keys="k")).build())
    while not (splits := task.reader.snapshot_state()) or splits[0].start.place != (7, 2, -1):
        task.poll_once()
        assert task.has_news.wait(WAIT_S), "nothing comes"
    task.reader.before_checkpoint(1)
    task.reader.notify_checkpoint_complete(1)
    pulsar_broker.wait_for(lambda: pulsar_broker.acknowledged("a", "tests") == 2)
    assert task.values() == []
    task.close()


def test_a_queue_of_no_length_is_one_of_one(pulsar_broker):
    """Java's client takes it; the one here would give no batches."""
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", "1", "2", "3")
    builder = bounded(pulsar_broker, "a").set_config("pulsar.consumer.receiverQueueSize", 0)
    assert Task(builder.build()).read_to_end() == ["1", "2", "3"]


# ------------------------------------------------------------------ where it begins and ends


@pytest.mark.parametrize("is_inclusive", [True, False])
@pytest.mark.parametrize("batch", [True, False])
def test_it_begins_at_a_message(pulsar_broker, is_inclusive, batch):
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", *"abcdef", batch=batch)
    with client_of(pulsar_broker) as client:
        consumer = client.subscribe(part("a"), "of the test's own")
        consumer.seek(0)
        ids = [consumer.receive(30_000).message_id().serialize() for _ in "abcdef"]
    builder = bounded(pulsar_broker, "a")
    builder.set_start_cursor(StartCursor.from_message_id(ids[2], is_inclusive))
    assert Task(builder.build()).read_to_end() == list("cdef" if is_inclusive else "def")
    stop = StopCursor.after_message_id if is_inclusive else StopCursor.at_message_id
    builder = source_builder(pulsar_broker, "a").set_bounded_stop_cursor(stop(ids[2]))
    assert Task(builder.build()).read_to_end() == list("abc" if is_inclusive else "ab")


def test_it_begins_behind_what_is_there(pulsar_broker):
    pulsar_broker.create("a", 2)
    produce(pulsar_broker, "a", "old", partition=0)
    source = source_builder(pulsar_broker, "a").set_start_cursor(StartCursor.latest()).build()
    task = Task(source)
    for partition in range(2):
        produce(pulsar_broker, "a", f"new {partition}", partition=partition)
    assert sorted(task.read(2)) == ["new 0", "new 1"]
    task.close()
    builder = bounded(pulsar_broker, "a", subscription="other")
    assert Task(builder.set_start_cursor(StartCursor.latest()).build()).read_to_end() == []


@pytest.mark.parametrize(
    ("cursor", "resets", "found"),
    [
        (StartCursor.earliest(), False, ["new"]),
        (StartCursor.latest(), False, ["new"]),
        (StartCursor.earliest(), True, ["1", "2", "new"]),
        (StartCursor.latest(), True, []),
    ],
)
def test_a_subscription_that_was_somewhere_goes_on_there(pulsar_broker, cursor, resets, found):
    """Where there is no checkpoint, unless it is told to begin at the cursor each time, as with Flink."""
    pulsar_broker.create("a")
    options = {
        "pulsar.source.enableAutoAcknowledgeMessage": True,
        "pulsar.source.autoCommitCursorInterval": 1,
    }
    first = Task(source_builder(pulsar_broker, "a").set_config_with_dict(options).build())
    produce(pulsar_broker, "a", "1", "2")
    first.read(2)
    pulsar_broker.wait_for(lambda: pulsar_broker.acknowledged("a", "tests") == 1)
    first.close()
    produce(pulsar_broker, "a", "new")
    builder = source_builder(pulsar_broker, "a").set_start_cursor(cursor)
    builder.set_config("pulsar.source.resetSubscriptionCursor", resets)
    after = Task(builder.build())
    produce(pulsar_broker, "a", "last")
    assert after.read(len(found) + 1) == [*found, "last"]
    after.close()


def test_it_begins_at_a_publish_time_and_ends_at_one(pulsar_broker):
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", *"abcde")
    for number, entry in enumerate(pulsar_broker.log("a").entries):
        entry.publish_time = 1000 + number  # what a seek looks at
    builder = bounded(pulsar_broker, "a").set_start_cursor(StartCursor.from_publish_time(1003))
    # The last message, as consumers see it, was published just now, and so behind the start.
    assert Task(builder.build()).read_to_end() == ["d", "e"]
    late = bounded(pulsar_broker, "a").set_start_cursor(StartCursor.from_publish_time(1 << 42))
    assert Task(late.build()).read_to_end() == [], (
        "nothing is that young, and nothing is waited for"
    )
    early = source_builder(pulsar_broker, "a").set_bounded_stop_cursor(
        StopCursor.at_publish_time(5)
    )
    assert Task(early.build()).read_to_end() == []


@pytest.mark.parametrize(
    ("stop", "found"),
    [
        (StopCursor.at_event_time(30), ["a", "none", "b"]),
        (StopCursor.after_event_time(30), ["a", "none", "b", "c"]),
        (StopCursor.after_event_time(25), ["a", "none", "b"]),
    ],
)
def test_it_ends_at_an_event_time(pulsar_broker, stop, found):
    """As Flink compares: the first message that is just there is the last one, a later one is not read."""
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", ("a", 10), "none", ("b", 20), ("c", 30), ("d", 30), ("e", 5))
    source = source_builder(pulsar_broker, "a").set_bounded_stop_cursor(stop).build()
    assert Task(source).read_to_end() == found


# ------------------------------------------------------------------ going on


@pytest.mark.parametrize("batch", [True, False])
def test_a_reader_goes_on_exactly_behind_what_it_gave(pulsar_broker, batch):
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", *map(str, range(1000)), batch=batch)
    builder = bounded(pulsar_broker, "a").set_config("pulsar.consumer.receiverQueueSize", 14)
    source = builder.build()
    first = Task(source)
    seen = list(first.read(1))
    (split,) = first.reader.snapshot_state()
    assert len(seen) < 1000, "the split is in the middle"
    assert split.start.kind is StartKind.AFTER
    first.close()
    assert seen + restored(source, first, split).read_to_end() == list(map(str, range(1000)))


def test_a_split_that_is_read_to_its_end_ends_at_once_when_it_comes_again(pulsar_broker):
    """A checkpoint may fall between its last batch and its end."""
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", ("x", 10), ("y", 10))
    stop = StopCursor.after_event_time(10)
    source = source_builder(pulsar_broker, "a").set_bounded_stop_cursor(stop).build()
    first = Task(source)
    assert first.read(1) == ["x"]
    (split,) = first.reader.snapshot_state()
    first.close()
    assert restored(source, first, split).read_to_end() == []


@pytest.mark.parametrize("choice", ["WARN_ON_MISMATCH", "FAIL_ON_MISMATCH"])
def test_what_was_removed_meanwhile_is_told_of(pulsar_broker, choice, caplog):
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", *"abcd")
    builder = bounded(pulsar_broker, "a").set_config("pulsar.source.verifyInitialOffsets", choice)
    source = builder.build()
    first = Task(source)
    first.read(4)
    (split,) = first.reader.snapshot_state()
    first.close()
    at_the_first = replace(split, start=replace(split.start, place=(7, 0, -1)), is_over=False)
    assert restored(source, first, at_the_first).read_to_end() == list("bcd")
    assert not caplog.records, "the message that it goes on from is there"
    pulsar_broker.expire("a", 1)
    assert restored(source, first, at_the_first).read_to_end() == list("bcd")
    assert not caplog.records, "what is gone was read and acknowledged"
    pulsar_broker.expire("a", 2)
    after = restored(source, first, at_the_first)
    text = "has lost the message 7:0, .* the first message now is 7:2"
    if choice == "FAIL_ON_MISMATCH":
        with pytest.raises(ExternalError, match=text):
            after.read_to_end()
        after.close()
    else:
        assert after.read_to_end() == list("cd")
        assert re.search(text, caplog.text)


def test_a_broken_connection_costs_and_doubles_nothing(pulsar_broker):
    """A real broker sends again from the last acknowledged message on, here from the first."""
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", *map(str, range(10)), batch=True)
    task = Task(source_builder(pulsar_broker, "a").build())
    assert task.read(10) == list(map(str, range(10)))
    pulsar_broker.fail("ACK", is_before=True)
    with client_of(pulsar_broker) as client:
        client.get_topic_partitions("a")
    task.reader.before_checkpoint(1)
    task.reader.notify_checkpoint_complete(1)
    pulsar_broker.wait_for(lambda: pulsar_broker.counts()["SUBSCRIBE"] >= 3)
    produce(pulsar_broker, "a", "10")
    assert task.read(11) == list(map(str, range(11)))
    task.close()


def test_what_a_checkpoint_covers_is_acknowledged_when_it_is_complete(pulsar_broker):
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", "1", "2")
    task = Task(source_builder(pulsar_broker, "a").build())
    task.read(2)
    task.reader.before_checkpoint(1)
    produce(pulsar_broker, "a", "3")
    task.read(3)
    assert pulsar_broker.acknowledged("a", "tests") == -1
    task.reader.notify_checkpoint_complete(1)
    pulsar_broker.wait_for(lambda: pulsar_broker.acknowledged("a", "tests") == 1)
    task.close()


def test_without_checkpoints_it_may_acknowledge_by_itself(pulsar_broker):
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", "1", "2")
    options = {
        "pulsar.source.enableAutoAcknowledgeMessage": True,
        "pulsar.source.autoCommitCursorInterval": 1,
    }
    task = Task(source_builder(pulsar_broker, "a").set_config_with_dict(options).build())
    task.read(2)
    pulsar_broker.wait_for(lambda: pulsar_broker.acknowledged("a", "tests") == 1)
    task.close()


def test_a_subscription_that_is_still_held_is_waited_for(pulsar_broker):
    """By the reader of a former attempt that has not closed its connection yet."""
    pulsar_broker.create("a")
    produce(pulsar_broker, "a", "x")
    source = bounded(pulsar_broker, "a").build()
    task = Task(source)
    with client_of(pulsar_broker) as client:
        client.subscribe(part("a"), "tests")
        before = pulsar_broker.counts()["SUBSCRIBE"]
        task.poll_once()
        pulsar_broker.wait_for(lambda: pulsar_broker.counts()["SUBSCRIBE"] > before + 1)
    assert task.read_to_end() == ["x"]


def test_a_subscription_that_another_job_holds_is_an_error(pulsar_broker):
    pulsar_broker.create("a")
    builder = source_builder(pulsar_broker, "a")
    builder.set_config("pulsar.client.operationTimeoutMs", 50)
    with client_of(pulsar_broker) as client:
        client.subscribe(part("a"), "tests")
        with pytest.raises(ExternalError, match="the subscription is exclusive and has a consumer"):
            Task(builder.build())


def test_partitions_can_be_held_back_one_by_one(pulsar_broker):
    pulsar_broker.create("a", 2)
    for partition in range(2):
        produce(pulsar_broker, "a", f"{partition}", partition=partition)
    task = Task(source_builder(pulsar_broker, "a").build())
    assert sorted(task.read(2)) == ["0", "1"]
    held = TopicPartition(part("a"), 0)
    is_held = threading.Event()
    task.reader.pause_or_resume_splits([held], [])
    task.reader.run_on_fetcher(is_held.set)  # not in the middle of a fetch
    assert is_held.wait(30)
    produce(pulsar_broker, "a", "held", partition=0)
    produce(pulsar_broker, "a", "read", partition=1)
    assert task.read(3)[-1] == "read"
    task.reader.pause_or_resume_splits([], [held])
    assert task.read(4)[-1] == "held"
    task.close()


# ------------------------------------------------------------------ finding partitions


def test_partitions_that_come_are_found_and_read_from_their_first_message(pulsar_broker):
    pulsar_broker.create("a", 1)
    source = source_builder(pulsar_broker, "a").set_start_cursor(StartCursor.latest()).build()
    task = Task(source)
    ((period_ms, look),) = task.coordinator.periodic
    assert period_ms == 300_000
    pulsar_broker.create("a", 2)
    produce(pulsar_broker, "a", "of the new one", partition=1)
    look()
    assert task.read(1) == ["of the new one"]
    task.close()


def test_a_pattern_names_topics_of_a_namespace(pulsar_broker):
    for topic, partitions in (("in-1", 2), ("in-2", 0), ("out", 0), ("__change_events", 0)):
        pulsar_broker.create(topic, partitions)
    pulsar_broker.create("persistent://public/other/in-3")

    def found(pattern, **options):
        builder = PulsarSource.builder().set_service_url(pulsar_broker.url)
        builder.set_topic_pattern(pattern).set_subscription_name("tests")
        builder.set_deserialization_schema(SimpleStringSchema())
        task = Task(builder.set_config_with_dict(options).build())
        known, _, _ = task.enumerator.snapshot_state()
        task.close()
        return [str(one).rpartition("/")[2] for one in known]

    wanted = ["in-1-partition-0", "in-1-partition-1", "in-2"]
    assert found("persistent://public/default/in-.*") == wanted
    assert found("public/default/in-.*") == wanted
    assert found("in-.*") == wanted
    assert found("persistent://public/other/.*") == ["in-3"]
    assert found(".*") == [*wanted, "out"]


def test_each_partition_belongs_to_one_subtask(pulsar_broker):
    pulsar_broker.create("a", 5)
    task = Task(source_builder(pulsar_broker, "a").build(), parallelism=3)
    task.enumerator.handle_split_request(0, "here")
    given = {
        split.partition.number: subtask
        for subtask, splits in task.coordinator.assigned.items()
        for split in splits
    }
    assert given == {number: owner_of(part("a"), number, 3) for number in range(5)}
    task.close()


# ------------------------------------------------------------------ errors


class Picky(DeserializationSchema):
    def deserialize(self, message):
        if message == b"bad":
            raise ValueError("it is bad")
        return message.decode() if message != b"drop" else None


def test_a_bad_message_is_named_and_one_may_be_passed_over(pulsar_broker):
    pulsar_broker.create("a", 1)
    produce(pulsar_broker, "a", "drop", "x", partition=0)
    assert Task(bounded(pulsar_broker, "a", schema=Picky()).build()).read_to_end() == ["x"]
    produce(pulsar_broker, "a", "y", "bad", partition=0, batch=True)
    task = Task(bounded(pulsar_broker, "a", schema=Picky()).build())
    error = r"Pulsar message 7:2, 1 of its batch, of persistent://public/default/a-partition-0, cannot be deserialized by Picky"
    with pytest.raises(ValueError, match=error):
        task.read_to_end()
    task.close()


def test_a_topic_that_is_not_there_is_an_error_before_the_job_starts(pulsar_broker):
    with pytest.raises(ConfigurationError, match="'nothing'.*there is no such topic"):
        source_builder(pulsar_broker, "nothing").build().validate()


def test_a_cluster_that_does_not_answer_is_an_error_before_the_job_starts():
    class Nowhere:
        url = "pulsar://127.0.0.1:1"

    for builder in (source_builder(Nowhere, "a"), PulsarSource.builder().set_topic_pattern("a")):
        builder.set_service_url(Nowhere.url).set_subscription_name("tests")
        builder.set_deserialization_schema(SimpleStringSchema())
        builder.set_config("pulsar.client.operationTimeoutMs", 1000)
        with pytest.raises(ConfigurationError, match="(?s)127.0.0.1:1.*advertisedAddress"):
            builder.build().validate()
