"""Values as JSON that a JSON Schema takes, as far as types, required fields and null go. Does not know messages.

A field that is None is written as null where the schema takes null, and left out where it does not.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from penstock.common.typeinfo import Types
from penstock.engine.model.row import Row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.formats.json_schema import JsonShape
from penstock.formats.json_texts import json_text
from penstock.formats.text_values import formatter_of

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
        return lambda values: f"[{','.join(map(item, _items(values)))}]"
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
            names, keys, _values_of(value, names), writers, nulls, strict=True
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
        values = zip(writers, _values_of(value, names), strict=True)
        return f"[{','.join(put(one) for put, one in values)}]"

    return write


def _values_of(value: Any, names: list[str]) -> list[Any]:
    """A dict by names, anything else by position."""
    if isinstance(value, Mapping):
        strange = next((name for name in value if name not in names), None)
        if strange is not None:
            raise ValueError(f"the schema has no field {strange!r}, only {names}")
        return [value.get(name) for name in names]
    if not isinstance(value, Row | tuple | list):
        raise TypeError(
            f"expected a Row, a tuple or a dict with {names}, got {bounded_repr(value)}"
        )
    values = list(value)
    if len(values) != len(names):
        raise ValueError(f"expected {len(names)} fields {names}, got {bounded_repr(value)}")
    return values


def _items(value: Any) -> Any:
    # Texts and dicts have items too, but nobody means them.
    if isinstance(value, str | bytes | bytearray | Mapping):
        raise TypeError(f"expected a list, got {bounded_repr(value)}")
    return value


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
