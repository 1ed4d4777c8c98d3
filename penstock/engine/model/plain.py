"""Turns objects into plain data that JSON can carry, and back, by the fields and type hints of their classes.

For settings that go from the driver to a process, whose classes it does not know. Supported type hints are dataclasses,
named tuples, enums, bytes, numbers, texts, None, `X | None`, tuples, lists, mappings with texts as keys, and
combinations of these. The standard library does only half of this (`asdict` has no reverse).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from penstock.engine.model.errors import EngineBug

T = TypeVar("T")

_SCALARS: Final = (bool, int, float, str, type(None))


class NotPlain(EngineBug):
    """An object cannot become plain data, or plain data does not fit the class as which it is read."""


def to_plain(value: object) -> Any:
    """The object as dicts, lists and scalars. Raises: NotPlain."""
    if isinstance(value, Enum):
        return to_plain(value.value)
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {_text_key(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    raise NotPlain(
        f"{type(value).__name__} {value!r} cannot become plain data. Give the field one of the types "
        "that penstock.engine.model.plain names."
    )


def from_plain(cls: type[T], data: object, where: str = "") -> T:
    """The object that was given to `to_plain`. `where`: the name of the place in errors; empty: the class's name.

    Raises: NotPlain: a field is missing, unknown or of another type.
    """
    hint: Any = cls
    found: T = _reader(hint)(data, where or getattr(cls, "__name__", str(cls)))
    return found


_Reader = Callable[[object, str], Any]


@cache
def _reader(hint: Any) -> _Reader:
    if isinstance(hint, NewType):
        return _reader(hint.__supertype__)
    if get_origin(hint) is not None:
        return _generic(hint, get_origin(hint), get_args(hint))
    if is_dataclass(hint):
        return lambda data, where: _dataclass(hint, data, where)
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        inner = _tuple_of(tuple(get_type_hints(hint).values()))
        return lambda data, where: hint(*inner(data, where))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda data, where: _by_value(hint, data, where)
    return _scalar(hint)


def _generic(hint: Any, origin: Any, given: tuple[Any, ...]) -> _Reader:
    if origin in {Union, types.UnionType}:
        return _optional(hint, given)
    if origin is tuple:
        return _tuple_of(given)
    if origin in {list, Sequence}:
        return lambda data, where: _items(given[0], data, where)
    if origin in {dict, Mapping}:
        return _mapping_of(hint, given)
    raise _no_reader(hint)


def _scalar(hint: Any) -> _Reader:
    if hint is bytes:
        return _bytes
    if hint is float:
        return lambda data, where: float(_checked((int, float), data, where))
    if hint in _SCALARS:
        return lambda data, where: _checked((hint,), data, where)
    raise _no_reader(hint)


def _no_reader(hint: Any) -> NotPlain:
    return NotPlain(
        f"{hint!r} cannot be read from plain data. Give the field one of the types that "
        "penstock.engine.model.plain names."
    )


def _optional(hint: Any, given: tuple[Any, ...]) -> _Reader:
    rest = [one for one in given if one is not types.NoneType]
    if len(rest) != 1 or len(given) != 2:
        raise NotPlain(f"{hint} cannot be read from plain data: of all unions only `X | None` can.")
    inner = _reader(rest[0])
    return lambda data, where: None if data is None else inner(data, where)


def _tuple_of(given: tuple[Any, ...]) -> _Reader:
    if len(given) == 2 and given[1] is ...:
        return lambda data, where: tuple(_items(given[0], data, where))

    def read(data: object, where: str) -> tuple[Any, ...]:
        items = _list(data, where)
        if len(items) != len(given):
            raise _unfit(data, where, f"{len(given)} items")
        pairs = enumerate(zip(given, items, strict=True))
        return tuple(_reader(hint)(item, f"{where}[{place}]") for place, (hint, item) in pairs)

    return read


def _mapping_of(hint: Any, given: tuple[Any, ...]) -> _Reader:
    if given[0] is not str:
        raise NotPlain(f"{hint} cannot be read from plain data: keys must be texts.")

    def read(data: object, where: str) -> dict[str, Any]:
        inner = _reader(given[1])
        return {key: inner(item, f"{where}[{key!r}]") for key, item in _dict(data, where).items()}

    return read


def _dataclass(cls: Any, data: object, where: str) -> Any:
    values, hints = _dict(data, where), _hints(cls)
    known = [field for field in fields(cls) if field.init]
    unknown = values.keys() - {field.name for field in known}
    missing = [field.name for field in known if field.name not in values]
    if unknown or missing:
        parts = [f"unknown: {', '.join(sorted(unknown))}"] if unknown else []
        parts += [f"missing: {', '.join(missing)}"] if missing else []
        raise NotPlain(
            f"the data does not fit {where}: {'; '.join(parts)}. Expected one field for each of "
            f"{cls.__qualname__}. Check that both sides run the same version of Penstock."
        )
    return cls(**{
        name: _reader(hints[name])(item, f"{where}.{name}") for name, item in values.items()
    })


@cache
def _hints(cls: Any) -> Mapping[str, Any]:
    return get_type_hints(cls)


def _items(hint: Any, data: object, where: str) -> list[Any]:
    inner = _reader(hint)
    return [inner(item, f"{where}[{place}]") for place, item in enumerate(_list(data, where))]


def _by_value(cls: type[Enum], data: object, where: str) -> Enum:
    try:
        return cls(data)
    except ValueError:
        expected = ", ".join(repr(one.value) for one in cls)
        raise _unfit(data, where, f"one of {expected}") from None


def _bytes(data: object, where: str) -> bytes:
    try:
        return bytes.fromhex(_checked((str,), data, where))
    except ValueError:
        raise _unfit(data, where, "bytes as hexadecimal digits") from None


def _checked(kinds: tuple[type, ...], data: object, where: str) -> Any:
    """Whether the value has this type; a bool does not count as a number."""
    is_bool_as_number = isinstance(data, bool) and bool not in kinds
    if not isinstance(data, kinds) or is_bool_as_number:
        raise _unfit(data, where, " or ".join(kind.__name__ for kind in kinds))
    return data


def _list(data: object, where: str) -> Sequence[Any]:
    found: Sequence[Any] = _checked((list, tuple), data, where)
    return found


def _dict(data: object, where: str) -> dict[str, Any]:
    found: dict[str, Any] = _checked((dict,), data, where)
    return found


def _text_key(key: object) -> str:
    if isinstance(key, str):
        return key
    raise NotPlain(f"a mapping with the key {key!r} cannot become plain data: keys must be texts.")


def _unfit(data: object, where: str, expected: str) -> NotPlain:
    return NotPlain(f"{where} is {data!r}, expected {expected}.")
