"""JetStreamSource on a real server."""

import itertools
import logging
import re

import pytest

from penstock.common import Row, RowKind, Types
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.api.base import Boundedness
from penstock.connectors.nats import JetStreamSource
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from penstock.formats.debezium import DebeziumJsonDeserializationSchema
from penstock.formats.json import JsonRowDeserializationSchema
from penstock.testing import check_source
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.brokers.nats_streams import Streams
from tests.tools.connectors.reading_thread import Task
from tests.tools.small_servers import free_port, nats_server
from tests.tools.waiting import wait_until

WORDS = [f"word {number}" for number in range(12)]


def builder(streams, name):
    made = JetStreamSource.builder().set_url(streams.url).set_stream(name)
    return made.set_deserializer(SimpleStringSchema())


def read(source):
    """All records of a bounded source."""
    return Task(source).read_to_end()


def polled(poller, count):
    """So many records of a poller."""
    found = []

    def is_there():
        got = poller.poll()
        found.extend(got.values if isinstance(got, RowBatch) else got)
        return len(found) >= count

    wait_until(is_there, f"there is only {found}")
    return found


def test_every_restart_and_rescale_reads_each_message_once(streams):
    numbers = itertools.count()

    def make():
        name = f"kit{next(numbers)}"
        streams.add(name)
        for place, subject in enumerate(("a", "b")):
            streams.publish(name, *WORDS[place::2], subject=subject)
        return builder(streams, name).set_subjects(f"{name}.a", f"{name}.b.>", f"{name}.b").build()

    report = check_source(make, WORDS, parallelisms=(1, 2), most_points=2)
    report.require(DeliveryGuarantee.EXACTLY_ONCE)


def test_a_bounded_source_ends_where_the_stream_ended_when_it_began(streams, stream):
    streams.publish(stream, *WORDS)
    source = builder(streams, stream).set_bounded().build()
    assert source.boundedness is Boundedness.BOUNDED
    run = SourceRun(source, 1)
    run.read(records=1)
    streams.publish(stream, "later")
    run.read()
    run.close()
    assert run.records == WORDS


def test_a_bounded_source_of_nothing_ends(streams, stream):
    assert read(builder(streams, stream).set_bounded().build()) == []
    streams.publish(stream, "a", subject="other")
    made = builder(streams, stream).set_subjects(f"{stream}.none")
    assert read(made.set_bounded().build()) == []


def test_a_bounded_source_of_some_subjects_ends_though_others_come_last(streams, stream):
    streams.publish(stream, "a", "b", subject="one")
    streams.publish(stream, "c", subject="two")
    made = builder(streams, stream).set_subjects(f"{stream}.one")
    assert read(made.set_bounded().build()) == ["a", "b"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (lambda made: made.set_starting_sequence(3), ["c", "d"]),
        (lambda made: made.set_starting_sequence(99), []),
        (lambda made: made.set_starting_timestamp(4_000_000_000_000), []),
        (lambda made: made.set_starting_timestamp(0), ["a", "b", "c", "d"]),
        (lambda made: made.set_starting_latest(), []),
    ],
)
def test_it_begins_where_it_is_told(streams, stream, setting, expected):
    streams.publish(stream, *"abcd")
    assert read(setting(builder(streams, stream)).set_bounded().build()) == expected


def test_it_begins_at_a_time(streams, stream):
    for word in "abcdef":
        streams.publish(stream, word)
    task = Task(builder(streams, stream).set_bounded().build())
    task.read_to_end()
    stamps = [int(one) for batch in task.batches for one in batch.timestamps]
    made = builder(streams, stream).set_starting_timestamp(stamps[3])
    expected = [word for word, stamp in zip("abcdef", stamps, strict=True) if stamp >= stamps[3]]
    assert read(made.set_bounded().build()) == expected


def test_latest_is_what_comes_after_the_start_also_after_a_failure(streams, stream):
    streams.publish(stream, "a", "b")
    source = builder(streams, stream).set_starting_latest().build()
    poller = source.create_poller(0)
    poller.open(None)
    # A checkpoint has the position before the first record.
    assert isinstance(first := poller.poll(), RowBatch) and not len(first)
    position = poller.position()
    poller.close()
    streams.publish(stream, "c")
    poller = source.create_poller(0)
    poller.open(position)
    assert polled(poller, 1) == ["c"]
    poller.close()


