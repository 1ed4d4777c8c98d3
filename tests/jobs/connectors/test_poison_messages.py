"""Malformed messages of Kafka become dead letters in another topic, once each, while the others are read."""

import io
import json

import fastavro
import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import OutputTag
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.datastream.formats.avro import AvroRowDeserializationSchema, AvroSchema
from penstock.datastream.formats.csv import CsvRowDeserializationSchema
from penstock.datastream.formats.json import JsonRowDeserializationSchema
from penstock.testing import CollectingSink
from tests.tools.brokers.kafka_topics import bounded, produce, sink_builder, texts
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment

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
