"""Protobuf's messages as Rows: the type of a descriptor, and values there and back. Does not know bytes.

Source: Flink's protobuf format (PbToRowTypeUtil: messages ROW, repeated ARRAY, maps MAP, enums STRING) and the Protobuf Language Guide
(field presence, oneof, open and closed enums); differs: unsigned numbers keep their values (uint32 LONG, uint64 BIG_INT), Timestamp is
an INSTANT, and a field with presence that is not set is None.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from penstock.common.time import Duration, Instant
from penstock.common.typeinfo import TypeInformation, Types
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.row import make_row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.formats.text_values import fields_of, items_of

Convert: TypeAlias = Callable[[Any], Any]
Write: TypeAlias = Callable[[Any, Any], None]
"""(value, message): sets the message's fields."""

_BYTES: Final = Types.PRIMITIVE_ARRAY(Types.BYTE())
_GROUP, _MESSAGE, _BYTES_KIND, _ENUM = 10, 11, 12, 14
_SCALARS: Final[dict[int, Callable[[], TypeInformation]]] = {
    1: Types.DOUBLE,
    2: Types.FLOAT,
    3: Types.LONG,  # int64
    4: Types.BIG_INT,  # uint64
    5: Types.INT,  # int32
    6: Types.BIG_INT,  # fixed64
    7: Types.LONG,  # fixed32
    8: Types.BOOLEAN,
    9: Types.STRING,
    _BYTES_KIND: lambda: _BYTES,
    13: Types.LONG,  # uint32
    _ENUM: Types.STRING,
    15: Types.INT,  # sfixed32
    16: Types.LONG,  # sfixed64
    17: Types.INT,  # sint32
    18: Types.LONG,  # sint64
}
"""By FieldDescriptorProto.Type."""
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in (
        "Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes",
    )
)  # fmt: skip
_NANOS_PER_S: Final = 1_000_000_000
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


# ---------------------------------------------------------------------- types


def row_type_of(descriptor: Any, within: tuple[str, ...] = ()) -> TypeInformation:
    """The ROW type of a message. Raises: ConfigurationError: a message contains itself. `within`: messages that it is part of."""
    name = descriptor.full_name
    if name in within:
        raise ConfigurationError(
            f"the Protobuf message {name!r} contains itself ({' > '.join([*within, name])}), and "
            "rows have no type for that. Leave that field out of the message that you give, or "
            "write a DeserializationSchema of your own."
        )
    fields = descriptor.fields
    types = [_field_type(field, (*within, name)) for field in fields]
    return Types.ROW_NAMED([field.name for field in fields], types)


def _field_type(field: Any, within: tuple[str, ...]) -> TypeInformation:
    if _is_map(field):
        key, value = field.message_type.fields
        return Types.MAP(_single_type(key, within), _single_type(value, within))
    single = _single_type(field, within)
    return Types.OBJECT_ARRAY(single) if field.is_repeated else single


def _single_type(field: Any, within: tuple[str, ...]) -> TypeInformation:
    if field.type not in {_MESSAGE, _GROUP}:
        return _SCALARS[field.type]()
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return Types.INSTANT()
    if name in _WRAPPERS:
        return _single_type(field.message_type.fields[0], within)
    return row_type_of(field.message_type, within)


def _is_map(field: Any) -> bool:
    kind = field.message_type
    return bool(field.is_repeated and kind is not None and kind.GetOptions().map_entry)


# ---------------------------------------------------------------------- from messages


def row_reader(descriptor: Any) -> Convert:
    """Makes a Row of a message."""
    fields = tuple(descriptor.fields_by_name[field.name].name for field in descriptor.fields)
    readers = [_field_reader(field) for field in descriptor.fields]
    return lambda message: make_row(fields, [read(message) for read in readers])


def _field_reader(field: Any) -> Convert:
    name = field.name
    if _is_map(field):
        value = _single_reader(field.message_type.fields[1])
        return lambda message: {
            key: value(one) if value else one for key, one in getattr(message, name).items()
        }
    convert = _single_reader(field)
    if field.is_repeated:
        if convert is None:
            return lambda message: list(getattr(message, name))
        return lambda message: [convert(one) for one in getattr(message, name)]
    read: Convert = (
        (lambda message: getattr(message, name))
        if convert is None
        else (lambda message: convert(getattr(message, name)))
    )
    if not field.has_presence:
        return read
    return lambda message: read(message) if message.HasField(name) else None


def _single_reader(field: Any) -> Convert | None:
    """None: the value stays as it is."""
    if field.type == _ENUM:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number) or str(number)
    if field.type not in {_MESSAGE, _GROUP}:
        return None
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return lambda found: Instant(found.seconds, found.nanos)
    if name in _WRAPPERS:
        return lambda found: found.value
    return row_reader(field.message_type)


# ---------------------------------------------------------------------- to messages


