"""Rows as JSON objects. Does not know any connector.

Source: pyflink.datastream.formats.json, Flink's JsonRowDeserializationSchema and JsonRowSerializationSchema; differs: a
number that does not fit its declared type is an error.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.engine.model import types as t
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.row import make_row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.elements import ColumnBatch
from penstock.formats.json_columns import (
    FieldsReader,
    fields_in_order,
    json_schema_of,
    read_messages,
)
from penstock.formats.json_schema import type_of_schema
from penstock.formats.json_texts import RowTexts, as_bytes, encoded, json_text
from penstock.formats.text_values import (
    checked_int,
    checked_row_type,
    fitted_decimal,
    for_fields,
    parser_of,
)

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]

Convert: TypeAlias = Callable[[Any], Any]

_B = t.BasicType
_WHOLE = frozenset({_B.BYTE, _B.SHORT, _B.INT, _B.LONG, _B.BIG_INT})
_MOST_DIGITS: Final = 4300
"""Of an integer that is written with an exponent, as Python has it for those without."""
MOST_LEVELS: Final = 200
"""Of a value without a declared type. Python copies and pickles a value with a call for each level."""
_MOST_EQUAL_HASHES: Final = 64
"""Of the keys of a map. Of numbers of 64 bits at most 9 have one."""


class _TooLong:
    """Stands for a number that is too long for Python. A STRING takes its text, and a DOUBLE takes it if that is for its exponent."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __float__(self) -> float:
        if self._text.lstrip("-").isdigit():
            raise ValueError(f"expected a shorter number, got {self!r}")
        return float(self._text)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "a number that is too long for Python"


