"""Defaults of an Avro schema as values: what a reader takes for a field that the writer did not have, and a writer for one that is left out.

In the schema they are JSON: bytes are a text of Latin-1, a date is a number of days. fastavro hands that on as it stands.
Source: Avro specification 1.12, "Complex Types" (table of default values) and "Schema Resolution".
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from penstock.common.extras import extra
from penstock.datastream.formats.avro_values import AvroNames, Schema

_KINDS: Final[Mapping[str, Any]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    "bytes": str,
    "fixed": str,
    "string": str,
    "enum": str,
    "array": list,
    "map": dict,
    "record": dict,
}
"""What a default is in JSON, by the kind of its schema."""


def with_values(schema: Schema) -> Schema:
    """A copy of fastavro's schema, whose defaults are values of fastavro's instead of JSON.

    It is for reading and writing records; it has no form as JSON any more.
    """
    made = copy.deepcopy(schema)
    names = AvroNames()
    names.learn(made)
    parts = [made]
    if isinstance(made, dict):  # what stands by its name only is looked up there
        parts += made.get("__named_schemas", {}).values()
    replaced: set[int] = set()
    for part in parts:
        _replace(part, names, replaced)
    return made


def _replace(schema: Schema, names: AvroNames, replaced: set[int]) -> None:
    """In all records of the schema, once each: what is within first, as a default may have defaults within."""
    if isinstance(schema, list):
        for branch in schema:
            _replace(branch, names, replaced)
    if not isinstance(schema, dict) or id(schema) in replaced:
        return
    replaced.add(id(schema))
    for part in (schema.get("items"), schema.get("values"), schema.get("type")):
        _replace(part, names, replaced)
    for field in schema.get("fields", ()):
        _replace(field["type"], names, replaced)
        if "default" in field:
            field["default"] = _value(field["type"], field["default"], names)


def _value(schema: Schema, given: Any, names: AvroNames) -> Any:
    """The value of a default in JSON. One that is a value already stays, so that it may be asked for twice."""
    kind, schema = names.resolved(schema)
    if kind == "union":
        fitting = (one for one in schema if _fits(one, given, names))
        return _value(next(fitting, schema[0]), given, names)
    if not isinstance(given, _KINDS.get(kind, object)):
        return given
    if kind == "array":
        return [_value(schema["items"], one, names) for one in given]
    if kind == "map":
        return {key: _value(schema["values"], one, names) for key, one in given.items()}
    if kind == "record":
        return {
            field["name"]: _value(
                field["type"], given.get(field["name"], field.get("default")), names
            )
            for field in schema["fields"]
        }
    value = given
    if kind in {"bytes", "fixed"}:
        value = given.encode("latin-1")
    elif kind in {"float", "double"}:
        value = float(given)
    readers = extra("fastavro.read", "avro", "Avro").LOGICAL_READERS
    logical = readers.get(f"{kind}-{schema.get('logicalType')}")
    return value if logical is None else logical(value, schema, None)


def _fits(schema: Schema, given: Any, names: AvroNames) -> bool:
    kind, _ = names.resolved(schema)
    is_flag = isinstance(given, bool) and kind != "boolean"  # of Python a bool is an int, too
    return isinstance(given, _KINDS.get(kind, object)) and not is_flag
