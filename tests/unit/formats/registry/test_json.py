"""JSON Schema with a schema registry, beside Confluent's own serializer and deserializer, which validate."""

import json
import pickle

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.common import Row, Types
from penstock.connectors.api.messaging.records import batch_of
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.records.dead_letters import Malformed
from penstock.formats.json import JsonRowDeserializationSchema
from penstock.formats.registry.json import (
    ConfluentRegistryJsonDeserializationSchema,
    ConfluentRegistryJsonSerializationSchema,
)

SCHEMA = json.dumps({
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "User",
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
})
VALUE = SerializationContext("users", MessageField.VALUE)
SUBJECT = "users-value"
ANN = Row(id=1, name="Ann")


def reader(schema=SCHEMA):
    made = JsonRowDeserializationSchema.builder().json_schema(schema).build()
    return ConfluentRegistryJsonDeserializationSchema(made)


def writer(registry, schema=SCHEMA, configs=None):
    made = ConfluentRegistryJsonSerializationSchema.for_row
    return made(SUBJECT, schema, registry.url, configs)


def test_a_message_is_a_zero_the_id_and_the_object(registry):
    registry.add("others", '"int"', schema_id=258)
    made = writer(registry)
    expected = b'\x00\x00\x00\x01\x03{"id":1,"name":"Ann"}'
    assert [made.serialize(one) for one in (ANN, (1, "Ann"), {"id": 1, "name": "Ann"})] == [
        expected
    ] * 3
    (asked,) = registry.asked
    assert asked.path == f"/subjects/{SUBJECT}/versions"
    assert asked.body == {"schema": SCHEMA, "schemaType": "JSON"}
    assert pickle.loads(pickle.dumps(made)).serialize(ANN) == expected
    assert reader().deserialize(expected) == ANN


def test_confluents_deserializer_reads_what_is_written(registry, confluent):
    message = writer(registry).serialize(Row(1, None))
    read = JSONDeserializer(SCHEMA, schema_registry_client=confluent)
    assert read(message, VALUE) == {"id": 1}, "null would not be taken"


def test_what_confluents_serializer_writes_is_read(registry, confluent):
    message = JSONSerializer(SCHEMA, confluent)({"id": 1, "name": "Ann"}, VALUE)
    assert reader().deserialize(message) == ANN
    assert reader().produced_type == Types.ROW_NAMED(
        ["id", "name"], [Types.BIG_INT(), Types.STRING()]
    )
    assert reader().deserialize(None) is None


def test_many_messages_are_read_as_columns():
    kind = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
    plain = JsonRowDeserializationSchema.builder().type_info(kind).build()
    made = ConfluentRegistryJsonDeserializationSchema(plain)
    messages = [b'\x00\x00\x00\x00\x01{"id": %d, "name": "x"}' % number for number in range(3)]
    batch = batch_of(messages, None, made, str)
    assert isinstance(batch, ColumnBatch)
    assert batch.data.column("id") == pa.array([0, 1, 2])
    fields = made.reading(["id"])
    assert fields.produced_type == kind
    assert fields.deserialize(messages[1]).id == 1
    assert made.deserialize_columns([*messages, messages[0][1:]]) is None
    assert made.deserialize_columns([*messages, None]) is None


def test_bad_messages_go_to_the_error_policy():
    good = b'\x00\x00\x00\x00\x01{"id": 1, "name": "Ann"}'
    bad = [b'{"id": 1}', b"", good[:-1], b'\x00\x00\x00\x00\x01{"id": "one"}']
    *marks, last = batch_of([*bad, good], None, reader(), str).values
    assert [type(one) for one in marks] == [Malformed] * 4
    assert last == ANN
    told = ["wire format", "wire format", "cannot be read as JSON", "field 'id'"]
    assert all(part in str(one.error) for one, part in zip(marks, told, strict=True))


def test_a_record_that_does_not_fit_says_so(registry):
    with pytest.raises(
        ValueError, match="JSON Schema of the subject 'users-value'.*id: it is None"
    ):
        writer(registry).serialize({"name": "Ann"})


def test_settings_that_cannot_be_are_refused(registry):
    with pytest.raises(ConfigurationError, match="expected the JSON Schema of an object"):
        writer(registry, '{"type": "string"}')
    with pytest.raises(ValueError, match="at <root>/a allows any value"):
        writer(registry, '{"properties": {"a": true}}')
    with pytest.raises(ConfigurationError, match="expected a JsonRowDeserializationSchema, such"):
        ConfluentRegistryJsonDeserializationSchema(SCHEMA)
