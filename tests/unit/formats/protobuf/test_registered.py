"""Protobuf with a schema registry, beside Confluent's own serializer and deserializer."""

import base64
import pickle

import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from penstock.common import Row
from penstock.connectors.api.messaging.records import batch_of
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.runtime.records.dead_letters import Malformed
from penstock.formats.protobuf import ProtobufDeserializationSchema, ProtobufSerializationSchema
from penstock.formats.protobuf.schemas import encoded, without_indexes
from penstock.formats.registry import SchemaRegistry
from tests.tools.protobuf_messages import classes
from tests.tools.schema_registry import INCOMPATIBLE

SHOP = """
syntax = "proto3";
package shop;
import "parts/place.proto";
import "google/protobuf/timestamp.proto";
message Order { int32 id = 1; parts.Place place = 2; google.protobuf.Timestamp at = 3; }
message Other { message First {} message Line { string article = 1; } Line line = 1; }
"""
PLACE = """
syntax = "proto3"; package parts;
import "parts/land.proto"; import "google/type/money.proto";
message Place { string city = 1; Land land = 2; }
"""
LAND = 'syntax = "proto3"; package parts; message Land { string code = 1; }'
FILES = {"shop.proto": SHOP, "parts/place.proto": PLACE, "parts/land.proto": LAND}
MONEY = 'syntax = "proto3"; package google.type; message Money { int64 units = 2; }'
Order, Line = classes({**FILES, "google/type/money.proto": MONEY}, "shop.Order", "shop.Other.Line")
ROW = Row(id=7, place=Row(city="Ro", land=Row(code="DE")), at=None)
ORDER = Order(id=7, place={"city": "Ro", "land": {"code": "DE"}})
VALUE = SerializationContext("orders", MessageField.VALUE)
SUBJECT = "orders-value"


def writer(registry, cls=Order, configs=None):
    return ProtobufSerializationSchema(cls, SchemaRegistry(registry.url, configs), SUBJECT)


def reader(registry, cls=Order):
    return ProtobufDeserializationSchema(cls, SchemaRegistry(registry.url, {"max.retries": 0}))


@pytest.mark.parametrize(
    ("indexes", "data"),
    [
        # Confluent's documentation: [0] is a single 0; [1, 0] has its length, 2, in front. All are zigzag varints.
        ((0,), b"\x00"),
        ((1, 0), b"\x04\x02\x00"),
        ((0, 1), b"\x04\x00\x02"),
        ((1,), b"\x02\x02"),
        ((100,), b"\x02\xc8\x01"),
    ],
)
def test_indexes_have_the_documented_form(indexes, data):
    assert encoded(indexes) == data
    assert without_indexes(data + b"rest") == (indexes, b"rest")


@pytest.mark.parametrize(
    "data", [b"", b"\x04\x02", b"\x80\x80\x80\x80\x80\x80", b"\x01", b"\xff\xff\x03"]
)
def test_what_are_no_indexes_is_refused(data):
    with pytest.raises(ValueError, match="indexes after the id of its schema"):
        without_indexes(data)


def test_a_definition_is_registered_behind_what_it_imports_and_once(registry):
    made = writer(registry)
    messages = [made.serialize(one) for one in (ROW, ORDER)]
    assert messages == [b"\x00\x00\x00\x00\x03\x00" + ORDER.SerializeToString()] * 2
    assert registry.paths() == [
        "POST /subjects/parts%2Fland.proto/versions",
        "POST /subjects/parts%2Fland.proto",
        "POST /subjects/parts%2Fplace.proto/versions",
        "POST /subjects/parts%2Fplace.proto",
        f"POST /subjects/{SUBJECT}/versions",
    ]
    body = registry.asked[-1].body
    assert body["schemaType"] == "PROTOBUF"
    name = "parts/place.proto"
    assert body["references"] == [{"name": name, "subject": name, "version": 1}]
    file = FileDescriptorProto.FromString(base64.b64decode(body["schema"]))
    assert (file.name, [one.name for one in file.message_type]) == (
        "shop.proto",
        ["Order", "Other"],
    )
    pickle.loads(pickle.dumps(made)).serialize(ROW)
    assert len(registry.asked) == 10, "once for each task"


