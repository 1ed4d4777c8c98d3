"""Protobuf messages as Rows, for sources and sinks; with a schema registry or without. Needs protobuf (`penstock[protobuf]`).

Source: Flink's protobuf format, which is one of its Table API; the rules of the Protobuf Language Guide. Not in PyFlink.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.formats.protobuf.evolution import unreadable_field
from penstock.datastream.formats.protobuf.message_class import MessageClass
from penstock.datastream.formats.protobuf.registered import (
    AS_DESCRIPTOR,
    KIND,
    encoded,
    file_of,
    id_under,
    indexes_of,
    messages_at,
    without_indexes,
)
from penstock.datastream.formats.protobuf.values import (
    Convert,
    Write,
    row_reader,
    row_type_of,
    row_writer,
)
from penstock.datastream.formats.registry.client import (
    MOST_SCHEMAS,
    RegistryClient,
    Remembered,
    checked_subject,
)
from penstock.datastream.formats.registry.settings import SchemaRegistry
from penstock.datastream.formats.registry.wire import parted, prefix_of
from penstock.model.errors import ConfigurationError
from penstock.model.row import Row
from penstock.model.texts.bounded_text import bounded_repr

__all__ = ["ProtobufDeserializationSchema", "ProtobufSerializationSchema"]

Writer = tuple[int, tuple[int, ...]]
"""The id of a writer's schema, and the indexes of its message."""


class ProtobufDeserializationSchema(DeserializationSchema):
    """Turns a Protobuf message into a Row with the message's fields, in the order of its definition.

    int32, sint32, sfixed32 are INT; int64, sint64, sfixed64, uint32, fixed32 are LONG; uint64, fixed64 are BIG_INT; enums are STRING, with
    their names; bytes are bytes; messages are Rows; repeated fields are lists; maps are dicts. `google.protobuf.Timestamp` is an INSTANT,
    Duration a Row of seconds and nanos, wrappers such as StringValue are their values. A field with presence (of a oneof, optional, a
    message, all of proto2) that is not set is None; others have their defaults. A message without a value gives no record.
    """

    def __init__(self, message_class: Any, registry: SchemaRegistry | None = None) -> None:
        """Derive the type.

        Args:
            message_class: the class that protoc has made of the message's definition.
            registry: messages have the id of their writer's schema and the message's indexes in front, as Confluent's serializers write
                them. None: messages have nothing in front.

        Raises ConfigurationError: it is no such class, a message contains itself, or protobuf is not installed.
        """
        where = type(self).__name__
        self._class = MessageClass(where, message_class)
        self._registry = _checked_registry(where, registry)
        self._type = row_type_of(self._class.descriptor)
        self._read: Convert | None = None
        self._client: RegistryClient | None = None
        self._known: Remembered[Writer, str] | None = None
        self._last_prefix = b""

    @property
    def produced_type(self) -> TypeInformation:
        """The ROW type of the message."""
        return self._type

    def deserialize(self, data: bytes | None) -> Any:
        """Return the Row; None for a message without a value.

        Raises:
            ValueError: it is no such message, or the registry does not have its schema.
            ExternalError: the registry does not answer, or refuses.
        """
        if data is None:
            return None
        body = data if self._registry is None else self._unframed(data, self._registry)
        message = self._class.message
        if self._read is None:
            self._read = row_reader(self._class.descriptor)
        try:
            found = message.FromString(body)
            return self._read(_complete(found))
        except Exception as error:  # DecodeError has no common base class with others
            raise ValueError(
                f"a message cannot be read as Protobuf's {self._class.descriptor.full_name}: "
                f"{error}. Message: {bytes(data[:200])!r}"
            ) from error

    def _unframed(self, data: bytes, registry: SchemaRegistry) -> bytes:
        """The message behind its prefix. Raises: ValueError: it is another message."""
        if self._last_prefix and data.startswith(self._last_prefix):
            return data[len(self._last_prefix) :]
        schema_id, rest = parted(data, "a Protobuf message")
        indexes, body = without_indexes(rest)
        if self._known is None or self._client is None:
            self._known, self._client = Remembered(MOST_SCHEMAS), RegistryClient(registry)
        wrong = self._known.get((schema_id, indexes), self._what_is_wrong)
        if wrong:
            raise ValueError(f"{wrong} (the schema with the id {schema_id} at {registry.url})")
        self._last_prefix = data[: len(data) - len(body)]
        return body

    def _what_is_wrong(self, writer: Writer) -> str:
        """With all messages of a writer; "": nothing."""
        schema_id, indexes = writer
        assert self._client is not None, "made before the first message"
        schema = self._client.with_id(schema_id, AS_DESCRIPTOR)
        expected = self._class.descriptor.full_name
        try:
            schema.check_kind(KIND)
            file = file_of(schema)
            if file is None:
                return ""
            names = messages_at(file, indexes)
        except ValueError as error:
            return str(error)
        if expected in names:
            return unreadable_field(file, self._class.descriptor)
        return f"a message is a {' or a '.join(sorted(names))}, expected a {expected}"

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_read": None,
            "_client": None,
            "_known": None,
            "_last_prefix": b"",
        }


