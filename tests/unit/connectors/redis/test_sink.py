"""RedisStreamSink on a real server."""

import itertools
import threading

import pytest
import redis

from penstock.common import Row, Types
from penstock.common.serialization import SimpleStringSchema
from penstock.common.time import Duration
from penstock.connectors.api.sending import DirectWriter, StagingWriter
from penstock.connectors.redis import RedisStreamSink
from penstock.connectors.redis.sink import MARKS
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from penstock.testing import check_sink
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.small_servers import redis_server

EXACTLY, AT_LEAST = DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE
ORDER = Types.ROW_NAMED(
    ["id", "name", "price", "paid"],
    [Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.BOOLEAN()],
)


def builder(url, stream="words"):
    made = RedisStreamSink.builder().set_url(url).set_stream(stream)
    return made.set_value_serializer(SimpleStringSchema())


def entries(url, stream="words"):
    with redis.Redis.from_url(url) as client:
        return [fields for _, fields in client.xrange(stream)]


def texts(url, stream="words"):
    return [fields[b"value"].decode() for fields in entries(url, stream)]


@pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
def test_what_the_kit_sees_is_what_the_sink_promises(redis_url, guarantee):
    numbers = itertools.count()

    def make():
        stream = f"s{next(numbers)}"
        sink = builder(redis_url, stream).set_delivery_guarantee(guarantee).build()
        return sink, lambda: texts(redis_url, stream)

    report = check_sink(make, most_points=9 if guarantee is EXACTLY else 3)
    assert report.guarantee is guarantee, str(report)


def test_a_commit_leaves_a_mark_that_names_the_checkpoint_and_goes_by_itself(redis_url):
    made = builder(redis_url).set_delivery_guarantee(EXACTLY)
    sink = made.set_mark_retention(Duration.of_seconds(100)).build()
    writer = sink.create_writer(writer_context())
    assert isinstance(writer, StagingWriter)
    writer.write(RowBatch(["a", "b"]), 0)
    staged = writer.prepare_checkpoint(41)
    assert texts(redis_url) == []
    committer = sink.create_committer()
    committer.commit(staged)
    committer.commit(staged)
    committer.close()
    assert texts(redis_url) == ["a", "b"]
    with redis.Redis.from_url(redis_url) as client:
        (mark,) = client.keys(f"{MARKS}*")
        assert b":41:" in mark
        assert 0 < client.ttl(mark) <= 100


def test_two_processes_that_commit_the_same_at_once_append_it_once(redis_url):
    sink = builder(redis_url).set_delivery_guarantee(EXACTLY).build()
    writer = sink.create_writer(writer_context())
    words = [str(number) for number in range(5000)]
    writer.write(RowBatch(words), 0)
    staged = writer.prepare_checkpoint(1)
    assert len(staged) == 5
    committers = [sink.create_committer() for _ in range(4)]
    threads = [threading.Thread(target=one.commit, args=(staged,)) for one in committers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in committers:
        one.close()
    # Pieces of several writers may be interleaved, the entries of a piece are not.
    assert sorted(texts(redis_url), key=int) == words


def test_rows_become_fields_and_what_is_none_is_left_out(redis_url):
    made = RedisStreamSink.builder().set_url(redis_url).set_stream("orders").set_row_type(ORDER)
    sink = made.build()
    sink.validate_input(ORDER)
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch([Row(7, "wörd", 1.5, True), Row(8, None, None, None)]), 0)
    writer.close()
    assert entries(redis_url, "orders") == [
        {b"id": b"7", b"name": "wörd".encode(), b"price": b"1.5", b"paid": b"true"},
        {b"id": b"8"},
    ]
    other = Types.ROW_NAMED(["id", "ammount"], [Types.LONG(), Types.LONG()])
    with pytest.raises(ConfigurationError, match="ammount"):
        sink.validate_input(other)


def test_a_function_chooses_the_stream_of_each_record(redis_url):
    for guarantee in (EXACTLY, AT_LEAST):
        sink = builder(redis_url, lambda word: word[0]).set_delivery_guarantee(guarantee).build()
        writer = sink.create_writer(writer_context())
        writer.write(RowBatch(["ape", "bee", "ant"]), 0)
        staged = writer.prepare_commit()
        if staged:
            sink.create_committer().commit(staged)
        writer.close()
    assert texts(redis_url, "a") == ["ape", "ant"] * 2
    assert texts(redis_url, "b") == ["bee"] * 2


@pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
def test_a_stream_is_kept_short(redis_url, guarantee):
    sink = builder(redis_url).set_max_length(100).set_delivery_guarantee(guarantee).build()
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch([str(number) for number in range(3000)]), 0)
    if staged := writer.prepare_commit():
        committer = sink.create_committer()
        committer.commit(staged)
        committer.close()
    writer.close()
    found = texts(redis_url)
    assert 100 <= len(found) < 400
    assert found[-1] == "2999"


@pytest.mark.server
@pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
def test_a_server_that_is_killed_and_comes_back_costs_no_record(guarantee):
    """It is killed after a commit whose answer nobody has seen, too: the same is committed again."""
    with redis_server() as server:
        url = f"redis://127.0.0.1:{server.port}/0"
        sink = builder(url).set_delivery_guarantee(guarantee).build()
        writer, committer = sink.create_writer(writer_context()), sink.create_committer()
        for number in range(3):
            writer.write(RowBatch([f"{number} a", f"{number} b"]), 0)
            staged = writer.prepare_commit()
            if staged:
                committer.commit(staged)
            server.kill()
            server.start()
            if staged:
                committer.commit(staged)
        writer.close()
        if committer is not None:
            committer.close()
        assert texts(url) == [f"{number} {one}" for number in range(3) for one in "ab"]


@pytest.mark.server
def test_a_server_that_stays_away_restarts_the_job_and_its_records_count_as_errors(monkeypatch):
    with redis_server() as server:
        url = f"redis://127.0.0.1:{server.port}/0"
        monkeypatch.setattr("penstock.connectors.redis.client.RETRIES", 1)
        writer = builder(url).build().create_writer(writer_context())
        assert isinstance(writer, DirectWriter)
        server.kill()
        with pytest.raises(ExternalError, match="127.0.0.1.*ConnectionError") as told:
            writer.write(RowBatch(["a", "b"]), 0)
        assert not isinstance(told.value, RefusedForGood)
        assert writer.sent.errors == 2
        writer.close()


def test_a_key_of_another_kind_ends_the_job(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.set("words", "x")
    for guarantee in (EXACTLY, AT_LEAST):
        sink = builder(redis_url).set_delivery_guarantee(guarantee).build()
        with pytest.raises(ConfigurationError, match="is a string, expected a stream"):
            sink.validate()
        writer, committer = sink.create_writer(writer_context()), sink.create_committer()
        with pytest.raises(RefusedForGood, match="WRONGTYPE"):
            writer.write(RowBatch(["a"]), 0)
            committer.commit(writer.prepare_commit())
        writer.close()
    with redis.Redis.from_url(redis_url) as client:
        assert client.keys(f"{MARKS}*") == []


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda made: made.set_delivery_guarantee(DeliveryGuarantee.NONE), "AT_LEAST_ONCE"),
        (lambda made: made.set_max_length(0), "1 or more"),
        (lambda made: made.set_mark_retention(Duration.of_millis(10)), "1 s or more"),
        (lambda made: made.set_stream(""), "not empty"),
        (lambda made: made.set_url("redis://h").build(), "set_stream.*is missing"),
    ],
)
def test_wrong_settings_are_refused(make, text):
    with pytest.raises(ConfigurationError, match=text):
        make(RedisStreamSink.builder())


def test_a_record_that_has_no_form_says_so(redis_url):
    made = RedisStreamSink.builder().set_url(redis_url).set_stream("orders").set_row_type(ORDER)
    writer = made.build().create_writer(writer_context())
    with pytest.raises(TypeError, match="'name' has a list"):
        writer.convert(RowBatch([Row(1, ["x"], None, None)]))
    with pytest.raises(ValueError, match="no empty entries"):
        writer.convert(RowBatch([Row(None, None, None, None)]))
    writer.close()
    assert "geheim" not in repr(builder("redis://u:geheim@host").build())