def test_confluents_serializer_registers_the_same(registry, confluent):
    message = writer(registry).serialize(ROW)
    schemas = dict(registry.schemas)
    assert ProtobufSerializer(Order, confluent)(ORDER, VALUE) == message
    assert registry.schemas == schemas


@pytest.mark.parametrize(
    ("cls", "row", "value"),
    [(Order, ROW, ORDER), (Line, Row(article="a"), Line(article="a"))],
)
def test_confluents_deserializer_reads_what_is_written(registry, confluent, cls, row, value):
    message = writer(registry, cls).serialize(row)
    assert ProtobufDeserializer(cls, schema_registry_client=confluent)(message, VALUE) == value


@pytest.mark.parametrize(
    ("cls", "row", "value"),
    [(Order, ROW, ORDER), (Line, Row(article="a"), Line(article="a"))],
)
def test_what_confluents_serializer_writes_is_read(registry, confluent, cls, row, value):
    message = ProtobufSerializer(cls, confluent)(value, VALUE)
    before = len(registry.asked)
    made = reader(registry, cls)
    assert [made.deserialize(message) for _ in range(3)] == [row] * 3
    (asked,) = registry.asked[before:]
    assert (asked.path, asked.query) == ("/schemas/ids/3", {"format": "serialized"})


MAPS = """
syntax = "proto3"; package maps;
message Outer { map<string, int32> counts = 1; message Inner { int32 id = 1; } Inner inner = 2; }
"""


def test_writers_may_count_the_entries_of_maps_or_not(registry, confluent):
    """Confluent's Python client counts them, as the descriptor has them; the text of the definition has none."""
    (inner,) = classes({"maps.proto": MAPS}, "maps.Outer.Inner")
    message = ProtobufSerializer(inner, confluent)(inner(id=5), VALUE)
    assert writer(registry, inner).serialize({"id": 5}) == message
    assert message[5:] == encoded((0, 1)) + b"\x08\x05"
    by_text = message[:5] + encoded((0, 0)) + b"\x08\x05"
    assert [reader(registry, inner).deserialize(one) for one in (message, by_text)] == [
        Row(id=5)
    ] * 2
    (outer,) = classes({"maps.proto": MAPS}, "maps.Outer")
    with pytest.raises(ValueError, match="is a maps.Outer.Inner, expected a maps.Outer"):
        reader(registry, outer).deserialize(message)


def test_a_registry_that_has_texts_only_is_believed(registry):
    """An older one does not know `format=serialized`."""
    number = registry.add(SUBJECT, SHOP, "PROTOBUF")
    message = b"\x00" + number.to_bytes(4, "big") + b"\x00" + ORDER.SerializeToString()
    assert reader(registry).deserialize(message) == ROW


def test_a_text_that_the_registry_turns_into_a_descriptor_is_checked(registry):
    number = registry.add(SUBJECT, SHOP, "PROTOBUF")
    registry.serialized[number] = base64.b64encode(Order.DESCRIPTOR.file.serialized_pb).decode()
    prefix = b"\x00" + number.to_bytes(4, "big")
    assert reader(registry).deserialize(prefix + b"\x00" + ORDER.SerializeToString()) == ROW
    with pytest.raises(ValueError, match=r"is a shop.Other.Line, expected a shop.Order \(the"):
        reader(registry).deserialize(prefix + encoded((1, 1)))


def made_of(fields, more=""):
    text = f'syntax = "proto3"; package shop; message M {{ {fields} }} {more}'
    (made,) = classes({"shop.proto": text}, "shop.M")
    return made


@pytest.mark.parametrize(
    ("writers", "readers", "value"),
    [
        ("int32 x = 1;", "int64 y = 1;", -5),
        ("bool x = 1;", "uint32 x = 1;", 1),
        ("string x = 1;", "bytes x = 1;", "\u00e9".encode()),
        ("sint32 x = 1;", "sint64 x = 1;", -5),
        ("int32 x = 1;", "repeated int32 x = 1;", [-5]),
    ],
)
def test_types_of_the_same_form_are_read(registry, writers, readers, value):
    given = value[0] if isinstance(value, list) else value
    message = writer(registry, made_of(writers)).serialize([
        given.decode() if isinstance(given, bytes) else bool(given) if given == 1 else given
    ])
    (found,) = reader(registry, made_of(readers)).deserialize(message)
    assert found == value


