"""Avro schemas: the types of their records, and conversion of values to and from fastavro and pyarrow.

Does not know files. Schemas are results of `fastavro.parse_schema`, so their names are full names.
Source: Flink AvroSchemaConverter, AvroRowDeserializationSchema, AvroRowSerializationSchema; differs: a value of a union
of several types may be any Python value.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from operator import index
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.common.typeinfo import TypeInformation, Types
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.row import make_row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.formats.text_values import fields_of, items_of, naive_utc

Schema: TypeAlias = Any
Convert: TypeAlias = Callable[[Any], Any]

_PRIMITIVES: Final[dict[str, Callable[[], TypeInformation]]] = {
    "string": Types.STRING,
    "enum": Types.STRING,
    "int": Types.INT,
    "long": Types.LONG,
    "float": Types.FLOAT,
    "double": Types.DOUBLE,
    "boolean": Types.BOOLEAN,
    "null": Types.PICKLED_BYTE_ARRAY,
    "bytes": lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "fixed": lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
}
_ZONED: Final = frozenset({"timestamp-millis", "timestamp-micros"})
_LOGICAL: Final[dict[str, Callable[[], TypeInformation]]] = {
    "date": Types.SQL_DATE,
    "time-millis": Types.SQL_TIME,
    "time-micros": Types.SQL_TIME,
    "decimal": Types.BIG_DEC,
    **dict.fromkeys(_ZONED, Types.SQL_TIMESTAMP),
    "local-timestamp-millis": Types.SQL_TIMESTAMP,
    "local-timestamp-micros": Types.SQL_TIMESTAMP,
}
_ARROW: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "enum": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "null": pa.null(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}


class AvroNames:
    """The named types of a schema that were met so far, and those that are being resolved."""

    def __init__(self) -> None:
        self._known: dict[str, Schema] = {}
        self._open: list[str] = []
        self._converters: dict[str, Convert] = {}

    def resolved(self, schema: Schema) -> tuple[str, Schema]:
        """The kind (record, array, union, int ...), and the schema that a name refers to."""
        if isinstance(schema, list):
            self.learn(schema)
            return "union", schema
        if isinstance(schema, str):
            if schema not in self._known:
                return schema, {"type": schema}
            schema = self._known[schema]
        kind = schema["type"]
        if not isinstance(kind, str) or kind in self._known:
            return self.resolved(kind)
        if "name" in schema:
            self._known[schema["name"]] = schema
        return kind, schema

    def learn(self, schema: Schema) -> None:
        """Note the types that are defined within: nobody resolves the branches of a union of several types, but what follows may name
        them.
        """
        if isinstance(schema, list):
            for branch in schema:
                self.learn(branch)
        elif isinstance(schema, dict):
            if "name" in schema:
                self._known.setdefault(schema["name"], schema)
            parts = [field["type"] for field in schema.get("fields", ())]
            for part in (*parts, schema.get("items"), schema.get("values"), schema["type"]):
                self.learn(part)

    def fields(self, record: Schema, each: Callable[[Schema], Any]) -> dict[str, Any]:
        """Applies `each` to the types of a record's fields. Raises: ConfigurationError: the record contains itself."""
        name = record.get("name", "")
        if name in self._open:
            raise ConfigurationError(
                f"the Avro record {name!r} contains itself, and rows and columns have no type for "
                "that. Read and write it as generic records (AvroInputFormat, AvroBulkWriters), "
                "or leave that field out of the schema."
            )
        self._open.append(name)
        made = {field["name"]: each(field["type"]) for field in record["fields"]}
        self._open.pop()
        return made

    def converter(
        self,
        record: Schema,
        each: Callable[[Schema], Convert],
        make: Callable[[dict[str, Convert]], Convert],
    ) -> Convert:
        """The converter that `make` makes from the converters of the fields; a record may contain itself."""
        name, known = record.get("name", ""), self._converters
        if name in self._open:
            return lambda value: known[name](value)  # ruff: ignore[unnecessary-lambda] - it does not exist yet
        known[name] = make(self.fields(record, each))
        return known[name]


def type_info_of(schema: Schema, names: AvroNames | None = None) -> TypeInformation:
    """The type of the schema's values. Raises: ConfigurationError: a record contains itself."""
    names = names or AvroNames()
    kind, schema = names.resolved(schema)

    def inner(part: Schema) -> TypeInformation:
        return type_info_of(part, names)

    if kind == "union":
        only = _optional(schema)
        return Types.PICKLED_BYTE_ARRAY() if only is None else inner(only)
    if kind == "record":
        types = names.fields(schema, inner)
        return Types.ROW_NAMED(list(types), list(types.values()))
    if kind == "array":
        return Types.OBJECT_ARRAY(inner(schema["items"]))
    if kind == "map":
        return Types.MAP(Types.STRING(), inner(schema["values"]))
    return (_LOGICAL.get(schema.get("logicalType", "")) or _PRIMITIVES[kind])()


def from_avro(schema: Schema) -> Convert:
    """Converts fastavro's values to those of `type_info_of`: dicts of records become Rows, UTC times lose their zone."""
    # fastavro reads a number of 64 bits for an int, too.
    plain: dict[str, Convert] = {"uuid": str, "int": _whole("int", 32)}
    logical = dict.fromkeys(_ZONED, naive_utc) | plain
    return _converter(schema, AvroNames(), _row_reader, logical)


