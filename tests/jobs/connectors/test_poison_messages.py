"""Malformed messages of Kafka and RabbitMQ become dead letters, once each, while the others are read."""

import io
import json

import fastavro
import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import OutputTag
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.formats.avro import AvroRowDeserializationSchema, AvroSchema
from penstock.formats.csv import CsvRowDeserializationSchema
from penstock.formats.json import JsonRowDeserializationSchema
from penstock.testing import CollectingSink
from tests.tools.brokers.kafka_topics import bounded, produce, sink_builder, texts
from tests.tools.brokers.rabbit_queues import publish, source_of, texts_in
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment
from tests.tools.waiting import wait_until

BAD = OutputTag("bad")
PAIR = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
USER = '{"type": "record", "name": "User", "fields": [{"name": "n", "type": "int"}]}'


def avro(number):
    made = io.BytesIO()
    fastavro.schemaless_writer(made, AvroSchema.parse_string(USER).parsed(), {"n": number})
    return made.getvalue()


MESSAGES = {
    "JSON": (
        lambda: JsonRowDeserializationSchema.builder().type_info(PAIR).build(),
        lambda n: json.dumps({"k": "a", "n": n}).encode(),
        b'{"k": "a", "n": "no number"}',
    ),
    "CSV": (
        lambda: CsvRowDeserializationSchema.Builder(PAIR).build(),
        lambda n: f"a,{n}".encode(),
        b"a,no number",
    ),
    "Avro": (lambda: AvroRowDeserializationSchema(avro_schema_string=USER), avro, b"\xff" * 12),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_malformed_messages_are_put_aside_and_written_to_a_topic(broker, name):
    schema, message, malformed = MESSAGES[name]
    broker.create("in")
    broker.create("bad")
    produce(broker, "in", message(1), malformed, message(2), malformed)
    env = restarting_environment(Watcher())
    source = bounded(broker.servers, "in", schema=schema()).build()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").on_error(BAD)
    letters = rows.get_side_output(BAD)
    told = letters.map(lambda one: f"{one.record} {one.error_text}", Types.STRING())
    told.sink_to(sink_builder(broker.servers, "bad", DeliveryGuarantee.EXACTLY_ONCE).build())
    results = CollectingSink()
    rows.sink_to(results)
    env.execute("poison")
    assert sorted(row["n"] for row in results.values) == [1, 2]
    assert sorted(text.split(" cannot be", 1)[0] for text in texts(broker.servers, "bad")) == [
        f"{malformed} Kafka record in[0] at offset {offset}" for offset in (1, 3)
    ]


ANY = Types.ROW_NAMED(["n", "x"], [Types.LONG(), Types.PICKLED_BYTE_ARRAY()])
HOSTILE = {
    "nested lists": b"[" * 500 + b"]" * 500,
    "lists that do not end": b"[" * 900_000,
    "half a surrogate pair": b'"\\ud800"',
    "digits": b"9" * 900_000,
    "an exponent": b"1e999999999",
    "a zero byte": b'"\0"',
    "no UTF-8": b'"\xff\xfe"',
    "a name many times": b"{" + b",".join([b'"a":1'] * 50_000) + b"}",
    "ints that collide": b"[%b]" % b",".join(b"%d" % (n * ((1 << 61) - 1)) for n in range(30_000)),
}


def test_messages_of_strangers_cost_a_job_of_kafka_no_other_message(broker):
    """Those that are JSON come through an exchange and a state as they are, and the others are put aside."""
    broker.create("strangers")
    messages = [b'{"n":%d,"x":%b}' % (n, one) for n, one in enumerate(HOSTILE.values(), 1)]
    fine = [b'{"n":%d,"x":null}' % n for n in (0, 100)]
    produce(broker, "strangers", fine[0], *messages, fine[1])
    env = restarting_environment(Watcher())
    schema = JsonRowDeserializationSchema.builder().type_info(ANY).build()
    source = bounded(broker.servers, "strangers", schema=schema).build()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").on_error("skip")
    results = CollectingSink()
    rows.key_by(lambda row: row.n).reduce(lambda _, last: last).sink_to(results)
    env.execute("strangers")
    read = {"half a surrogate pair", "an exponent", "a name many times", "ints that collide"}
    numbers = {n for n, name in enumerate(HOSTILE, 1) if name in read}
    assert {row.n for row in results.values} == {0, 100, *numbers}


def test_a_field_that_nobody_reads_is_not_checked_in_messages_of_a_queue(amqp, queue):
    for number in (1, "no number", 3):
        publish(amqp, queue, json.dumps({"k": f"a{number}", "n": number}))
    schema = JsonRowDeserializationSchema.builder().type_info(PAIR).build()
    env = restarting_environment(Watcher(), parallelism=1)
    env.enable_checkpointing(50)
    source = source_of(amqp, queue, schema=schema)
    results = CollectingSink()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "in")
    rows.map(lambda row: row.k).sink_to(results)
    client = env.execute_async("fields of a queue")
    wait_until(lambda: len(results.values) == 3, "not all came")
    client.cancel().result()
    assert sorted(results.values) == ["a1", "a3", "ano number"]


def test_messages_of_a_queue_that_are_malformed_or_lack_an_id_are_put_aside(amqp, queue):
    """They are acknowledged with their checkpoint, so that they do not come again for ever."""
    for number in (1, 2):
        publish(amqp, queue, json.dumps({"k": "a", "n": number}))
    publish(amqp, queue, "no json")
    publish(amqp, queue, json.dumps({"k": "lost", "n": 3}), has_ids=False)
    schema = JsonRowDeserializationSchema.builder().type_info(PAIR).build()
    watcher = Watcher()
    env = restarting_environment(watcher, parallelism=1)
    env.enable_checkpointing(50)
    source = source_of(amqp, queue, schema=schema)
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").on_error(BAD)
    letters, results = CollectingSink(), CollectingSink()
    told = rows.get_side_output(BAD).map(lambda one: one.error_text, Types.STRING())
    told.sink_to(letters)
    rows.sink_to(results)
    client = env.execute_async("poison in a queue")
    wait_until(lambda: (len(results.values), len(letters.values)) == (2, 2), "not all came")
    watcher.wait_for(len(watcher.completed) + 2)
    client.cancel().result()
    assert sorted(row["n"] for row in results.values) == [1, 2]
    malformed, lacking = sorted(letters.values)
    assert "cannot be deserialized by JsonRowDeserializationSchema" in malformed
    assert "has no correlation id" in lacking
    assert texts_in(amqp, queue) == []