@pytest.mark.parametrize(
    ("writers", "readers", "told"),
    [
        ("int32 x = 1;", "string y = 1;", "1 of shop.M is the int32 'x' .* the string 'y'"),
        ("int32 x = 1;", "sint32 x = 1;", "the int32 'x'.*the sint32 'x'"),
        ("double x = 1;", "fixed64 x = 1;", "the double 'x'.*the fixed64 'x'"),
        ("N x = 1;", "string x = 1;", "the message 'x'.*the string 'x'"),
        ("int32 y = 2; N x = 1;", "N x = 1;", "field 1 of shop.N is the int32 'n'.*the string 'n'"),
    ],
)
def test_a_field_that_the_reader_would_not_see_is_a_bad_message(registry, writers, readers, told):
    """Protobuf takes it for a field that it does not know: the record would have the default."""
    definition = definition_of(made_of(writers, "message N { int32 n = 1; }"))
    number = registry.add(SUBJECT, definition, "PROTOBUF")
    message = b"\x00" + number.to_bytes(4, "big") + b"\x00"
    cls = made_of(readers, "message N { string n = 1; }")
    with pytest.raises(ValueError, match=f"{told}.*Protobuf would drop it .the schema with the id"):
        reader(registry, cls).deserialize(message)


def definition_of(cls):
    return base64.b64encode(cls.DESCRIPTOR.file.serialized_pb).decode()


def test_bad_messages_go_to_the_error_policy(registry):
    order = writer(registry).serialize(ROW)
    line = writer(registry, Line).serialize(("a",))
    avro = registry.add("avro", '"int"')
    prefix = order[:5]
    messages = [
        b"",
        ORDER.SerializeToString(),
        prefix,
        prefix + encoded((5,)),
        b"\x00\x00\x00\x00\x63\x00",
        b"\x00\x00\x00\x00" + bytes([avro]) + b"\x00",
        line,
        order[:-1],
        order,
    ]
    batch = batch_of(messages, None, reader(registry), str)
    *marks, last = batch.values
    assert [type(one) for one in marks] == [Malformed] * 8
    assert last == ROW
    told = ["wire format", "wire format", "no indexes", "no message with the indexes [5]",
            "Schema not found", "of the kind AVRO, expected PROTOBUF", "is a shop.Other.Line",
            "cannot be read as Protobuf's shop.Order"]  # fmt: skip
    for mark, part in zip(marks, told, strict=True):
        assert part in str(mark.error)


def test_a_registry_that_refuses_is_no_bad_record(registry):
    registry.faults.append(INCOMPATIBLE)
    with pytest.raises(RefusedForGood, match="'parts/land.proto'.*not compatible"):
        writer(registry).serialize(ROW)
    registry.faults.append((503, {}))
    with pytest.raises(ExternalError):
        reader(registry).deserialize(b"\x00\x00\x00\x00\x01\x00")


def test_without_auto_register_all_must_be_there(registry):
    configs = {"auto.register.schemas": "false"}
    with pytest.raises(RefusedForGood, match="error 40401.*not registered there"):
        writer(registry, configs=configs).serialize(ROW)
    message = writer(registry).serialize(ROW)
    registry.asked.clear()
    assert writer(registry, configs=configs).serialize(ROW) == message
    assert not any(path.endswith("/versions") for path in registry.paths())


def test_arguments_that_do_not_fit_are_refused(registry):
    with pytest.raises(ConfigurationError, match="the subject 'a' is of a registry, which is miss"):
        ProtobufSerializationSchema(Order, subject="a")
    with pytest.raises(ConfigurationError, match="expected the subject under which.*got None"):
        ProtobufSerializationSchema(Order, SchemaRegistry(registry.url))
    with pytest.raises(ConfigurationError, match=r"expected registry=SchemaRegistry\(url\)"):
        ProtobufDeserializationSchema(Order, registry.url)