def row_writer(descriptor: Any) -> Write:
    """Sets the fields of a message: from a Row, a tuple or a list by position, from a dict by name. A field that is None stays unset."""
    names = [field.name for field in descriptor.fields]
    writers = [(_field_writer(field), field.name) for field in descriptor.fields]
    oneofs = _oneofs(descriptor)

    def write(value: Any, message: Any) -> None:
        values = fields_of(value, names, descriptor.full_name)
        for oneof, fields in oneofs:
            _check_oneof(oneof, [name for name, place in fields if values[place] is not None])
        for one, (set_field, name) in zip(values, writers, strict=True):
            if one is not None:
                try:
                    set_field(one, message)
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{name}: {error}") from error

    return write


def _oneofs(descriptor: Any) -> list[tuple[str, list[tuple[str, int]]]]:
    """The name of each oneof, with the names and places of its fields."""
    places = {field.name: place for place, field in enumerate(descriptor.fields)}
    return [
        (one.name, [(field.name, places[field.name]) for field in one.fields])
        for one in descriptor.oneofs
        if len(one.fields) > 1
    ]


def _check_oneof(name: str, found: list[str]) -> None:
    if len(found) > 1:
        raise ValueError(
            f"{' and '.join(found)} have values, but only one field of the oneof {name!r} may"
        )


def _field_writer(field: Any) -> Write:
    name = field.name
    if _is_map(field):
        return _map_writer(name, field.message_type.fields[1])
    inner = _message_writer(field)
    if inner is None:
        return _plain_writer(field)
    if field.is_repeated:
        return lambda values, message: _add_each(inner, items_of(values), getattr(message, name))

    def write(value: Any, message: Any) -> None:
        part = getattr(message, name)
        part.SetInParent()  # or a part without fields would not be set
        inner(value, part)

    return write


def _plain_writer(field: Any) -> Write:
    """Of a field without messages."""
    name, convert = field.name, _single_writer(field)
    if convert is None:
        if field.is_repeated:
            return lambda values, message: getattr(message, name).extend(items_of(values))
        return lambda value, message: setattr(message, name, value)
    if field.is_repeated:
        return lambda values, message: getattr(message, name).extend(map(convert, items_of(values)))
    return lambda value, message: setattr(message, name, convert(value))


def _map_writer(name: str, value_field: Any) -> Write:
    inner, convert = _message_writer(value_field), _single_writer(value_field)

    def write(entries: Any, message: Any) -> None:
        target = getattr(message, name)
        for key, value in dict(entries).items():
            if inner is not None:
                inner(value, target[key])
            else:
                target[key] = value if convert is None else convert(value)

    return write


def _add_each(write: Write, values: Any, target: Any) -> None:
    for value in values:
        write(value, target.add())


def _message_writer(field: Any) -> Write | None:
    """None: the field has no messages."""
    if field.type not in {_MESSAGE, _GROUP}:
        return None
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        return _write_timestamp
    if name in _WRAPPERS:
        return _field_writer(field.message_type.fields[0])
    write = row_writer(field.message_type)
    if name == _DURATION:
        return lambda value, message: write(_duration_parts(value), message)
    return write


def _single_writer(field: Any) -> Convert | None:
    """None: the value stays as it is."""
    if field.type == _ENUM:
        numbers = {one.name: one.number for one in field.enum_type.values}
        return lambda value: _number_of(value, numbers, field.enum_type.full_name)
    if field.type == _BYTES_KIND:
        return lambda value: bytes(value) if isinstance(value, bytearray | memoryview) else value
    return None


def _number_of(value: Any, numbers: Mapping[str, int], enum: str) -> Any:
    """A name, or the number of a value that has no name here."""
    if not isinstance(value, str):
        return value
    if value in numbers:
        return numbers[value]
    if value.removeprefix("-").isdecimal():
        return int(value)
    raise ValueError(f"the enum {enum} has no {value!r}, only {list(numbers)}")


def _write_timestamp(value: Any, message: Any) -> None:
    """Of an Instant, or of a datetime; one without a zone is in UTC."""
    if isinstance(value, dt.datetime):
        since = (value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH
        message.seconds = since // dt.timedelta(seconds=1)
        message.nanos = since % dt.timedelta(seconds=1) // dt.timedelta(microseconds=1) * 1000
    elif isinstance(value, Instant):
        message.seconds, message.nanos = value.seconds, value.nanos
    else:
        raise TypeError(f"expected an Instant or a datetime, got {bounded_repr(value)}")


def _duration_parts(value: Any) -> Any:
    """Seconds and nanoseconds, which have the same sign."""
    if isinstance(value, dt.timedelta):
        nanos = value // dt.timedelta(microseconds=1) * 1000
    elif isinstance(value, Duration):
        nanos = value.to_nanos()
    else:
        return value
    seconds, rest = divmod(abs(nanos), _NANOS_PER_S)
    return (seconds, rest) if nanos >= 0 else (-seconds, -rest)
