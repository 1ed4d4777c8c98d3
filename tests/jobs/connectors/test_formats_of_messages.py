"""Jobs from Kafka to Kafka whose messages name their schema in a registry; both ends beside Confluent's serializers. And what becomes of
jobs whose registry does not answer, or refuses.
"""

import contextlib
import json
from collections import Counter

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.common import Row, WatermarkStrategy
from penstock.datastream import OutputTag
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.datastream.formats import (
    AvroSchema,
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
    ConfluentRegistryJsonDeserializationSchema,
    ConfluentRegistryJsonSerializationSchema,
    JsonRowDeserializationSchema,
    ProtobufDeserializationSchema,
    ProtobufSerializationSchema,
    SchemaRegistry,
)
from penstock.engine.model.errors import JobExecutionError
from penstock.formats.registry.client import prefix_of
from penstock.testing import CollectingSink
from tests.tools.brokers.kafka_topics import bounded, consumed, produce, sink_builder
from tests.tools.programs.checkpoint_programs import Watcher, restarting_environment
from tests.tools.protobuf_messages import classes
from tests.tools.schema_registry import STORE_ERROR, UNAUTHORIZED, schema_registry

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


class Protobuf:
    """Writers have a field more than the reader, and one less. The message is nested, and its file imports another."""

    FILES = {
        "country.proto": 'syntax = "proto3"; package shop; message Country { string code = 1; }',
        "orders.proto": """
            syntax = "proto3"; package shop; import "country.proto";
            message Orders { message Order { int64 id = 1; Country country = 2; %s } }""",
    }

    def __init__(self, registry, client):
        files = {name: text.replace("%s", "") for name, text in self.FILES.items()}
        (ours,) = classes(files, "shop.Orders.Order")
        files = {name: text.replace("%s", "string note = 3;") for name, text in self.FILES.items()}
        (self._order,) = classes(files, "shop.Orders.Order")
        self.reads = ProtobufDeserializationSchema(ours, SchemaRegistry(registry.url))
        self.writes = ProtobufSerializationSchema(ours, SchemaRegistry(registry.url), "out-value")
        self._theirs = ProtobufSerializer(self._order, client)
        self._reader = ProtobufDeserializer(ours, schema_registry_client=client)

    def message(self, number):
        return self._theirs(self._order(id=number, country={"code": "SE"}, note="x"), WRITTEN)

    def order(self, message):
        found = self._reader(message, READ)
        return found.id, found.country.code


class Json:
    """Writers have a field more than the reader. The reader's `country` is nullable, and refers to a definition."""

    COUNTRY = {"enum": ["SE", None]}
    OURS = {
        "type": "object",
        "title": "Order",
        "required": ["id"],
        "properties": {"id": {"type": "integer"}, "country": {"$ref": "#/$defs/Country"}},
        "$defs": {"Country": COUNTRY},
    }
    THEIRS = {**OURS, "properties": {"note": {"type": "string"}, **OURS["properties"]}}

    def __init__(self, registry, client):
        ours, theirs = json.dumps(self.OURS), json.dumps(self.THEIRS)
        self.reads = ConfluentRegistryJsonDeserializationSchema(
            JsonRowDeserializationSchema.builder().json_schema(ours).build()
        )
        make = ConfluentRegistryJsonSerializationSchema.for_row
        self.writes = make("out-value", ours, registry.url)
        self._theirs = JSONSerializer(theirs, client)
        self._reader = JSONDeserializer(ours, schema_registry_client=client)

    def message(self, number):
        return self._theirs({"note": "x", "id": number, "country": "SE"}, WRITTEN)

    def order(self, message):
        found = self._reader(message, READ)
        return found["id"], found["country"]


FORMATS = {"Avro": Avro, "Protobuf": Protobuf, "JSON": Json}


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
    assert "POST /subjects/out-value/versions" in asked
    assert max(Counter(asked).values()) <= PARALLELISM, "each task asks for each schema once"


def read_into_a_sink(broker, registry, configs):
    """A job that skips bad messages, with what it reads."""
    watcher = Watcher()
    env = restarting_environment(watcher, parallelism=1)
    schema = AvroSchema.parse_string(json.dumps(Avro.OURS))
    make = ConfluentRegistryAvroDeserializationSchema.for_row
    source = bounded(broker.servers, "in", schema=make(schema, registry.url, configs)).build()
    orders = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").on_error("skip")
    results = CollectingSink()
    orders.map(lambda order: order["id"]).sink_to(results)
    return env, results


def test_while_a_registry_is_out_no_message_is_skipped(broker):
    broker.create("in")
    with schema_registry() as registry:
        number = registry.add("in-value", json.dumps(Avro.OURS))
        produce(broker, "in", *[prefix_of(number) + bytes([2 * n, 0]) for n in range(5)])
        registry.faults += [STORE_ERROR, (503, {})]
        env, results = read_into_a_sink(broker, registry, {"max.retries": 0})
        env.execute("an outage")
        assert len(registry.asked) == 3, "once for each restart"
    assert sorted(results.values) == list(range(5))


def test_a_registry_that_refuses_ends_the_job(broker):
    broker.create("in")
    produce(broker, "in", prefix_of(1) + b"\x00\x00")
    with schema_registry() as registry:
        registry.faults += [UNAUTHORIZED] * 3
        env, _ = read_into_a_sink(broker, registry, {"basic.auth.user.info": "job:geheim"})
        with pytest.raises(JobExecutionError) as told:
            env.execute("refused")
        assert len(registry.asked) == 1, "it is not restarted"
    text = str(told.value)
    assert f"GET {registry.url}/schemas/ids/1" in text
    assert "Correct the credentials" in text
    assert "geheim" not in text