def to_avro(schema: Schema) -> Convert:
    """Converts a function's value for fastavro: Rows, tuples and dicts become dicts of records.

    Times without a zone become UTC; fastavro would take them in the machine's zone. It would also cut 1.5 down to 1, and write
    numbers that do not fit into an int.
    """
    whole = {name: _whole(name, bits) for name, bits in (("int", 32), ("long", 64))}
    return _converter(schema, AvroNames(), _record_writer, dict.fromkeys(_ZONED, _zoned) | whole)


def arrow_type_of(schema: Schema, names: AvroNames | None = None) -> pa.DataType:
    """The Arrow type of the schema.

    Raises: ConfigurationError: a union of several types, which no column can hold; a record that contains itself.
    """
    names = names or AvroNames()
    kind, schema = names.resolved(schema)

    def inner(part: Schema) -> pa.DataType:
        return arrow_type_of(part, names)

    if kind == "union":
        only = _optional(schema)
        if only is None:
            raise ConfigurationError(
                f"Parquet has no columns for a union of several types: got {schema}. Expected null and one type."
            )
        return inner(only)
    if kind == "record":
        fields = names.fields(schema, lambda part: (inner(part), _takes_null(part)))
        return pa.struct([pa.field(name, *one) for name, one in fields.items()])
    if kind == "array":
        return pa.list_(inner(schema["items"]))
    if kind == "map":
        return pa.map_(pa.string(), inner(schema["values"]))
    return _single_arrow_type(kind, schema)


def from_arrow(schema: Schema) -> Convert:
    """Converts pyarrow's value of a column to that of a generic record: maps become dicts."""
    return _converter(schema, AvroNames(), _dict_reader, {})


def _converter(
    schema: Schema,
    names: AvroNames,
    record: Callable[[Mapping[str, Convert]], Convert],
    logical: Mapping[str, Convert],
) -> Convert:
    """Makes a converter for values of a schema.

    `record` makes a record's converter from those of its fields, `logical` are the converters of logical types, and of kinds
    without one. All other values stay as they are.
    """
    kind, schema = names.resolved(schema)

    def inner(part: Schema) -> Convert:
        return _converter(part, names, record, logical)

    if kind == "union":
        only = _optional(schema)
        if only is not None:
            return _or_none(inner(only))
        times = {names.resolved(one)[1].get("logicalType") for one in schema if one != "null"}
        return _zoned if _zoned in map(logical.get, times) else _same
    if kind == "record":
        return names.converter(schema, inner, record)
    if kind == "array":
        return _array(inner(schema["items"]))
    if kind == "map":
        value = inner(schema["values"])  # pyarrow's maps are lists of pairs
        return lambda entries: {key: value(one) for key, one in dict(entries).items()}
    return logical.get(schema.get("logicalType", kind), _same)


def _single_arrow_type(kind: str, schema: Schema) -> pa.DataType:
    logical = schema.get("logicalType", "")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if kind == "fixed":
        return pa.binary(schema["size"])
    return _ARROW.get(logical) or _ARROW[kind]


def _row_reader(readers: Mapping[str, Convert]) -> Convert:
    fields = tuple(readers)
    return lambda found: make_row(fields, [readers[name](found[name]) for name in fields])


def _dict_reader(readers: Mapping[str, Convert]) -> Convert:
    return lambda found: {name: read(found[name]) for name, read in readers.items()}


def _record_writer(writers: Mapping[str, Convert]) -> Convert:
    fields = list(writers)

    def write(value: Any) -> dict[str, Any]:
        pairs = list(zip(fields, fields_of(value, fields), strict=True))
        if isinstance(value, Mapping):  # a missing field gets the schema's default
            pairs = [(name, one) for name, one in pairs if name in value]
        return _written(writers, pairs)

    return write


def _written(writers: Mapping[str, Convert], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises: TypeError, ValueError: as a field's writer does, with the field's name."""
    try:
        return {name: writers[name](one) for name, one in pairs}
    except (TypeError, ValueError):
        for name, one in pairs:  # once more, to find out which one it is
            try:
                writers[name](one)
            except (TypeError, ValueError) as error:
                raise type(error)(f"field {name!r}: {error}") from error
        raise


def _whole(name: str, bits: int) -> Convert:
    most = (1 << (bits - 1)) - 1
    least = -most - 1

    def convert(value: Any) -> Any:
        if type(value) is int and least <= value <= most:
            return value
        if value is None:  # the writer says what it expects instead
            return None
        try:
            number = index(value)
        except TypeError:
            raise TypeError(f"expected a whole number, got {bounded_repr(value)}") from None
        if not least <= number <= most:
            raise ValueError(f"{number} does not fit into an Avro {name}, which has {bits} bits")
        return number

    return convert


def _array(element: Convert) -> Convert:
    return lambda values: [element(one) for one in items_of(values)]


def _optional(union: list[Schema]) -> Schema | None:
    """The one type of a union besides null; None: there are several."""
    others = [one for one in union if one != "null"]
    return others[0] if len(others) == 1 else None


def _takes_null(schema: Schema) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)


def _or_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _zoned(value: Any) -> Any:
    is_naive = isinstance(value, dt.datetime) and value.tzinfo is None
    return value.replace(tzinfo=dt.UTC) if is_naive else value


def _same(value: Any) -> Any:
    return value
