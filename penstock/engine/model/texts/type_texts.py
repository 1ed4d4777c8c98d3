"""Types as JSON, and as a program writes them: how state remembers its types, and how messages name them.

Does not know state. A type that a user or a format has defined is known by its class and its text alone.
Source: Flink TypeSerializerSnapshot; differs: the declared type is written, not a serializer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from penstock.engine.model import types as t
from penstock.engine.model.errors import GraphError
from penstock.engine.model.type_information import LocalTimeTypeInfo

TypeText: TypeAlias = "str | list[Any]"
"""A type as JSON: a name, or a list of a name and the parts of the type."""

_SCALARS: Final = (bool, int, float, str, type(None))
_PLAIN: Final[Mapping[str, Callable[[], t.TypeInformation]]] = {
    **{kind.name: getattr(t.Types, kind.name) for kind in t.BasicType},
    "SQL_DATE": t.Types.SQL_DATE,
    "SQL_TIME": t.Types.SQL_TIME,
    "SQL_TIMESTAMP": t.Types.SQL_TIMESTAMP,
    "TIMESTAMP_LTZ": t.Types.TIMESTAMP_LTZ,
    "PICKLED_BYTE_ARRAY": t.Types.PICKLED_BYTE_ARRAY,
}
_OF_ELEMENTS: Final[Mapping[str, type[t.ElementTypeInfo]]] = {
    "LIST": t.ListTypeInfo,
    "BASIC_ARRAY": t.BasicArrayTypeInfo,
    "PRIMITIVE_ARRAY": t.PrimitiveArrayTypeInfo,
    "OBJECT_ARRAY": t.ObjectArrayTypeInfo,
    "EXTERNAL": t.ExternalTypeInfo,
}
_NAME_OF: Final = {made(): name for name, made in _PLAIN.items()}
_ELEMENTS_NAME_OF: Final = {kind: name for name, kind in _OF_ELEMENTS.items()}


class NamedTypeInfo(t.TypeInformation):
    """A type that is only known by the name of its class and its text."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    def parts(self) -> tuple[Any, ...]:
        return (self.path, self.text)

    def __str__(self) -> str:
        return self.text


def type_text(  # ruff: ignore[too-many-return-statements] - a dispatch by type
    type_info: t.TypeInformation,
) -> TypeText:
    """The type as JSON. Equal types have equal texts."""
    kind = type(type_info)
    if (plain := _NAME_OF.get(type_info)) is not None:
        return plain
    if isinstance(type_info, t.ElementTypeInfo) and kind in _ELEMENTS_NAME_OF:
        return [_ELEMENTS_NAME_OF[type(type_info)], type_text(type_info.element_type)]
    if isinstance(type_info, t.RowTypeInfo):
        names = type_info.get_field_names() if type_info.has_names else None
        return ["ROW", names, [type_text(one) for one in type_info.get_field_types()]]
    if isinstance(type_info, t.TupleTypeInfo):
        return ["TUPLE", [type_text(one) for one in type_info.get_field_types()]]
    if isinstance(type_info, t.MapTypeInfo):
        return ["MAP", type_text(type_info.key_type), type_text(type_info.value_type)]
    if isinstance(type_info, t.DecimalTypeInfo):
        return ["DECIMAL", type_info.precision, type_info.scale]
    if isinstance(type_info, LocalTimeTypeInfo):
        return ["LOCAL", str(type_info)]
    if isinstance(type_info, NamedTypeInfo):
        return ["OTHER", type_info.path, type_info.text]
    return ["OTHER", f"{kind.__module__}.{kind.__qualname__}", str(type_info)]


