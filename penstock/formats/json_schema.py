"""Row types from JSON Schema, drafts 4 to 2020-12. Does not know values.

Source: Flink's JsonRowSchemaConverter: object ROW_NAMED, array OBJECT_ARRAY or ROW, string STRING (formats date, time,
date-time; contentEncoding base64 bytes), number BIG_DEC, integer BIG_INT, boolean BOOLEAN; differs: `anyOf`, `allOf`, `enum`, `const`,
`prefixItems` and objects of additional properties alone (MAP) are understood too.

Values as JSON that a JSON Schema takes, as far as types, required fields and null go. Does not know messages.

A field that is None is written as null where the schema takes null, and left out where it does not.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from penstock.common.typeinfo import TypeInformation, Types
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.formats.json_texts import json_text
from penstock.formats.text_values import fields_of, formatter_of, items_of

_FORMATS: Final = {
    "date-time": Types.SQL_TIMESTAMP,
    "date": Types.SQL_DATE,
    "time": Types.SQL_TIME,
}
_PLAIN: Final = {
    "number": Types.BIG_DEC,
    "integer": Types.BIG_INT,
    "boolean": Types.BOOLEAN,
    "null": Types.PICKLED_BYTE_ARRAY,
}
_KINDS_OF_VALUES: Final = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string",
    list: "array", dict: "object",
}  # fmt: skip
_CHOICES: Final = ("oneOf", "anyOf")
_SHAPING: Final = frozenset({
    "$ref", "type", "properties", "items", "prefixItems", "enum", "const", "allOf", *_CHOICES,
})  # fmt: skip
"""What a schema says of types."""


@dataclass(frozen=True, slots=True)
class JsonShape:
    """What a place of a schema holds.

    `kind`: object, tuple, array, map, string, integer, number, boolean or null. `parts`: of an object's or tuple's fields, of an array's
    items, of a map's values. `required`: names of fields.
    """

    kind: str
    type_info: TypeInformation
    parts: tuple[JsonShape, ...] = ()
    required: frozenset[str] = frozenset()
    takes_null: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the schema; its root; and the references that have led here."""

    path: str
    root: Any
    within: frozenset[str] = frozenset()

    def at(self, name: str) -> _Place:
        return replace(self, path=f"{self.path}/{name}")


def type_of_schema(text: str) -> TypeInformation:
    """The type of a schema. Raises: ValueError, TypeError: the text names the place in the schema."""
    return shape_of_schema(text).type_info


def shape_of_schema(text: str) -> JsonShape:
    """As `type_of_schema`."""
    try:
        root = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the JSON schema is not JSON: {error}") from error
    return _shape(_Place("<root>", root), root)


def _shape(place: _Place, node: Any) -> JsonShape:
    if node is True or node == {}:
        raise ValueError(
            f"the JSON schema at {place.path} allows any value, and a field of a ROW has one type"
        )
    if not isinstance(node, dict):
        raise TypeError(
            f"invalid JSON schema at {place.path}: expected an object, got {bounded_repr(node)}"
        )
    if "$ref" in node:
        target = node["$ref"]
        if target in place.within:
            raise ValueError(
                f"the JSON schema at {place.path} refers to itself: {target}. A ROW cannot "
                "contain itself"
            )
        found = _referred(place, target)
        return _shape(replace(place, within=place.within | {target}), found)
    for word in _CHOICES:
        if options := _listed(place, node, word):
            return _choice(place, options)
    if options := _listed(place, node, "allOf"):
        return _all_of(place, node, options)
    kinds = node["type"] if "type" in node else _kinds_of_values(place, node)
    if isinstance(kinds, list):
        return _choice(place, [{**node, "type": kind} for kind in kinds])
    return _by_kind(place, node, kinds)


def _by_kind(place: _Place, node: dict[str, Any], kind: Any) -> JsonShape:
    if kind == "object":
        return _object(place, node)
    if kind == "array":
        return _array(place, node)
    if kind == "string":
        if node.get("contentEncoding") == "base64":
            return JsonShape(kind, Types.PRIMITIVE_ARRAY(Types.BYTE()))
        return JsonShape(kind, _FORMATS.get(node.get("format", ""), Types.STRING)())
    if kind in _PLAIN:
        return JsonShape(kind, _PLAIN[kind](), takes_null=kind == "null")
    raise ValueError(f"unsupported type {bounded_repr(kind)} in the JSON schema at {place.path}")


