"""Avro with a schema registry, beside Confluent's own serializer and deserializer. Resolution is that of the Avro 1.12 specification."""

import datetime as dt
import json
import pickle

import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.common import Row, Types
from penstock.connectors.api.messaging.records import batch_of
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.records.dead_letters import Malformed
from penstock.formats.avro import AvroSchema, GenericRecordAvroTypeInfo
from penstock.formats.registry.avro import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)

USER = {
    "type": "record",
    "name": "User",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
    ],
}
NEWER = {
    **USER,
    "fields": [
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "id", "type": "double"},
        {"name": "country", "type": "string", "default": "??"},
    ],
}
ANN = {"id": 1, "name": "Ann"}
# Zigzag 1, branch 1 of the union, length 3, UTF-8.
ANN_IN_AVRO = b"\x02\x02\x06Ann"
VALUE = SerializationContext("users", MessageField.VALUE)
SUBJECT = "users-value"


def avro(schema):
    return AvroSchema.parse_string(json.dumps(schema))


def reader(registry, schema=USER, make="for_generic", configs=None, **more):
    made = getattr(ConfluentRegistryAvroDeserializationSchema, make)
    return made(avro(schema), registry.url, configs, **more)


def writer(registry, schema=USER, configs=None):
    made = ConfluentRegistryAvroSerializationSchema.for_generic
    return made(SUBJECT, avro(schema), registry.url, configs)


def test_a_message_is_a_zero_the_id_and_the_record(registry):
    registry.add("others", '"int"', schema_id=258)
    made = writer(registry)
    messages = [made.serialize(one) for one in (ANN, Row(id=1, name="Ann"), (1, "Ann"))]
    assert messages == [b"\x00\x00\x00\x01\x03" + ANN_IN_AVRO] * 3
    assert registry.paths() == [f"POST /subjects/{SUBJECT}/versions"], "once for all records"
    assert json.loads(registry.asked[0].body["schema"]) == USER


def test_each_task_registers_once(registry):
    made = writer(registry)
    made.serialize(ANN)
    copy = pickle.loads(pickle.dumps(made))
    assert copy.serialize(ANN) == copy.serialize(ANN) == made.serialize(ANN)
    assert len(registry.asked) == 2


def test_a_writers_schema_is_asked_for_once(registry):
    number = registry.add(SUBJECT, json.dumps(USER))
    message = b"\x00" + number.to_bytes(4, "big") + ANN_IN_AVRO
    made = reader(registry)
    assert [made.deserialize(message) for _ in range(3)] == [ANN] * 3
    assert registry.paths() == ["GET /schemas/ids/1"]
    assert made.produced_type == GenericRecordAvroTypeInfo(avro(USER))
    pickle.loads(pickle.dumps(made)).deserialize(message)
    assert len(registry.asked) == 2


def test_so_many_schemas_are_remembered(registry):
    first, second = (registry.add(one, json.dumps({**USER, "doc": one})) for one in "ab")
    made = reader(registry, identity_map_capacity=1)
    for number in (first, first, second, first):
        made.deserialize(b"\x00" + number.to_bytes(4, "big") + ANN_IN_AVRO)
    assert len(registry.asked) == 3


def test_records_of_other_writers_get_the_readers_schema(registry):
    old = writer(registry).serialize(ANN)
    expected = {"name": "Ann", "id": 1.0, "country": "??"}
    assert reader(registry, NEWER).deserialize(old) == expected
    rows = reader(registry, NEWER, "for_row")
    assert rows.deserialize(old) == Row(name="Ann", id=1.0, country="??")
    names, types = ["name", "id", "country"], [Types.STRING(), Types.DOUBLE(), Types.STRING()]
    assert rows.produced_type == Types.ROW_NAMED(names, types)
    new = writer(registry, {**NEWER, "fields": NEWER["fields"][::2]}).serialize(Row("Bo", "SE"))
    with pytest.raises(ValueError, match="No default value for field id.*the id 2 at http"):
        reader(registry).deserialize(new)


def test_confluents_deserializer_reads_what_is_written(registry, confluent):
    message = writer(registry).serialize(ANN)
    assert AvroDeserializer(confluent, json.dumps(USER))(message, VALUE) == ANN