class JsonRowDeserializationSchema(DeserializationSchema):
    """Turns a JSON object into a Row. Build it with `JsonRowDeserializationSchema.builder()`.

    Fields that are missing are None; fields that are not declared are skipped. An empty message
    gives no record.
    """

    def __init__(
        self,
        row_type: RowTypeInfo,
        *,
        fails_on_missing_field: bool = False,
        ignores_errors: bool = False,
        takes_arrays: bool = False,
    ) -> None:
        """Raises: TypeError: JSON has no form for the type of a field."""
        self._row_type = row_type
        self._rules = _Rules(fails_on_missing_field, ignores_errors, takes_arrays)
        for_fields(row_type, lambda kind: _reader(kind, self._rules))
        self._convert: Convert | None = None
        self._reader: FieldsReader | None = None

    _read: Sequence[str] | None = None
    """The fields that somebody reads; None: all."""

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """Return a builder."""
        return JsonRowDeserializationSchema.Builder()

    @property
    def produced_type(self) -> TypeInformation:
        """The declared ROW type."""
        return self._row_type

    def deserialize(self, data: bytes) -> Any:
        """Return the Row; None: there is no record.

        Raises:
            ValueError: the message cannot be read, and errors are not ignored.
        """
        if not data:
            return None
        if self._convert is None:
            self._convert = _row_reader(self._row_type, self._rules, self._read)
        try:
            return self._convert(self._loaded(data))
        except (ValueError, TypeError, KeyError, RecursionError, ArithmeticError) as error:
            if self._rules.ignores_errors:
                return None
            shown = bytes(data[:200])
            raise ValueError(
                f"a message cannot be read as JSON of {self._row_type}: {error}. Message: {shown!r}"
            ) from error

    def _loaded(self, data: bytes) -> Any:
        try:
            return json.loads(data, parse_float=Decimal)
        except json.JSONDecodeError:
            raise
        except (ValueError, ArithmeticError):
            # A number may be too long for Python, which is of no matter in a field that nobody reads.
            return json.loads(data, parse_float=_decimal_if_it_fits, parse_int=_int_if_it_fits)

    def deserialize_columns(
        self, messages: Sequence[bytes | None]
    ) -> pa.RecordBatch | ColumnBatch | None:
        """Return all messages as columns, if all are objects of simple types; else None.

        Simple types are strings, booleans, doubles, whole numbers of up to 64 bits, and lists and rows of them.
        """
        is_strict = self._rules.fails_on_missing_field
        schema = None if is_strict else json_schema_of(self._row_type)
        if schema is None:
            return None
        if self._read is not None and all(messages):
            whole: Sequence[bytes] = messages  # type: ignore[assignment] # none of them is None
            made = self.fields().batch(b"\n".join(whole), whole)
            if made is not None:
                return made
        return read_messages(messages, schema)

    def reading(self, names: Sequence[str]) -> JsonRowDeserializationSchema:
        """Return the schema for programs that read only these fields.

        Other fields are not checked against their types, as fields that are not declared: where such a value cannot be read, it is
        None in the Rows that are still made. It is the schema itself if a missing field is an error or a type has no columns.
        """
        if self._rules.fails_on_missing_field or json_schema_of(self._row_type) is None:
            return self
        made = JsonRowDeserializationSchema(
            self._row_type,
            ignores_errors=self._rules.ignores_errors,
            takes_arrays=self._rules.takes_arrays,
        )
        made._read = fields_in_order(self._row_type, names)
        return made

    def fields(self) -> FieldsReader:
        """Return what reads the fields of `reading`."""
        if self._reader is None:
            names = self._row_type.get_field_names() if self._read is None else self._read
            self._reader = FieldsReader(self._row_type, names, self.deserialize)
        return self._reader

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_convert": None, "_reader": None}

    class Builder:
        """Builds the schema; `type_info` or `json_schema` is required."""

        def __init__(self) -> None:
            self._settings: dict[str, Any] = {}

        def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchema.Builder:
            """Set the ROW type of the values."""
            self._settings |= {"row_type": checked_row_type(type_info), "takes_arrays": False}
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Derive the ROW type from the text of a JSON Schema of an object."""
            if json_schema is None:
                raise TypeError("The json_schema must not be None.")
            row_type = checked_row_type(type_of_schema(json_schema))
            self._settings |= {"row_type": row_type, "takes_arrays": True}
            return self

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Treat a missing field as an error."""
            self._settings["fails_on_missing_field"] = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Read fields that cannot be read as None; skip messages that are not JSON objects."""
            self._settings["ignores_errors"] = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """Return the schema.

            Raises ConfigurationError if settings are missing or contradict each other.
            """
            if "row_type" not in self._settings:
                raise ConfigurationError(
                    "JsonRowDeserializationSchema needs a type: call type_info() or json_schema()."
                )
            if {"fails_on_missing_field", "ignores_errors"} <= self._settings.keys():
                raise ConfigurationError(
                    "JSON format doesn't support failOnMissingField and ignoreParseErrors are "
                    "both true: call only one of fail_on_missing_field() and "
                    "ignore_parse_errors()."
                )
            return JsonRowDeserializationSchema(**self._settings)


class JsonRowSerializationSchema(SerializationSchema):
    """Turns a Row into a JSON object, with the fields in the type's order.

    Build it with `JsonRowSerializationSchema.builder()`.
    """

    def __init__(self, row_type: RowTypeInfo) -> None:
        """Raises: TypeError: JSON has no form for the type of a field."""
        self._row_type = row_type
        _ = self._texts

    @cached_property
    def _texts(self) -> RowTexts:
        return RowTexts(self._row_type)

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """Return a builder."""
        return JsonRowSerializationSchema.Builder()

    def serialize(self, value: Any) -> bytes:
        """Return the object as bytes.

        Raises ValueError if the value is not of the declared type.
        """
        return as_bytes(self._texts.one(value))

    def serialize_values(self, values: Sequence[Any]) -> list[bytes]:
        """Return the objects of all values. Raises: as `serialize`, for the first value that raises."""
        if self._is_extended():
            return super().serialize_values(values)
        try:
            return encoded(self._texts.all(values))
        except Exception:  # Which one is the first?
            return super().serialize_values(values)

    def serialize_columns(self, columns: Sequence[Sequence[Any]], count: int) -> list[bytes] | None:
        """Return the objects of Rows whose fields have these values; None: a value is not of the declared type."""
        if self._is_extended() or len(columns) != len(self._row_type.get_field_names()):
            return None
        try:
            return encoded(self._texts.of_columns(columns, count))
        except Exception:  # The Row that has the value raises it again.
            return None

    def _is_extended(self) -> bool:
        """Whether a class derived from this one writes rows otherwise."""
        return type(self).serialize is not JsonRowSerializationSchema.serialize

    def __getstate__(self) -> dict[str, Any]:
        return {name: one for name, one in self.__dict__.items() if name != "_texts"}

    class Builder:
        """Builds the schema; the type is required."""

        def __init__(self) -> None:
            self._type: RowTypeInfo | None = None

        def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchema.Builder:
            """Set the ROW type of the values."""
            self._type = checked_row_type(type_info)
            return self

        def build(self) -> JsonRowSerializationSchema:
            """Return the schema."""
            if self._type is None:
                raise ConfigurationError(
                    "JsonRowSerializationSchema needs a type: call with_type_info()."
                )
            return JsonRowSerializationSchema(self._type)


# ---------------------------------------------------------------------- from JSON


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules for fields that are missing or cannot be read. `takes_arrays`: for Rows without names, which are tuples of a JSON Schema."""

    fails_on_missing_field: bool
    ignores_errors: bool
    takes_arrays: bool = False

    def or_none(self, convert: Convert) -> Convert:
        """Extends a converter: null becomes None, and with `ignores_errors` so does a value that cannot be read."""
        if not self.ignores_errors:
            return lambda item: None if item is None else convert(item)

        def read(item: Any) -> Any:
            try:
                return None if item is None else convert(item)
            except (ValueError, TypeError, ArithmeticError):
                return None

        return read


