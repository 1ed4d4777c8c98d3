"""JetStreamSink on a real server."""

import itertools
import threading

import pytest

from penstock.common.serialization import SerializationSchema, SimpleStringSchema
from penstock.connectors.api.sending import StagingWriter
from penstock.connectors.nats import JetStreamSink
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from penstock.testing import check_sink
from tests.tools.brokers.nats_streams import Streams
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.hosting.checked_locks import check_locks, users_code
from tests.tools.small_servers import free_port, nats_server

EXACTLY, AT_LEAST = DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE


def builder(streams, name):
    made = JetStreamSink.builder().set_url(streams.url).set_subject(f"{name}.x")
    return made.set_serializer(SimpleStringSchema())


@pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
def test_what_the_kit_sees_is_what_the_sink_promises(streams, guarantee):
    numbers = itertools.count()

    def make():
        name = f"kit-{guarantee.name}-{next(numbers)}"
        streams.add(name)
        sink = builder(streams, name).set_delivery_guarantee(guarantee).build()
        return sink, lambda: streams.texts(name)

    report = check_sink(make, most_points=5 if guarantee is EXACTLY else 2)
    assert report.guarantee is guarantee, str(report)


def test_a_commit_that_is_repeated_publishes_nothing(streams, stream):
    sink = builder(streams, stream).set_delivery_guarantee(EXACTLY).build()
    writer = sink.create_writer(writer_context())
    assert isinstance(writer, StagingWriter)
    words = [str(number) for number in range(2500)]
    writer.write(RowBatch(words), 0)
    staged = writer.prepare_checkpoint(41)
    assert [len(one.messages) for one in staged] == [1000, 1000, 500]
    assert ":41:" in staged[0].id
    assert streams.count(stream) == 0
    committers = [sink.create_committer() for _ in range(3)]
    threads = [threading.Thread(target=one.commit, args=(staged,)) for one in committers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in committers:
        one.close()
    assert streams.count(stream) == 2500
    writer.close()


def test_messages_come_in_order_with_subjects_of_their_own(streams, stream):
    made = builder(streams, stream).set_subject(lambda word: f"{stream}.{word[0]}.{len(word)}")
    writer = made.build().create_writer(writer_context())
    writer.write(RowBatch(["ab", "b", "a"]), 0)
    assert writer.prepare_commit() == ()
    writer.close()
    assert streams.texts(stream) == ["ab", "b", "a"]
    subjects = [streams.run(lambda js, at=at: js.get_msg(stream, at)).subject for at in (1, 2, 3)]
    assert subjects == [f"{stream}.a.2", f"{stream}.b.1", f"{stream}.a.1"]


def test_an_id_of_the_record_is_stored_once_whoever_writes_it(streams, stream):
    sink = builder(streams, stream).set_message_id(lambda word: f"id-{word}").build()
    for _ in range(2):
        writer = sink.create_writer(writer_context())
        writer.write(RowBatch(["a", "b", "a"]), 0)
        writer.close()
    assert streams.texts(stream) == ["a", "b"]


@pytest.mark.server
@pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
def test_a_server_that_is_killed_in_between_gets_each_message_once(guarantee):
    with nats_server() as server, Streams(server) as streams:
        streams.add("words")
        sink = builder(streams, "words").set_delivery_guarantee(guarantee).build()
        writer, committer = sink.create_writer(writer_context()), sink.create_committer()
        expected = []
        for turn in range(4):
            words = [f"{turn}-{number}" for number in range(3000)]
            expected += words
            killer = threading.Thread(target=_kill_and_start, args=(server,))
            killer.start()
            writer.write(RowBatch(words), 0)
            staged = writer.prepare_checkpoint(turn) if guarantee is EXACTLY else ()
            if committer is not None:
                committer.commit(staged)
            killer.join()
        writer.close()
        if committer is not None:
            committer.close()
        assert streams.texts("words") == expected


def _kill_and_start(server):
    server.kill()
    server.start()


class Bad(SerializationSchema):
    def serialize(self, value):
        return value


def test_what_is_no_message_is_told(streams, stream):
    made = builder(streams, stream)
    writer = made.set_serializer(Bad()).build().create_writer(writer_context())
    with pytest.raises(TypeError, match="Bad gave int for 7; expected bytes"):
        writer.convert(RowBatch([7]))
    writer.close()
    writer = builder(streams, stream).set_subject(lambda _: "a b").build()
    writer = writer.create_writer(writer_context())
    with pytest.raises(ConfigurationError, match="the function of set_subject: expected a subj"):
        writer.convert(RowBatch(["a"]))
    writer.close()
    made = builder(streams, stream).set_message_id(lambda _: "ä\n").build()
    writer = made.create_writer(writer_context())
    with pytest.raises(TypeError, match="set_message_id gave 'ä"):
        writer.convert(RowBatch(["a"]))
    writer.close()


@pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
def test_a_message_that_is_too_large_is_told_before_it_is_sent_or_staged(
    streams, stream, guarantee
):
    """The server takes 1 MiB with headers, 2 MiB are too much; by what the policy for errors looks at."""
    sink = builder(streams, stream).set_delivery_guarantee(guarantee).build()
    writer = sink.create_writer(writer_context())
    with pytest.raises(RefusedForGood, match=f"'{stream}.x' has 1048570 bytes.* takes 1048576"):
        writer.convert(RowBatch(["small", "x" * 1_048_570]))
    largest = "x" * (1_048_576 - 600)
    writer.write_converted(writer.convert(RowBatch([largest])), 0)
    staged = writer.prepare_checkpoint(1) if guarantee is EXACTLY else ()
    sink.create_committer().commit(staged) if staged else None
    assert streams.texts(stream) == [largest]
    writer.close()


def test_headers_count_as_the_server_counts_them(streams, stream):
    """NATS/1.0, Nats-Msg-Id: i, an empty line, each with CR and LF: 28 bytes."""
    sink = builder(streams, stream).set_message_id(lambda word: "i").build()
    writer = sink.create_writer(writer_context())
    with pytest.raises(RefusedForGood, match="1048549 bytes, and 28 for its id"):
        writer.convert(RowBatch(["x" * (1_048_576 - 27)]))
    writer.write(RowBatch(["x" * (1_048_576 - 28)]), 0)
    assert streams.count(stream) == 1
    writer.close()


def test_what_the_stream_refuses_for_good_ends_the_job_at_once(streams):
    streams.add("narrow", max_msg_size=1000)
    writer = builder(streams, "narrow").build().create_writer(writer_context())
    with pytest.raises(RefusedForGood, match="1500 bytes for 'narrow.x': message size exceeds max"):
        writer.write(RowBatch(["small", "x" * 1500]), 0)
    assert writer.sent.errors == 2
    writer.close()


def test_a_full_stream_that_takes_no_more_is_told_and_may_have_room_later(streams):
    streams.add("full", max_msgs=1, discard="new")
    writer = builder(streams, "full").build().create_writer(writer_context())
    writer.outlet.link._retries = 0
    with pytest.raises(ExternalError, match="for 'full.x': maximum messages exceeded") as caught:
        writer.write(RowBatch(["a", "b"]), 0)
    assert not isinstance(caught.value, RefusedForGood)
    assert streams.texts("full") == ["a"]
    writer.close()


def test_a_subject_that_no_stream_takes_is_told(streams, stream):
    made = builder(streams, stream).set_subject(lambda word: "nowhere")
    writer = made.build().create_writer(writer_context())
    writer.outlet.link._retries = 0
    with pytest.raises(ExternalError, match="1 bytes for 'nowhere': no stream takes it"):
        writer.write(RowBatch(["a"]), 0)
    writer.close()


def test_what_is_wrong_is_told_at_submit_where_the_server_is_reached(streams, stream):
    builder(streams, stream).build().validate()
    with pytest.raises(ConfigurationError, match="no stream on .* takes the subject 'absent.x'"):
        builder(streams, "absent").build().validate()
    away = JetStreamSink.builder().set_url(f"nats://127.0.0.1:{free_port()}").set_subject("x")
    sink = away.set_serializer(SimpleStringSchema()).build()
    sink.validate()
    writer = sink.create_writer(writer_context())
    writer.outlet.link._retries = 1
    with pytest.raises(ExternalError, match="fails: ConnectionRefusedError"):
        writer.write(RowBatch(["a"]), 0)
    writer.close()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda made: made.set_subject("a.*"), r"expected a subject, without \* and >"),
        (lambda made: made.set_delivery_guarantee(DeliveryGuarantee.NONE), "AT_LEAST_ONCE or EX"),
        (lambda made: made.set_url("nats://h").build(), r"set_subject\(.*\) is missing"),
        (
            lambda made: (
                made
                .set_url("nats://h")
                .set_subject("x")
                .set_serializer(SimpleStringSchema())
                .set_message_id(str)
                .set_delivery_guarantee(EXACTLY)
                .build()
            ),
            "EXACTLY_ONCE gives messages ids of its own",
        ),
    ],
)
def test_the_builder_refuses_what_cannot_work(call, text):
    with pytest.raises(ConfigurationError, match=text):
        call(JetStreamSink.builder())


@pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
def test_no_lock_is_taken_where_a_cancel_may_interrupt(streams, stream, guarantee, monkeypatch):
    """The thread of the connection takes the locks of its calls too, and would wait for ever for one that stays taken."""
    locks = check_locks(monkeypatch, "penstock.", "concurrent.")
    sink = builder(streams, stream).set_delivery_guarantee(guarantee).build()
    with users_code():
        writer = sink.create_writer(writer_context())
        writer.write(RowBatch(["a", "b"]), 0)
        writer.prepare_commit()
        writer.close()
    assert locks.taken
    assert not locks.violations, "\n\n".join(locks.violations)