def _object(place: _Place, node: dict[str, Any]) -> JsonShape:
    properties = node.get("properties", {})
    if not isinstance(properties, dict):
        raise TypeError(f"invalid JSON schema at {place.path}: 'properties' is no object")
    if not properties and "patternProperties" in node:
        raise ValueError(
            f"the object at {place.path} has 'patternProperties' alone, and a ROW has fields with "
            "names"
        )
    more = node.get("additionalProperties")
    if not properties and isinstance(more, dict) and more:
        value = _shape(place.at("additionalProperties"), more)
        return JsonShape("map", Types.MAP(Types.STRING(), value.type_info), (value,))
    parts = tuple(_shape(place.at(name), one) for name, one in properties.items())
    return _row(list(properties), parts, frozenset(node.get("required") or ()))


def _row(names: list[str], parts: tuple[JsonShape, ...], required: frozenset[str]) -> JsonShape:
    type_info = Types.ROW_NAMED(names, [one.type_info for one in parts])
    return JsonShape("object", type_info, parts, required)


def _array(place: _Place, node: dict[str, Any]) -> JsonShape:
    listed, more = node.get("prefixItems"), node.get("items")
    if listed is None and isinstance(more, list):  # up to draft 2019-09
        listed, more = more, node.get("additionalItems")
    if listed is not None:
        if more:
            raise ValueError(
                f"the array at {place.path} has additional items, but their types are not known"
            )
        parts = tuple(_shape(place.at("items"), one) for one in listed)
        return JsonShape("tuple", Types.ROW([one.type_info for one in parts]), parts)
    if more is None:
        raise ValueError(f"the array at {place.path} has no 'items'")
    items = _shape(place.at("items"), more)
    return JsonShape("array", Types.OBJECT_ARRAY(items.type_info), (items,))


def _choice(place: _Place, options: list[Any]) -> JsonShape:
    """Of one of several schemas: one, and null."""
    others = [one for one in options if not _is_null(one)]
    if not others and options:
        return _by_kind(place, {}, "null")
    if len(others) != 1:
        raise ValueError(
            f"the JSON schema at {place.path} allows several types; only one type and null can "
            "be read"
        )
    found = _shape(place, others[0])
    return replace(found, takes_null=True) if len(others) < len(options) else found


def _is_null(option: Any) -> bool:
    return isinstance(option, dict) and option.get("type") == "null"


def _all_of(place: _Place, node: dict[str, Any], options: list[Any]) -> JsonShape:
    """Of a value that all of several schemas take: objects have the fields of all."""
    rest = {name: one for name, one in node.items() if name != "allOf"}
    if "type" in rest or "properties" in rest:
        options = [*options, {"type": "object", **rest}]
    shapes = [_shape(place, one) for one in options]
    if len({one.kind for one in shapes}) == 1 and shapes[0].kind == "object":
        return _merged(place, shapes)
    if len(shapes) == 1 or (shapes and all(one == shapes[0] for one in shapes)):
        return shapes[0]
    raise ValueError(
        f"the JSON schema at {place.path} has 'allOf' of other than objects; only one type can "
        "be read"
    )


def _merged(place: _Place, shapes: list[JsonShape]) -> JsonShape:
    fields: dict[str, JsonShape] = {}
    for name, part in (one for shape in shapes for one in _fields(shape)):
        if name in fields and fields[name].type_info != part.type_info:
            raise ValueError(
                f"the JSON schema at {place.path} has 'allOf' with two types for {name!r}: "
                f"{fields[name].type_info} and {part.type_info}"
            )
        known = fields.get(name, part)
        fields[name] = replace(part, takes_null=part.takes_null and known.takes_null)
    required = frozenset[str]().union(*(one.required for one in shapes))
    found = _row(list(fields), tuple(fields.values()), required)
    return replace(found, takes_null=all(one.takes_null for one in shapes))


def _fields(shape: JsonShape) -> Iterator[tuple[str, JsonShape]]:
    names: Any = shape.type_info
    return zip(names.get_field_names(), shape.parts, strict=True)


def _listed(place: _Place, node: dict[str, Any], word: str) -> list[Any]:
    """The schemas of a word. Those that say nothing of types, such as {"required": ["a"]}, are left out where the node says it."""
    found = node.get(word, [])
    if not isinstance(found, list) or (word in node and not found):
        raise TypeError(f"invalid JSON schema at {place.path}: {word!r} is no list of schemas")
    if "type" in node or "properties" in node:
        return [one for one in found if not isinstance(one, dict) or _SHAPING & one.keys()]
    return found


def _kinds_of_values(place: _Place, node: dict[str, Any]) -> Any:
    """The type, or types, of the values that are listed; or what the words of the schema are about."""
    values = [node["const"]] if "const" in node else node.get("enum")
    if isinstance(values, list) and values:
        kinds = sorted({_KINDS_OF_VALUES[type(one)] for one in values})
        return kinds[0] if len(kinds) == 1 else kinds
    if "properties" in node:
        return "object"
    if "items" in node or "prefixItems" in node:
        return "array"
    raise ValueError(
        f"unsupported type None in the JSON schema at {place.path}: it has no 'type', so it allows "
        "any value"
    )


