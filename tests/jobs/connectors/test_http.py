"""Whole jobs of a MiniCluster from an HTTP server to itself, which fails, hangs and is killed meanwhile."""

import json
import threading

from penstock.common import Types, WatermarkStrategy
from penstock.common.serialization import SimpleStringSchema
from penstock.common.time import Duration
from penstock.connectors.http import HttpSink, HttpSource
from penstock.datastream import OutputTag
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.formats.json import JsonRowDeserializationSchema
from penstock.testing import CollectingSink
from tests.tools.http_peer import ask, http_peer, url
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment
from tests.tools.waiting import wait_until

FAILED = threading.Event()


def fails_once(value):
    if value == "50" and not FAILED.is_set():
        FAILED.set()
        raise RuntimeError("planted")
    return value


def source_of(peer, schema):
    made = HttpSource.builder().set_url(url(peer, "/log"), "since").set_retries(20)
    made.set_timeout(Duration.of_millis(500)).set_interval(Duration.of_millis(20))
    return made.set_json_pages("items", "next").set_deserializer(schema)


def received(peer):
    taken = ask(peer, "/taken")
    return sorted(int(line) for _, _, body in taken for line in body.splitlines())


def test_a_job_and_a_server_that_fail_lose_and_double_nothing(tmp_path):
    FAILED.clear()
    with http_peer() as peer:
        ask(peer, "/log", list(range(100)))
        ask(peer, "/faults", [503, "hang", "lost answer", "drop", [429, {"Retry-After": "0"}]])
        env = restarting_environment(
            Watcher(),
            execution__checkpointing__interval="20 ms",
            execution__checkpointing__dir=str(tmp_path / "checkpoints"),
            restart_strategy__fixed_delay__attempts="50",
        )
        made = HttpSink.builder().set_url(url(peer, "/ingest")).set_retries(20)
        made.set_serializer(SimpleStringSchema()).set_body_form("lines").set_max_batch(20)
        made.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        sink = made.set_timeout(Duration.of_millis(500)).build()
        source = source_of(peer, SimpleStringSchema()).build()
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
        stream.map(fails_once, Types.STRING()).uid("map").sink_to(sink).uid("out")
        client = env.execute_async("copy")
        try:
            wait_until(lambda: len(received(peer)) >= 100, "the first are missing")
            peer.kill()
            peer.start()
            ask(peer, "/log", list(range(100, 150)))
            wait_until(lambda: len(received(peer)) >= 150, "the others are missing")
        finally:
            client.cancel().result()
        assert FAILED.is_set()
        assert received(peer) == list(range(150))


def test_records_that_cannot_be_read_are_put_aside():
    kind, tag = Types.ROW_NAMED(["n"], [Types.LONG()]), OutputTag("bad")
    schema = JsonRowDeserializationSchema.builder().type_info(kind).build()
    with http_peer() as peer:
        ask(peer, "/log", [{"n": 1}, {"n": "two"}, {"n": 3}])
        env = restarting_environment(Watcher())
        source = source_of(peer, schema).set_bounded().build()
        rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").on_error(tag)
        results, letters = CollectingSink(), CollectingSink()
        rows.sink_to(results)
        rows.get_side_output(tag).sink_to(letters)
        env.execute("poison")
    assert sorted(row["n"] for row in results.values) == [1, 3]
    (letter,) = letters.values
    assert json.loads(letter.record) == {"n": "two"}
    assert "record 1 of the page of None" in letter.error_text