class ProtobufSerializationSchema(SerializationSchema):
    """Turns a Row into a Protobuf message. Types are those of `ProtobufDeserializationSchema`.

    A Row, tuple or list has the message's fields in order, a dict has some of them by name. A field that is None stays unset. Enums take
    names and numbers, Timestamp also datetimes (without a zone: UTC), Duration also timedeltas. A message of the class stays as it is.
    """

    def __init__(
        self,
        message_class: Any,
        registry: SchemaRegistry | None = None,
        subject: str | None = None,
    ) -> None:
        """Check the arguments.

        Args:
            message_class: the class that protoc has made of the message's definition.
            registry: each task registers the definition when its first record comes, and what it imports before; messages have its id and
                the message's indexes in front. None: messages have nothing in front.
            subject: under which the definition is registered, by convention `<topic>-value`. Needed with a registry.

        Raises ConfigurationError: an argument is missing or of another kind, or protobuf is not installed.
        """
        where = type(self).__name__
        self._class = MessageClass(where, message_class)
        self._registry = _checked_registry(where, registry)
        if registry is None and subject is not None:
            raise ConfigurationError(
                f"{where}: the subject {subject!r} is of a registry, which is missing: give "
                "registry=SchemaRegistry(url)."
            )
        self._subject = None if registry is None else checked_subject(where, subject)
        row_type_of(self._class.descriptor)  # refuses what a ROW cannot hold
        self._prefix: bytes | None = None
        self._write: Write | None = None

    def serialize(self, value: Any) -> bytes:
        """Return the message.

        Raises:
            ValueError: the record is not of the message's type.
            ExternalError: the registry does not answer, or refuses.
        """
        if self._prefix is None:
            self._prefix = self._registered_prefix()
        try:
            return self._prefix + self._body(value)
        except Exception as error:  # EncodeError has no common base class with others
            raise ValueError(
                f"a record cannot be written as Protobuf's {self._class.descriptor.full_name}: "
                f"{error}. Record: {bounded_repr(value, 200)}"
            ) from error

    def _body(self, value: Any) -> bytes:
        if not isinstance(value, Row | tuple | list | Mapping) and self._class.takes(value):
            return bytes(value.SerializeToString())
        if self._write is None:
            self._write = row_writer(self._class.descriptor)
        message = self._class.message()
        self._write(value, message)
        return bytes(message.SerializeToString())

    def _registered_prefix(self) -> bytes:
        if self._registry is None or self._subject is None:
            return b""
        descriptor = self._class.descriptor
        client = RegistryClient(self._registry)
        number = id_under(client, self._subject, descriptor.file)
        return prefix_of(number) + encoded(indexes_of(descriptor))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prefix": None, "_write": None}


def _complete(message: Any) -> Any:
    """The message. Raises: ValueError: it lacks a field that proto2 requires."""
    if not message.IsInitialized():
        raise ValueError(f"it lacks {message.FindInitializationErrors()}")
    return message


def _checked_registry(where: str, registry: object) -> SchemaRegistry | None:
    if registry is not None and not isinstance(registry, SchemaRegistry):
        raise ConfigurationError(
            f"{where}: expected registry=SchemaRegistry(url), got {bounded_repr(registry, 100)}."
        )
    return registry