def _reader(type_info: TypeInformation, rules: _Rules) -> Convert:  # ruff: ignore[too-many-return-statements] - a dispatch by type
    def inner(kind: TypeInformation) -> Convert:
        return _reader(kind, rules)

    if isinstance(type_info, t.PickledBytesTypeInfo):
        return plain_value
    if isinstance(type_info, RowTypeInfo):
        return rules.or_none(_row_reader(type_info, rules))
    if isinstance(type_info, t.MapTypeInfo):
        return rules.or_none(_map_reader(type_info, inner(type_info.value_type)))
    if isinstance(type_info, t.ExternalTypeInfo):
        return inner(type_info.element_type)
    if isinstance(type_info, t.BasicTypeInfo):
        return rules.or_none(_basic_reader(type_info))
    if isinstance(type_info, t.DecimalTypeInfo):
        return rules.or_none(_decimal_reader(type_info))
    try:
        parse = parser_of(type_info)
    except TypeError:
        if not isinstance(type_info, t.ElementTypeInfo):
            raise
        element = inner(type_info.element_type)
        return rules.or_none(
            lambda item: [element(one) for one in _expected(item, list, "an array")]
        )
    return rules.or_none(lambda item: parse(_expected(item, str, "a string")))


def _map_reader(type_info: t.MapTypeInfo, value: Convert) -> Convert:
    key = parser_of(type_info.key_type)

    def read(item: Any) -> dict[Any, Any]:
        keys = list(map(key, _expected(item, dict, "an object")))
        if max(Counter(map(hash, keys)).values(), default=0) > _MOST_EQUAL_HASHES:
            raise ValueError(f"expected an object, got one of whose {len(keys)} keys many collide")
        made = dict(zip(keys, map(value, item.values()), strict=True))
        if len(made) != len(item):
            raise ValueError(
                f"expected keys that differ as {type_info.key_type}, got {bounded_repr(item)}"
            )
        return made

    return read


