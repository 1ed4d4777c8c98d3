"""Row types from JSON Schema.

Source: Flink's JsonRowSchemaConverter: object ROW_NAMED, array OBJECT_ARRAY or ROW, string STRING (formats date, time,
date-time; contentEncoding base64 bytes), number BIG_DEC, integer BIG_INT, boolean BOOLEAN.
"""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.common.typeinfo import TypeInformation, Types

_FORMATS: Final = {
    "date-time": Types.SQL_TIMESTAMP,
    "date": Types.SQL_DATE,
    "time": Types.SQL_TIME,
}
_PLAIN: Final = {"number": Types.BIG_DEC, "integer": Types.BIG_INT, "boolean": Types.BOOLEAN}


def type_of_schema(text: str) -> TypeInformation:
    """The type of a schema. Raises: ValueError, TypeError: the text names the place in the schema."""
    try:
        root = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the JSON schema is not JSON: {error}") from error
    return _type_of("<root>", root, root, frozenset())


def _type_of(place: str, node: Any, root: Any, within: frozenset[str]) -> TypeInformation:
    if not isinstance(node, dict):
        raise TypeError(f"invalid JSON schema at {place}: expected an object, got {node!r}")
    if "$ref" in node:
        target = node["$ref"]
        if target in within:
            raise ValueError(f"the JSON schema at {place} refers to itself: {target}")
        return _type_of(place, _referred(place, target, root), root, within | {target})
    if "oneOf" in node:
        return _only(
            place, [one for one in node["oneOf"] if one.get("type") != "null"], root, within
        )
    kinds = node.get("type")
    if isinstance(kinds, list):
        left = [{**node, "type": kind} for kind in kinds if kind != "null"]
        return _only(place, left, root, within)
    return _by_kind(place, node, root, within)


def _by_kind(place: str, node: Any, root: Any, within: frozenset[str]) -> TypeInformation:
    kind = node.get("type")
    if kind == "object":
        names = list(node.get("properties", {}))
        types = [
            _type_of(f"{place}/{name}", node["properties"][name], root, within) for name in names
        ]
        return Types.ROW_NAMED(names, types)
    if kind == "array":
        return _array(place, node, root, within)
    if kind == "string":
        if node.get("contentEncoding") == "base64":
            return Types.PRIMITIVE_ARRAY(Types.BYTE())
        return _FORMATS.get(node.get("format", ""), Types.STRING)()
    if kind in _PLAIN:
        return _PLAIN[kind]()
    raise ValueError(f"unsupported type {kind!r} in the JSON schema at {place}")


def _array(place: str, node: Any, root: Any, within: frozenset[str]) -> TypeInformation:
    items = node.get("items")
    if isinstance(items, list):
        if node.get("additionalItems"):
            raise ValueError(
                f"the array at {place} has additional items, but their types are not known"
            )
        return Types.ROW([_type_of(f"{place}/items", one, root, within) for one in items])
    if items is None:
        raise ValueError(f"the array at {place} has no 'items'")
    return Types.OBJECT_ARRAY(_type_of(f"{place}/items", items, root, within))


def _only(place: str, left: list[Any], root: Any, within: frozenset[str]) -> TypeInformation:
    if len(left) != 1:
        raise ValueError(
            f"the JSON schema at {place} allows several types; only one type and null can be read"
        )
    return _type_of(place, left[0], root, within)


def _referred(place: str, target: str, root: Any) -> Any:
    if not target.startswith("#"):
        raise ValueError(f"the reference {target!r} at {place} is not within the JSON schema")
    found = root
    for step in filter(None, target[1:].split("/")):
        if not isinstance(found, dict) or step not in found:
            raise ValueError(f"could not find the reference {target!r} of {place}")
        found = found[step]
    return found
