"""Protobuf messages as Rows, for sources and sinks; with a schema registry or without. Needs protobuf (`penstock[protobuf]`).

Source: Flink's protobuf format, which is one of its Table API; the rules of the Protobuf Language Guide. Not in PyFlink.

A class of messages that can be pickled: by the descriptors of its files, so that executors need no generated module.

Needs protobuf (`penstock[protobuf]`). Source: google.protobuf's descriptor_pool and message_factory.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from penstock.common.extras import extra
from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.row import Row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.formats.protobuf.values import Convert, Write, row_reader, row_type_of, row_writer
from penstock.formats.registry.client import (
    MOST_SCHEMAS,
    RegisteredSchema,
    RegistryClient,
    SchemaReference,
    SchemaRegistry,
    checked_subject,
    parted,
    prefix_of,
)

_WELL_KNOWN: Final = ("google/protobuf/", "google/type/", "confluent/")
"""Files that each registry knows."""


def google(module: str) -> Any:
    """A module of google.protobuf. Raises: ConfigurationError: it is not installed."""
    return extra(f"google.protobuf.{module}", "protobuf", "Protobuf")


class MessageClass:
    """The class that protoc or the message factory made of a message's definition."""

    def __init__(self, where: str, message_class: Any) -> None:
        """`where`: begins errors. Raises: ConfigurationError: it is no class of messages."""
        base = google("message").Message
        if not isinstance(message_class, type) or not issubclass(message_class, base):
            raise ConfigurationError(
                f"{where}: expected a message class that protoc has made, such as Order of "
                f"orders_pb2, got {message_class!r}."
            )
        self._class: Any = message_class
        self._files: tuple[bytes, ...] = ()
        self._name: str = self.descriptor.full_name

    @property
    def message(self) -> Any:
        """The class itself."""
        if self._class is None:
            pool = google("descriptor_pool").DescriptorPool()
            for file in self._files:
                pool.AddSerializedFile(file)
            descriptor = pool.FindMessageTypeByName(self._name)
            self._class = google("message_factory").GetMessageClass(descriptor)
        return self._class

    @property
    def descriptor(self) -> Any:
        return self.message.DESCRIPTOR

    def takes(self, value: object) -> bool:
        """Whether it is a message of this name, whatever its class."""
        descriptor = getattr(value, "DESCRIPTOR", None)
        return bool(getattr(descriptor, "full_name", None) == self._name)

    def __getstate__(self) -> dict[str, Any]:
        files = tuple(file.serialized_pb for file in _with_imports(self.descriptor.file))
        return {"_class": None, "_files": files, "_name": self._name}


def _with_imports(file: Any) -> Iterator[Any]:
    """The files that it imports, each once and before those that import it, and the file."""
    seen: set[str] = set()

    def each(one: Any) -> Iterator[Any]:
        if one.name not in seen:
            seen.add(one.name)
            for imported in one.dependencies:
                yield from each(imported)
            yield one

    return each(file)


def imports_to_register(file: Any) -> list[Any]:
    """The files that it imports and that a registry does not know by itself."""
    return [one for one in file.dependencies if not one.name.startswith(_WELL_KNOWN)]


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
        raise ValueError(f"a message has {count} indexes after the id of its schema")
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
    raise ValueError("a message has no indexes after the id of its schema")


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


_BYTES, _MESSAGE = "bytes", "message"
_NAMES: Final[Mapping[int, str]] = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32",
    8: "bool", 9: "string", 10: "group", 11: _MESSAGE, 12: _BYTES, 13: "uint32", 14: "enum",
    15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
"""By the number that descriptors give them."""
_ALIKE: Final = (
    frozenset({"int32", "uint32", "int64", "uint64", "bool", "enum"}),
    frozenset({"sint32", "sint64"}),
    frozenset({"string", _BYTES}),
    frozenset({_BYTES, _MESSAGE}),
    frozenset({"fixed32", "sfixed32"}),
    frozenset({"fixed64", "sfixed64"}),
)


def unreadable_field(file: Any, descriptor: Any) -> str:
    """The first field whose values the reader would not see; "": there is none.

    `file`: the writer's FileDescriptorProto. `descriptor`: the reader's message. Messages of files that are imported are not
    looked at.
    """
    writers = dict(_messages(file.message_type, file.package))
    return next(_unreadable(writers, descriptor, set()), "")


def _messages(found: Any, scope: str) -> Iterator[tuple[str, Any]]:
    for one in found:
        name = f"{scope}.{one.name}" if scope else one.name
        yield name, one
        yield from _messages(one.nested_type, name)


def _unreadable(writers: Mapping[str, Any], reader: Any, seen: set[str]) -> Iterator[str]:
    writer = writers.get(reader.full_name)
    if writer is None or reader.full_name in seen:
        return
    seen.add(reader.full_name)
    for one in writer.field:
        mine = reader.fields_by_number.get(one.number)
        if mine is None:  # a field that the reader does not know is dropped, as it should be
            continue
        theirs, own = _NAMES.get(one.type, "?"), _NAMES.get(mine.type, "?")
        if theirs != own and not any({theirs, own} <= kinds for kinds in _ALIKE):
            yield (
                f"the field {one.number} of {reader.full_name} is the {theirs} {one.name!r} of the "
                f"writer and the {own} {mine.name!r} of the reader, and Protobuf would drop it"
            )
        if mine.message_type is not None:
            yield from _unreadable(writers, mine.message_type, seen)


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
        self._known: Callable[[Writer], str] | None = None
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
        """Return the message without its prefix. Raises: ValueError: it is another message."""
        if self._last_prefix and data.startswith(self._last_prefix):
            return data[len(self._last_prefix) :]
        schema_id, rest = parted(data, "a Protobuf message")
        indexes, body = without_indexes(rest)
        if self._known is None or self._client is None:
            self._known = lru_cache(MOST_SCHEMAS)(self._what_is_wrong)
            self._client = RegistryClient(registry)
        wrong = self._known((schema_id, indexes))
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