def _referred(place: _Place, target: Any) -> Any:
    """What a reference names: a JSON Pointer (RFC 6901) as the fragment of a URI."""
    if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
        raise ValueError(
            f"the reference {target!r} at {place.path} is not within the JSON schema: expected "
            "'#/...'. Write what it names into the schema's definitions"
        )
    found = place.root
    for step in unquote(target[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            raise ValueError(f"could not find the reference {target!r} of {place.path}")
    return found


Write: TypeAlias = Callable[[Any], str]


def writer_of(shape: JsonShape) -> Write:
    """Makes the JSON text of a value. It raises ValueError or TypeError, whose text names the field."""
    write = _writer_of(shape)
    if shape.takes_null:
        return lambda value: "null" if value is None else write(value)

    def write_some(value: Any) -> str:
        if value is None:
            raise ValueError(f"the schema does not take null for {shape.type_info}")
        return write(value)

    return write_some


def _writer_of(shape: JsonShape) -> Write:
    if shape.kind == "object":
        return _object_writer(shape)
    if shape.kind == "tuple":
        return _tuple_writer(shape)
    if shape.kind == "array":
        item = writer_of(shape.parts[0])
        return lambda values: f"[{','.join(map(item, items_of(values)))}]"
    if shape.kind == "map":
        value = writer_of(shape.parts[0])
        return _map_writer(value)
    if shape.kind == "string":
        return _string_writer(shape)
    return {"integer": _integer, "number": _number, "boolean": _boolean, "null": _null}[shape.kind]


def _map_writer(value: Write) -> Write:
    def write(entries: Any) -> str:
        pairs = (f"{json_text(_word(key))}:{value(one)}" for key, one in entries.items())
        return f"{{{','.join(pairs)}}}"

    return write


def _object_writer(shape: JsonShape) -> Write:
    row_type: Any = shape.type_info
    names = row_type.get_field_names()
    keys = [json_text(name) for name in names]
    writers = [_writer_of(part) for part in shape.parts]
    nulls = [_of_none(name, part, shape) for name, part in zip(names, shape.parts, strict=True)]

    def write(value: Any) -> str:
        made = []
        for name, key, one, put, null in zip(
            names, keys, fields_of(value, names), writers, nulls, strict=True
        ):
            if one is None:
                text = null()
                if text:
                    made.append(f"{key}:{text}")
                continue
            try:
                made.append(f"{key}:{put(one)}")
            except (TypeError, ValueError, AttributeError) as error:
                raise ValueError(f"{name}: {error}") from error
        return f"{{{','.join(made)}}}"

    return write


def _of_none(name: str, part: JsonShape, shape: JsonShape) -> Callable[[], str]:
    """What a field that is None becomes: null, nothing, or an error."""
    if part.takes_null:
        return lambda: "null"
    if name not in shape.required:
        return lambda: ""

    def refuse() -> str:
        raise ValueError(f"{name}: it is None, and the schema requires a value")

    return refuse


def _tuple_writer(shape: JsonShape) -> Write:
    writers = [writer_of(part) for part in shape.parts]
    names = [f"f{place}" for place in range(len(writers))]

    def write(value: Any) -> str:
        values = zip(writers, fields_of(value, names), strict=True)
        return f"[{','.join(put(one) for put, one in values)}]"

    return write


def _string_writer(shape: JsonShape) -> Write:
    if shape.type_info == Types.STRING():
        return lambda value: json_text(_word(value))
    if shape.type_info == Types.PRIMITIVE_ARRAY(Types.BYTE()):
        return lambda value: f'"{base64.b64encode(value).decode()}"'
    form = formatter_of(shape.type_info, zoned=True)
    return lambda value: json_text(form(value))


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {bounded_repr(value)}")
    return value


def _integer(value: Any) -> str:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"expected a whole number, got {bounded_repr(value)}")
    return str(int(value))


def _number(value: Any) -> str:
    is_number = isinstance(value, Decimal | float) or hasattr(value, "__index__")
    if isinstance(value, bool) or not is_number or not math.isfinite(value):
        raise TypeError(f"expected a finite number, got {bounded_repr(value)}")
    return str(value) if isinstance(value, Decimal) else json_text(value)


def _boolean(value: Any) -> str:
    if not isinstance(value, bool):
        raise TypeError(f"expected a bool, got {bounded_repr(value)}")
    return "true" if value else "false"


def _null(value: Any) -> str:
    raise TypeError(f"expected None, got {bounded_repr(value)}")