def test_what_confluents_serializer_writes_is_read(registry, confluent):
    message = AvroSerializer(confluent, json.dumps(USER))(ANN, VALUE)
    assert SUBJECT in registry.subjects
    assert reader(registry).deserialize(message) == ANN
    assert reader(registry, make="for_row").deserialize(message) == Row(**ANN)


def test_times_of_rows_are_utc_as_in_avro_without_a_registry(registry):
    stamp = {"type": "long", "logicalType": "timestamp-millis"}
    schema = {"type": "record", "name": "At", "fields": [{"name": "at", "type": stamp}]}
    row = Row(at=dt.datetime.fromisoformat("1970-01-01T00:00:01"))
    message = writer(registry, schema).serialize(row)
    assert message[5:] == b"\xd0\x0f"  # zigzag 1000
    assert reader(registry, schema, "for_row").deserialize(message) == row


def test_schemas_of_writers_may_refer_to_others(registry):
    address = {
        "type": "record",
        "name": "shop.Address",
        "fields": [{"name": "city", "type": "string"}],
    }
    registry.add("address", json.dumps(address))
    refers = [{"name": "shop.Address", "subject": "address", "version": 1}]
    person = {
        "type": "record",
        "name": "shop.Person",
        "fields": [{"name": name, "type": "shop.Address"} for name in ("home", "work")],
    }
    number = registry.add("person", json.dumps(person), references=refers)
    whole = {**person, "fields": [{"name": "home", "type": address}]}
    message = b"\x00" + number.to_bytes(4, "big") + b"\x04Ro\x08Bonn"
    assert reader(registry, whole).deserialize(message) == {"home": {"city": "Ro"}}
    assert registry.paths() == ["GET /schemas/ids/2", "GET /subjects/address/versions/1"]


def test_a_message_without_a_value_gives_no_record(registry):
    assert reader(registry).deserialize(None) is None
    assert registry.asked == []


def test_bad_messages_go_to_the_error_policy(registry):
    number = registry.add(SUBJECT, json.dumps(USER))
    odd = registry.add("odd", "{}", "JSON")
    bad = registry.add("bad", '{"type": "strange"}')
    good = b"\x00\x00\x00\x00" + bytes([number]) + ANN_IN_AVRO
    messages = [
        b'{"id": 1}',
        b"",
        b"\x00\x00",
        good[:7],
        b"\x00\x00\x00\x00\x63" + ANN_IN_AVRO,
        *[b"\x00\x00\x00\x00" + bytes([one]) + ANN_IN_AVRO for one in (odd, bad, odd, bad)],
        good,
    ]
    batch = batch_of(messages, None, reader(registry), lambda n: f"message {n}")
    *marks, last = batch.values
    assert [type(one) for one in marks] == [Malformed] * 9
    assert last == ANN
    told = [str(one.error) for one in marks]
    for text, part in zip(told, ["wire format"] * 3 + [
        "EOFError", "Schema not found", "of the kind JSON, expected AVRO", "no Avro schema",
        "of the kind JSON, expected AVRO", "no Avro schema",
    ], strict=True):  # fmt: skip
        assert part in text
    assert len(registry.asked) == 4, "one for each id"


def test_a_registry_that_does_not_answer_is_no_bad_message(registry):
    registry.faults += [(503, {}), (401, {})]
    made = reader(registry, configs={"max.retries": 0})
    for _ in range(2):
        with pytest.raises(ExternalError):
            batch_of([b"\x00\x00\x00\x00\x01" + ANN_IN_AVRO], None, made, str)


def test_a_record_that_does_not_fit_says_so(registry):
    made = writer(registry)
    with pytest.raises(ValueError, match="schema of the subject 'users-value'.*Record: .*'one'"):
        made.serialize({"id": "one"})
    assert made.serialize(ANN)[5:] == ANN_IN_AVRO


def test_settings_that_cannot_be_are_refused(registry):
    with pytest.raises(ConfigurationError, match="expected the subject under which.*got ''"):
        ConfluentRegistryAvroSerializationSchema.for_generic("", avro(USER), registry.url)
    with pytest.raises(ConfigurationError, match="for_row: expected the schema of a record"):
        reader(registry, "string", "for_row")
    with pytest.raises(ConfigurationError, match="identity_map_capacity must be at least 1"):
        reader(registry, identity_map_capacity=0)
    assert reader(registry, "string").produced_type == GenericRecordAvroTypeInfo(avro("string"))