def test_records_have_their_subject_and_the_time_of_the_server(streams, stream):
    streams.publish(stream, "7", subject="a.b")
    schema = SimpleStringSchema()
    made = builder(streams, stream).set_deserializer(schema, with_subject=True)
    source = made.set_bounded().build()
    assert source.produced_type == Types.ROW_NAMED(
        ["subject", "value"], [Types.STRING(), Types.STRING()]
    )
    task = Task(source)
    assert task.read_to_end() == [Row(subject=f"{stream}.a.b", value="7")]
    message = streams.run(lambda js: js.get_msg(stream, 1))
    assert abs(int(task.batches[0].timestamps[0]) - message.time.timestamp() * 1000) <= 1


def test_each_change_of_a_message_has_its_subject_and_its_kind(streams, stream):
    streams.publish(stream, '{"before": {"n": 1}, "after": {"n": 2}, "op": "u"}')
    kind = Types.ROW_NAMED(["n"], [Types.LONG()])
    schema = DebeziumJsonDeserializationSchema(kind)
    made = builder(streams, stream).set_deserializer(schema, with_subject=True)
    rows = read(made.set_bounded().build())
    assert [(row["subject"], row["value"]["n"], row.get_row_kind()) for row in rows] == [
        (f"{stream}.x", 1, RowKind.UPDATE_BEFORE),
        (f"{stream}.x", 2, RowKind.UPDATE_AFTER),
    ]


def test_a_message_that_cannot_be_read_is_named(streams, stream):
    streams.publish(stream, '{"n": 1}', "nonsense")
    kind = Types.ROW_NAMED(["n"], [Types.LONG()])
    schema = JsonRowDeserializationSchema.builder().type_info(kind).build()
    for with_subject in (False, True):
        made = builder(streams, stream).set_deserializer(schema, with_subject=with_subject)
        text = f"message 2 of the stream '{stream}' ({stream}.x) cannot be deserialized by Json"
        with pytest.raises(ValueError, match=re.escape(text)):
            read(made.set_bounded().build())


@pytest.mark.parametrize("status", ["404", "409", "ready"])
def test_a_header_of_a_publisher_is_no_status_of_the_server(streams, stream, status):
    streams.publish(stream, "a")
    streams.publish(stream, "", headers={"Status": status})
    streams.publish(stream, "b")
    run = SourceRun(builder(streams, stream).build(), 1)
    run.read(records=3)
    run.close()
    assert run.records == ["a", "", "b"]


def test_the_consumer_goes_with_the_reader(streams, stream):
    streams.publish(stream, "a")
    run = SourceRun(builder(streams, stream).build(), 1)
    run.read(records=1)
    assert len(streams.consumers(stream)) == 1
    run.close()
    assert streams.consumers(stream) == []


def test_a_consumer_that_is_deleted_is_made_again(streams, stream):
    streams.publish(stream, "a", "b")
    run = SourceRun(builder(streams, stream).build(), 1)
    run.read(records=2)
    (consumer,) = streams.consumers(stream)
    streams.run(lambda js: js.delete_consumer(stream, consumer.name))
    streams.publish(stream, "c")
    run.read(records=3)
    run.close()
    assert run.records == ["a", "b", "c"]


@pytest.mark.server
def test_a_server_that_is_killed_again_and_again_loses_and_doubles_nothing():
    with nats_server() as server, Streams(server) as streams:
        streams.add("words")
        run = SourceRun(builder(streams, "words").build(), 1)
        expected = []
        for turn in range(4):
            words = [f"{turn}-{number}" for number in range(300)]
            streams.publish("words", *words)
            expected += words
            run.read(records=len(expected) - 100)
            server.kill()
            server.start()
        run.read(records=len(expected))
        run.look_on()
        run.close()
        assert run.records == expected


def test_messages_that_were_removed_before_they_were_read_end_the_job(streams):
    streams.add("short", max_msgs=3)
    streams.publish("short", "a")
    source = builder(streams, "short").build()
    run = SourceRun(source, 1)
    run.read(records=1)
    kept = run.checkpoint(1)
    run.close()
    streams.publish("short", *"bcdef")
    run = SourceRun(source, 1, kept)
    text = "messages after 1 and before 4 were removed from the stream .* before they were read"
    with pytest.raises(RefusedForGood, match=text):
        run.read(records=1)
    run.close()


