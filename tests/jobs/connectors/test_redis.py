"""Whole jobs of a MiniCluster from stream to stream on a real Redis: a failure costs nothing and doubles nothing."""

import threading

import pytest
import redis

from penstock.common import Types, WatermarkStrategy
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.redis import RedisStreamSink, RedisStreamSource
from penstock.datastream import OutputTag
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.testing import CollectingSink
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment
from tests.tools.small_servers import redis_server
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.server

COUNT = 3000
FAILED = threading.Event()


@pytest.fixture
def server():
    FAILED.clear()
    with redis_server() as found:
        yield found


def url_of(server):
    return f"redis://127.0.0.1:{server.port}/0"


def fill(server, stream, values):
    with redis.Redis.from_url(url_of(server)) as client, client.pipeline(False) as pipeline:
        for value in values:
            pipeline.xadd(stream, {"value": value})
        pipeline.execute()


def texts(server, stream):
    with redis.Redis.from_url(url_of(server)) as client:
        return [fields[b"value"].decode() for _, fields in client.xrange(stream)]


def fails_once(value):
    if value == str(COUNT // 2) and not FAILED.is_set():
        FAILED.set()
        raise RuntimeError("planted")
    return value


def copying(env, server, guarantee, *, is_bounded=True):
    made = RedisStreamSource.builder().set_url(url_of(server)).set_streams("in", "more")
    made.set_value_deserializer(SimpleStringSchema())
    source = (made.set_bounded() if is_bounded else made).build()
    made = RedisStreamSink.builder().set_url(url_of(server)).set_stream("out")
    sink = made.set_value_serializer(SimpleStringSchema()).set_delivery_guarantee(guarantee).build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
    stream.map(fails_once, Types.STRING()).uid("map").sink_to(sink).uid("out")


def checkpointed(tmp_path, watcher):
    return restarting_environment(
        watcher,
        execution__checkpointing__interval="20 ms",
        execution__checkpointing__dir=str(tmp_path / "checkpoints"),
        restart_strategy__fixed_delay__attempts="50",
    )


@pytest.mark.parametrize("has_checkpoints", [True, False])
def test_a_job_that_fails_in_between_writes_each_entry_once(server, tmp_path, has_checkpoints):
    fill(server, "in", map(str, range(0, COUNT, 2)))
    fill(server, "more", map(str, range(1, COUNT, 2)))
    env = (
        checkpointed(tmp_path, Watcher()) if has_checkpoints else restarting_environment(Watcher())
    )
    copying(env, server, DeliveryGuarantee.EXACTLY_ONCE)
    env.execute("copy")
    assert FAILED.is_set()
    assert sorted(texts(server, "out"), key=int) == [str(number) for number in range(COUNT)]


def test_a_server_that_is_killed_again_and_again_costs_and_doubles_nothing(server, tmp_path):
    FAILED.set()
    watcher = Watcher()
    env = checkpointed(tmp_path, watcher)
    copying(env, server, DeliveryGuarantee.EXACTLY_ONCE, is_bounded=False)
    client = env.execute_async("copy")
    try:
        for turn in range(4):
            fill(server, "in", (f"{turn}{number:04}" for number in range(1000)))
            wait_until(lambda: texts(server, "out"), "nothing comes")
            server.kill()
            server.start()
        wait_until(lambda: len(texts(server, "out")) >= 4000, "some are missing")
        seen = len(watcher.completed)
        wait_until(lambda: len(watcher.completed) > seen + 2, "no checkpoints")
    finally:
        client.cancel().result()
    expected = [f"{turn}{number:04}" for turn in range(4) for number in range(1000)]
    assert sorted(texts(server, "out")) == expected


def test_entries_that_cannot_be_read_are_put_aside(server):
    fill(server, "numbers", ["1", "two", "3"])
    kind = Types.ROW_NAMED(["value"], [Types.LONG()])
    made = RedisStreamSource.builder().set_url(url_of(server)).set_streams("numbers")
    env = restarting_environment(Watcher())
    tag = OutputTag("bad")
    rows = env.from_source(
        made.set_row_type(kind).set_bounded().build(), WatermarkStrategy.no_watermarks(), "in"
    ).on_error(tag)
    results, letters = CollectingSink(), CollectingSink()
    rows.sink_to(results)
    rows.get_side_output(tag).sink_to(letters)
    env.execute("poison")
    assert sorted(row["value"] for row in results.values) == [1, 3]
    (letter,) = letters.values
    assert letter.record == {b"value": b"two"}
    assert "the field 'value' has b'two'" in letter.error_text
