"""Jobs from Kafka to Kafka whose messages name their schema in a registry; both ends beside Confluent's serializers."""

import contextlib
import json

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.common import Row, WatermarkStrategy
from penstock.datastream import OutputTag
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.datastream.formats import (
    AvroSchema,
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)
from penstock.testing import CollectingSink
from tests.tools.brokers.kafka_topics import bounded, consumed, produce, sink_builder
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment
from tests.tools.schema_registry import schema_registry

BAD = OutputTag("bad")
PARALLELISM = 2
WRITTEN = SerializationContext("in", MessageField.VALUE)
READ = SerializationContext("out", MessageField.VALUE)


class Avro:
    """Writers have a field more than the reader, and one less."""

    THEIRS = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "note", "type": "string"}, {"name": "id", "type": "int"}],
    }
    OURS = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "country", "type": "string", "default": "SE"},
        ],
    }

    def __init__(self, registry, client):
        schema = AvroSchema.parse_string(json.dumps(self.OURS))
        self.reads = ConfluentRegistryAvroDeserializationSchema.for_row(schema, registry.url)
        make = ConfluentRegistryAvroSerializationSchema.for_generic
        self.writes = make("out-value", schema, registry.url)
        self._theirs = AvroSerializer(client, json.dumps(self.THEIRS))
        self._reader = AvroDeserializer(client, json.dumps(self.OURS))

    def message(self, number):
        return self._theirs({"note": "x", "id": number}, WRITTEN)

    def order(self, message):
        found = self._reader(message, READ)
        return found["id"], found["country"]


FORMATS = {"Avro": Avro}


@pytest.mark.parametrize("name", FORMATS)
def test_messages_of_others_are_read_and_what_is_written_others_read(broker, name):
    broker.create("in", PARALLELISM)
    broker.create("out")
    with contextlib.ExitStack() as stack:
        registry = stack.enter_context(schema_registry())
        client = stack.enter_context(SchemaRegistryClient({"url": registry.url}))
        form = FORMATS[name](registry, client)
        messages = [form.message(number) for number in range(20)]
        produce(broker, "in", *messages[:10], b"no message", partition=0)
        produce(broker, "in", *messages[10:], partition=1)
        before = len(registry.asked)
        env = restarting_environment(Watcher(), parallelism=PARALLELISM)
        source = bounded(broker.servers, "in", schema=form.reads).build()
        orders = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").on_error(BAD)
        bad = CollectingSink()
        orders.get_side_output(BAD).sink_to(bad)
        doubled = orders.map(lambda order: Row(order["id"] * 2, order["country"]))
        guarantee = DeliveryGuarantee.AT_LEAST_ONCE
        doubled.sink_to(sink_builder(broker.servers, "out", guarantee, value=form.writes).build())
        env.execute(name)
        found = [form.order(message.value()) for message in consumed(broker.servers, "out")]
        asked = registry.paths()[before:]
    assert sorted(found) == [(2 * number, "SE") for number in range(20)]
    assert [letter.record for letter in bad.values] == [b"no message"]
    assert asked.count("POST /subjects/out-value/versions") <= PARALLELISM
    assert 0 < len(asked) <= 3 * PARALLELISM