def type_of_text(  # ruff: ignore[too-many-return-statements] - a dispatch by type
    text: TypeText,
) -> t.TypeInformation:
    """The type of a text that `type_text` made. Raises: ValueError: it is none."""
    if isinstance(text, str) and text in _PLAIN:
        return _PLAIN[text]()
    match text:
        case ["ROW", names, fields]:
            return t.RowTypeInfo([type_of_text(one) for one in fields], names)
        case ["TUPLE", fields]:
            return t.TupleTypeInfo([type_of_text(one) for one in fields])
        case ["MAP", key, value]:
            return t.MapTypeInfo(type_of_text(key), type_of_text(value))
        case ["DECIMAL", int(precision), int(scale)]:
            return t.DecimalTypeInfo(precision, scale)
        case ["LOCAL", name]:
            return _LOCAL[name]
        case ["OTHER", path, shown]:
            return NamedTypeInfo(path, shown)
        case [str(name), element] if name in _OF_ELEMENTS:
            return _OF_ELEMENTS[name](type_of_text(element))
    raise ValueError(
        f"{text!r:.200} is no type: the state was written by a newer Penstock, or it is damaged"
    )


_LOCAL: Final = {str(made): made for made in map(LocalTimeTypeInfo, LocalTimeTypeInfo.TimeType)}


def text_with_defaults(type_info: t.TypeInformation) -> str:
    """The type as one string, which can be sent: with the defaults of the fields of a ROW, unlike `type_text`.

    Raises: GraphError: a default is neither None nor a number, a text or a truth value.
    """
    return json.dumps([type_text(type_info), _defaults_of(type_info)])


def type_with_defaults(text: str) -> t.TypeInformation:
    """The type of a text that `text_with_defaults` made. Raises: ValueError: it is none."""
    found, defaults = json.loads(text)
    type_info = type_of_text(found)
    if defaults is not None:
        _give_defaults(type_info, defaults)
    return type_info


def _inner(type_info: t.TypeInformation) -> list[t.TypeInformation]:
    if isinstance(type_info, t.RowTypeInfo | t.TupleTypeInfo):
        return type_info.get_field_types()
    if isinstance(type_info, t.MapTypeInfo):
        return [type_info.key_type, type_info.value_type]
    return [type_info.element_type] if isinstance(type_info, t.ElementTypeInfo) else []


def _defaults_of(type_info: t.TypeInformation) -> list[Any]:
    """The defaults of the type itself, and those of its parts."""
    own = dict(type_info.defaults) if isinstance(type_info, t.RowTypeInfo) else {}
    for name, value in own.items():
        if not isinstance(value, _SCALARS):
            raise GraphError(
                f"field {name!r} of a key has the default {value!r:.100} of class "
                f"{type(value).__qualname__}. In the type of a key, with_defaults takes None, "
                "numbers, texts and truth values."
            )
    return [own, [_defaults_of(one) for one in _inner(type_info)]]


def _give_defaults(type_info: t.TypeInformation, defaults: list[Any]) -> None:
    own, inner = defaults
    if isinstance(type_info, t.RowTypeInfo) and own:
        type_info.defaults = own
    for one, below in zip(_inner(type_info), inner, strict=True):
        _give_defaults(one, below)


def shown_type(type_info: t.TypeInformation | None) -> str:
    """The type as a program writes it, without `Types.`: LONG, TUPLE(LONG, STRING), ROW(a: LONG)."""
    if type_info is None:
        return "a type that is not known"
    if t.is_pickled(type_info):
        return "undeclared (PICKLED_BYTE_ARRAY)"
    return _shown(type_text(type_info))


def _shown(text: TypeText) -> str:  # ruff: ignore[too-many-return-statements] - a dispatch by type
    match text:
        case str():
            return text
        case ["ROW", None, fields]:
            return f"ROW({', '.join(map(_shown, fields))})"
        case ["ROW", names, fields]:
            pairs = zip(names, map(_shown, fields), strict=True)
            return f"ROW({', '.join(f'{name}: {field}' for name, field in pairs)})"
        case ["TUPLE", fields]:
            return f"TUPLE({', '.join(map(_shown, fields))})"
        case ["DECIMAL", precision, scale]:
            return f"DECIMAL({precision}, {scale})"
        case ["LOCAL", name] | ["OTHER", _, name]:
            return str(name)
        case [name, *parts]:
            return f"{name}({', '.join(map(_shown, parts))})"
    return str(text)