def _row_reader(
    row_type: RowTypeInfo, rules: _Rules, read_names: Sequence[str] | None = None
) -> Convert:
    """`read_names`: a value of another field is None if it cannot be read. None: all fields count."""
    names = tuple(row_type.get_field_names())
    takes_arrays = rules.takes_arrays and names == tuple(f"f{at}" for at in range(len(names)))
    unread = replace(rules, ignores_errors=True)
    counts = names if read_names is None else read_names
    readers = [
        _reader(kind, rules if name in counts else unread)
        for name, kind in zip(names, row_type.get_field_types(), strict=True)
    ]

    def read(item: Any) -> Any:
        if takes_arrays and isinstance(item, list):
            if len(item) != len(names):
                raise ValueError(f"expected an array of {len(names)}, got {len(item)} values")
            found = item
        else:
            _expected(item, dict, "an object")
            if rules.fails_on_missing_field:
                missing = [name for name in names if name not in item]
                if missing:
                    raise ValueError(f"could not find field with name '{missing[0]}'")
            found = [item.get(name) for name in names]
        return make_row(
            names, [_read_field(*one) for one in zip(names, readers, found, strict=True)]
        )

    return read


def _int_if_it_fits(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return _TooLong(text)


def _decimal_if_it_fits(text: str) -> Any:
    try:
        return Decimal(text)
    except ArithmeticError:  # Its exponent has more than 18 digits.
        return _TooLong(text)


def _read_field(name: str, read: Convert, item: Any) -> Any:
    try:
        return read(item)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"field '{name}': {error}") from error


def _basic_reader(type_info: t.BasicTypeInfo) -> Convert:
    kind = type_info.basic_type
    parse = parser_of(type_info)

    def read(item: Any) -> Any:
        if isinstance(item, str):
            return parse(item)
        # The only floats are NaN and the infinities without quotes, which are no JSON.
        if kind is _B.STRING and not isinstance(item, float):
            is_number = isinstance(item, Decimal | _TooLong)
            return str(item) if is_number else json_text(plain_value(item))
        is_number = isinstance(item, int | Decimal) and not isinstance(item, bool)
        if kind is _B.BOOLEAN and isinstance(item, bool):
            return item
        if kind in _WHOLE and is_number and _is_whole(item):
            return checked_int(int(item), kind)
        if kind in {_B.FLOAT, _B.DOUBLE} and (is_number or isinstance(item, _TooLong)):
            return float(item)
        if kind is _B.BIG_DEC and is_number:
            return Decimal(item)
        raise ValueError(f"expected {type_info}, got {bounded_repr(item)}")

    return read


def _decimal_reader(type_info: t.DecimalTypeInfo) -> Convert:
    parse = parser_of(type_info)

    def read(item: Any) -> Any:
        if isinstance(item, str):
            return parse(item)
        if isinstance(item, int | Decimal) and not isinstance(item, bool):
            return fitted_decimal(Decimal(item), type_info)
        raise ValueError(f"expected {type_info}, got {bounded_repr(item)}")

    return read


def _is_whole(item: int | Decimal) -> bool:
    # A text as short as 1e999999999 would fill the memory.
    is_short = isinstance(item, int) or item.adjusted() < _MOST_DIGITS
    return is_short and item == math.floor(item)


def plain_value(item: Any, most: int = MOST_LEVELS) -> Any:
    """The value as `json` returns it by default: decimal numbers are floats.

    Raises: ValueError: it has more than `most` levels of arrays and objects.
    """
    if isinstance(item, list | dict) and not most:
        raise _too_deep()
    if isinstance(item, list):
        return [plain_value(one, most - 1) for one in item]
    if isinstance(item, dict):
        return {key: plain_value(one, most - 1) for key, one in item.items()}
    return float(item) if isinstance(item, Decimal | _TooLong) else item


def check_levels(item: Any) -> None:
    """Raises: ValueError: what `json` returned has more than `MOST_LEVELS` levels."""
    level: list[Any] = [[item]]
    for _ in range(MOST_LEVELS + 1):
        level = [
            one
            for outer in level
            for one in (outer.values() if type(outer) is dict else outer)
            if type(one) is list or type(one) is dict
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(
        f"arrays and objects have more than {MOST_LEVELS} levels, which could not be copied"
    )


def _expected(item: Any, kind: type, what: str) -> Any:
    if not isinstance(item, kind):
        raise TypeError(f"expected {what}, got {bounded_repr(item)}")
    return item