def test_by_option_it_goes_on_without_messages_that_were_removed(streams, caplog):
    streams.add("shorter", max_msgs=2)
    streams.publish("shorter", "a")
    source = builder(streams, "shorter").set_fail_on_missing_messages(False).build()
    run = SourceRun(source, 1)
    run.read(records=1)
    kept = run.checkpoint(1)
    run.close()
    streams.publish("shorter", *"bcdef")
    with caplog.at_level(logging.WARNING):
        run = SourceRun(source, 1, kept)
        run.read(records=2)
        run.close()
    assert run.records == ["e", "f"]
    assert "after 1 and before 5 were removed" in caplog.text


def test_another_stream_of_the_same_name_is_told(streams):
    streams.add("twice")
    streams.publish("twice", *"abc")
    source = builder(streams, "twice").build()
    run = SourceRun(source, 1)
    run.read(records=3)
    kept = run.checkpoint(1)
    run.close()
    streams.run(lambda js: js.delete_stream("twice"))
    streams.add("twice")
    run = SourceRun(source, 1, kept)
    with pytest.raises(RefusedForGood, match="ends with the message 0, and 3 was read already"):
        run.read(records=1)
    run.close()


def test_other_subjects_than_those_of_the_checkpoint_are_refused(streams, stream):
    streams.publish(stream, "a", subject="one")
    run = SourceRun(builder(streams, stream).set_subjects(f"{stream}.one").build(), 1)
    run.read(records=1)
    kept = run.checkpoint(1)
    run.close()
    run = SourceRun(builder(streams, stream).set_subjects(f"{stream}.two").build(), 1, kept)
    with pytest.raises(RefusedForGood, match="has the position of the subject"):
        run.read(records=1)
    run.close()


def test_what_is_wrong_is_told_at_submit_where_the_server_is_reached(streams, stream):
    builder(streams, stream).build().validate()
    with pytest.raises(ConfigurationError, match="there is no stream 'absent'. Create it"):
        builder(streams, "absent").build().validate()
    streams.add("queue", retention="workqueue")
    with pytest.raises(ConfigurationError, match="has the retention 'workqueue'"):
        builder(streams, "queue").build().validate()
    away = JetStreamSource.builder().set_url(f"nats://127.0.0.1:{free_port()}").set_stream("s")
    away.set_deserializer(SimpleStringSchema()).build().validate()


@pytest.mark.server
def test_a_wrong_password_is_told_at_submit_and_shown_nowhere():
    with (
        nats_server("authorization { user: jobs, password: right }") as server,
        Streams(server, user="jobs", password="right") as streams,
    ):
        streams.add("words")
        streams.publish("words", "a")
        made = builder(streams, "words").set_credentials("jobs", "right").set_bounded()
        made.build().validate()
        assert read(made.build()) == ["a"]
        in_url = made.set_url(f"nats://jobs:right@127.0.0.1:{server.port}").build()
        in_url.validate()
        assert "right" not in f"{in_url!r} {in_url.settings!r}"
        wrong = builder(streams, "words").set_credentials("jobs", "wro?ng").build()
        with pytest.raises(ConfigurationError, match="refuses: .*Authorization Violation") as told:
            wrong.validate()
        assert "wro?ng" not in str(told.value)
        with pytest.raises(RefusedForGood, match="refuses: .*Authorization Violation"):
            read(wrong)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda made: made.set_url("http://x"), "got the scheme 'http'"),
        (lambda made: made.set_url("nats://h:p@ss:w@x:y"), "the URL cannot be parsed"),
        (lambda made: made.set_stream("a.b"), "expected the name of a stream"),
        (lambda made: made.set_subjects("a..b"), "expected subjects, with \\* for a token"),
        (lambda made: made.set_subjects(), "expected at least one subject"),
        (lambda made: made.set_subjects("a.*", "a.b"), "have subjects in common"),
        (lambda made: made.set_subjects("a.>", "a.b.c"), "have subjects in common"),
        (lambda made: made.set_starting_sequence(0), "expected 1 or more, got 0"),
        (lambda made: made.set_tls(key_file="k"), "key_file is the key of certificate_file"),
        (lambda made: made.build(), r"set_url\(.*\) is missing"),
        (lambda made: made.set_url("nats://h").build(), r"set_stream\(.*\) is missing"),
    ],
)
def test_the_builder_refuses_what_cannot_work(call, text):
    with pytest.raises(ConfigurationError, match=text):
        call(JetStreamSource.builder())


def test_subjects_without_one_in_common_are_taken():
    made = JetStreamSource.builder().set_subjects("a.*", "a", "b.>", "a.b.c")
    assert made.settings.subjects == ("a.*", "a", "b.>", "a.b.c")
