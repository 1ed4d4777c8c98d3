"""Protobuf in the wire format of schema registries: which file of definitions, and which of its messages.

Behind the schema's id come the message's indexes: its place in the file, and in the messages that it lies in. Source: Confluent's
documentation of Schema Registry, "Wire format" (zigzag varints, their number first; the first message is a single 0).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

from penstock.datastream.formats.protobuf.message_class import google, imports_to_register
from penstock.datastream.formats.registry.client import (
    RegisteredSchema,
    RegistryClient,
    SchemaReference,
)

KIND: Final = "PROTOBUF"
AS_DESCRIPTOR: Final = "?format=serialized"
"""Asks for a schema as a FileDescriptorProto in base64."""
_MOST_INDEXES: Final = 100
_SHIFTS: Final = range(0, 35, 7)


def indexes_of(descriptor: Any) -> tuple[int, ...]:
    """The place of a message in its file."""
    outer = descriptor.containing_type
    if outer is None:
        return (list(descriptor.file.message_types_by_name).index(descriptor.name),)
    return (*indexes_of(outer), list(outer.nested_types_by_name).index(descriptor.name))


def encoded(indexes: Sequence[int]) -> bytes:
    if tuple(indexes) == (0,):
        return b"\x00"
    return b"".join(map(_varint, (len(indexes), *indexes)))


def _varint(number: int) -> bytes:
    """Of a number that is not negative."""
    left, made = number << 1, bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left])


def without_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """The indexes, and the message. Raises: ValueError: there are none."""
    count, place = _number_at(data, 0)
    if count == 0:
        return (0,), data[place:]
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError(f"a message has {count} indexes behind the id of its schema")
    found = []
    for _ in range(count):
        number, place = _number_at(data, place)
        found.append(number)
    return tuple(found), data[place:]


def _number_at(data: bytes, place: int) -> tuple[int, int]:
    number = 0
    for shift in _SHIFTS:
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place
    raise ValueError("a message has no indexes behind the id of its schema")


def id_under(client: RegistryClient, subject: str, file: Any) -> int:
    """The id of a file of definitions. What it imports is registered first, each file under its name."""
    return client.id_under(subject, _schema_of(client, file))


def _schema_of(client: RegistryClient, file: Any) -> RegisteredSchema:
    references = []
    for one in imports_to_register(file):
        schema = _schema_of(client, one)
        client.id_under(one.name, schema)
        version = client.version_under(one.name, schema)
        references.append(SchemaReference(one.name, one.name, version))
    text = base64.b64encode(file.serialized_pb).decode()
    return RegisteredSchema(text, KIND, tuple(references))


def file_of(schema: RegisteredSchema) -> Any:
    """The FileDescriptorProto of a schema; None: the registry gives files as texts only."""
    file = google("descriptor_pb2").FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, google("message").DecodeError):
        return None
    return file


def messages_at(file: Any, indexes: Sequence[int]) -> frozenset[str]:
    """The full names that indexes may mean in the writer's file.

    A map has a message for its entries, which some writers count and others do not: those that count what the text of the definition has.
    Raises ValueError: the file has no such message.
    """
    found = {_name_at(file, indexes, counts_entries=counts) for counts in (True, False)} - {None}
    if not found:
        raise ValueError(f"its schema has no message with the indexes {list(indexes)}")
    return frozenset(name for name in found if name)


def _name_at(file: Any, indexes: Sequence[int], *, counts_entries: bool) -> str | None:
    names, messages = [file.package] if file.package else [], list(file.message_type)
    for index in indexes:
        if not counts_entries:
            messages = [one for one in messages if not one.options.map_entry]
        if not 0 <= index < len(messages):
            return None
        names.append(messages[index].name)
        messages = list(messages[index].nested_type)
    return ".".join(names)
