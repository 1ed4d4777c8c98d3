"""From an entry of a Redis stream to a record and back: by one field and a schema, or a field for each column.

An entry is a list of fields with values, all bytes. Does not know the client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.connectors.api.messaging.records import batch_of, rows_of
from penstock.connectors.api.sending import bodies_of
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.row import Row, make_row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.elements import Batch, Int64s

Entry: TypeAlias = Mapping[bytes, bytes]
Flat: TypeAlias = list[bytes]
"""Field, value, field, value, ..."""


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    except KeyError:
        raise ValueError(f"{text!r} is neither true nor false") from None


_RANGES: Final = {
    name: 1 << (bits - 1) for name, bits in (("BYTE", 8), ("SHORT", 16), ("INT", 32), ("LONG", 64))
}


def _whole(name: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if not -_RANGES[name] <= number < _RANGES[name]:
            raise ValueError(f"{number} does not fit into a {name}")
        return number

    return parse


def _parser(kind: TypeInformation) -> Callable[[bytes], Any] | None:
    """From the bytes of a field to a value of this type; None: there is none."""
    if kind == Types.PRIMITIVE_ARRAY(Types.BYTE()):
        return bytes
    texts: tuple[tuple[TypeInformation, Callable[[str], Any]], ...] = (
        (Types.STRING(), str),
        (Types.BOOLEAN(), _boolean),
        *((getattr(Types, name)(), _whole(name)) for name in _RANGES),
        (Types.FLOAT(), float),
        (Types.DOUBLE(), float),
        (Types.BIG_INT(), int),
        (Types.BIG_DEC(), Decimal),
    )
    for one, parse in texts:
        if kind == one:
            return _of_text(parse)
    return None


def _of_text(parse: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda data: parse(data.decode())


def checked_row_type(where: str, kind: object) -> RowTypeInfo:
    """The ROW type of records. Raises: ConfigurationError: it is none, or a field has no form as text."""
    if not isinstance(kind, RowTypeInfo):
        raise ConfigurationError(f"{where}: expected Types.ROW_NAMED(...), got {kind!r:.200}.")
    for name, one in zip(kind.get_field_names(), kind.get_field_types(), strict=True):
        if _parser(one) is None:
            raise ConfigurationError(
                f"{where}: the field {name!r} has the type {one}. A field of an entry is a STRING, "
                "BOOLEAN, number (BYTE to LONG, FLOAT, DOUBLE, BIG_INT, BIG_DEC) or bytes "
                "(PRIMITIVE_ARRAY(BYTE)). Map it to one of these, or use a schema for one field."
            )
    return kind


class EntryReader(ABC):
    """Makes records of entries."""

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation: ...

    @abstractmethod
    def batch(
        self, entries: Sequence[Entry], stamps: Int64s, place: Callable[[int], str]
    ) -> Batch | None:
        """The records, in order; None: no entry gives one. `place(n)`: names the n-th entry in errors."""


@dataclass(frozen=True, slots=True)
class ValueReader(EntryReader):
    """The value of one field, by a schema. An entry without the field is malformed."""

    field: str
    schema: DeserializationSchema

    @property
    def produced_type(self) -> TypeInformation:
        return self.schema.produced_type

    def batch(
        self, entries: Sequence[Entry], stamps: Int64s, place: Callable[[int], str]
    ) -> Batch | None:
        name = self.field.encode()
        values = [entry.get(name) for entry in entries]
        if None not in values:
            return batch_of(values, stamps, self.schema, place)

        def deserialize(entry: Entry) -> Any:
            value = entry.get(name)
            if value is None:
                raise ValueError(f"it has no field {self.field!r}, only {sorted(entry)!r:.200}")
            return self.schema.deserialize(value)

        return _marked(entries, stamps, deserialize, place)


@dataclass(frozen=True, slots=True)
class RowReader(EntryReader):
    """A Row with the fields of the same names. A field that an entry does not have is None; others are left out."""

    row_type: RowTypeInfo

    @property
    def produced_type(self) -> TypeInformation:
        return self.row_type

    def batch(
        self, entries: Sequence[Entry], stamps: Int64s, place: Callable[[int], str]
    ) -> Batch | None:
        names = tuple(self.row_type.get_field_names())
        parsers = [
            (name.encode(), _parser(kind))
            for name, kind in zip(names, self.row_type.get_field_types(), strict=True)
        ]

        def parse(entry: Entry) -> Row:
            values = []
            for name, parser in parsers:
                raw = entry.get(name)
                assert parser is not None, "the type was checked"
                try:
                    values.append(None if raw is None else parser(raw))
                except (ValueError, ArithmeticError) as error:
                    raise ValueError(
                        f"the field {name.decode()!r} has {raw!r:.100}: {error}"
                    ) from error
            return make_row(names, values)

        return _marked(entries, stamps, parse, place)


def _marked(
    entries: Sequence[Entry],
    stamps: Int64s,
    decode: Callable[[Entry], Any],
    place: Callable[[int], str],
) -> Batch | None:
    def failure(number: int, error: Exception) -> ValueError:
        return ValueError(
            f"{place(number)} cannot be read: {type(error).__name__}: {error}. To skip such "
            'entries, give the source .on_error("skip").'
        )

    return rows_of(entries, stamps, decode, failure)


class EntryWriter(ABC):
    """Makes entries of records."""

    @abstractmethod
    def fields(self, record: Any) -> Flat:
        """The entry of a record. Raises: TypeError or ValueError: it has no such form."""

    def check_input(self, where: str, input_type: Any) -> None:
        """Raises: ConfigurationError: records of this type have no such form."""


@dataclass(frozen=True, slots=True)
class ValueWriter(EntryWriter):
    """An entry with one field, whose value a schema makes."""

    field: str
    schema: SerializationSchema

    def fields(self, record: Any) -> Flat:
        return [self.field.encode(), *bodies_of(self.schema, [record])]


@dataclass(frozen=True, slots=True)
class RowWriter(EntryWriter):
    """An entry with a field for each field of a Row; a field that is None is left out."""

    row_type: RowTypeInfo

    def fields(self, record: Any) -> Flat:
        names = self.row_type.get_field_names()
        if len(record) != len(names):
            raise ValueError(
                f"a record has {len(record)} fields, expected {len(names)}: {names}. Record: "
                f"{bounded_repr(record, 200)}"
            )
        flat: Flat = []
        for name, value in zip(names, record, strict=True):
            if value is not None:
                flat += (name.encode(), _raw(name, value))
        if not flat:
            raise ValueError(
                f"all fields of a record are None, and Redis has no empty entries: {record!r:.200}"
            )
        return flat

    def check_input(self, where: str, input_type: Any) -> None:
        if isinstance(input_type, RowTypeInfo) and (
            input_type.get_field_names() != self.row_type.get_field_names()
        ):
            raise ConfigurationError(
                f"{where}: the stream has the fields {input_type.get_field_names()}, and "
                f"set_row_type names {self.row_type.get_field_names()}. They must be the same."
            )


def _raw(name: str, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, str | int | float | Decimal):
        return str(value).encode()
    raise TypeError(
        f"the field {name!r} has a {type(value).__name__}, expected text, number, bool or bytes: "
        f"{value!r:.100}"
    )
