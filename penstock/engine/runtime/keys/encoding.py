"""Keys of any kind as bytes that are the same in every process. Keys are hashed by these bytes, and RocksDB stores keys as these bytes.

Two keys have the same bytes if and only if they are the same key: of one class, and equal by Python's `==`. Items of a key are
compared in the same way, so 1, 1.0 and True differ, and (1,) and (1.0,) too. Three things are decided here: every NaN of a class is one
value; a scalar of numpy counts as the Python value that it stands for; and an object of a subclass without an `==` of its own counts
as one of the class whose `==` it has. A class whose `==` cannot be read is refused. Does not compute hashes.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, Flag
from types import FunctionType
from typing import Any, Final, TypeAlias

import numpy as np

from penstock.engine.model.row import Row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.keys.equality import Content, compared_by, content_of

_DOUBLE: Final = struct.Struct(">d")
_DOUBLE_BITS: Final = struct.Struct(">Q")
NAN_BITS: Final = 0x7FF8000000000000
_NONE: Final = (
    "A key must not be None: make the key selector return another value, or filter such records "
    "before key_by"
)
_INSTEAD: Final = (
    "Let the key selector return a tuple of the fields that identify the key, or, if the class is "
    "yours, make it a dataclass without an __eq__ of its own"
)
_SHOWN: Final = 200
_EXTENDED: Final = (np.longdouble, np.clongdouble, np.void, np.object_)


class RefusedKey(TypeError):
    """A value cannot be a key. `key`: the whole key; the text says why."""

    key: Any = None


class Parts(list[bytes]):
    """The encoding of a key, piece by piece.

    `is_exact`: the bytes alone give the key back, and not only one that equals it. `is_changeable`: the key contains an object that can
    be changed in place. `classes`: those that the bytes name.
    """

    __slots__ = ("classes", "is_changeable", "is_exact")

    def __init__(self) -> None:
        super().__init__()
        self.is_exact = True
        self.is_changeable = False
        self.classes: list[type] = []

    def joined(self) -> bytes:
        return b"".join(self)


Encoder: TypeAlias = Callable[[Any, Parts], None]


def canonical_bytes(key: Any) -> bytes:
    """The identity of a key as bytes: a tag, then the content, preceded by its length if that varies.

    Raises: RefusedKey for None (at the top level), and for a value whose class gives no such bytes.
    """
    return parts_of(key).joined()


def parts_of(key: Any) -> Parts:
    """`canonical_bytes` in parts. Raises: RefusedKey."""
    if key is None:
        raise RefusedKey(_NONE)
    out = Parts()
    try:
        encode(key, out)
    except RefusedKey as error:
        error.key = key
        raise
    return out


def double_bits(value: float) -> int:
    """The bits of a double. 0.0 and -0.0 are one key, and so are all NaN."""
    if value != value:  # ruff: ignore[comparison-with-itself] - NaN
        return NAN_BITS
    bits: int = _DOUBLE_BITS.unpack(_DOUBLE.pack(value + 0.0))[0]
    return bits


def encode(key: Any, out: Parts) -> None:
    """Append the encoding of a value, which may be None. Raises: RefusedKey."""
    kind = type(key)
    encoder = _ENCODER_OF.get(kind)
    if encoder is None:
        encoder = _ENCODER_OF[kind] = _encoder_for(kind)
    encoder(key, out)


def has_own_equality(kind: type) -> bool:
    """Whether objects of a subclass of str, int, float or tuple are not compared as those of its base."""
    return _owner_of_equality(kind) not in _PLAIN_BASES


def _sized(tag: bytes, content: bytes) -> bytes:
    return tag + len(content).to_bytes(4, "big") + content


def _encode_int(key: int, out: Parts) -> None:
    value = int(key)
    out.append(_sized(b"i", value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)))


def _encode_float(key: float, out: Parts) -> None:
    if key == 0:
        out.is_exact = False
    out.append(b"d" + double_bits(float(key)).to_bytes(8, "big"))


def _encode_items(tag: bytes, items: Sequence[Any], out: Parts) -> None:
    out.append(tag + len(items).to_bytes(4, "big"))
    for item in items:
        encode(item, out)


def _encode_unordered(tag: bytes, items: Iterable[Any], out: Parts) -> None:
    encoded = []
    for item in items:
        part = Parts()
        encode(item, part)
        out.is_changeable |= part.is_changeable
        out.classes += part.classes
        encoded.append(part.joined())
    out.is_exact = False
    out.append(tag + len(encoded).to_bytes(4, "big") + b"".join(sorted(encoded)))


def _content_encoder(tag: bytes, content: Content, *, is_changeable: bool = False) -> Encoder:
    """An encoder for values that are equal if and only if their contents are."""

    def encode_content(key: Any, out: Parts) -> None:
        try:
            found = content(key)
        except (TypeError, ValueError, OverflowError) as error:
            raise RefusedKey(f"{bounded_repr(key, _SHOWN)} cannot be in a key: {error}") from error
        out.is_exact = False
        out.is_changeable |= is_changeable
        out.append(tag)
        encode(found, out)

    return encode_content


def _inexact(encoder: Encoder) -> Encoder:
    def encode_inexactly(key: Any, out: Parts) -> None:
        out.is_exact = False
        encoder(key, out)

    return encode_inexactly


def _changeable(encoder: Encoder) -> Encoder:
    def encode_changeable(key: Any, out: Parts) -> None:
        out.is_changeable = True
        encoder(key, out)

    return _inexact(encode_changeable)


def _of_row(row: Row) -> tuple[Any, ...]:
    """What `Row.__eq__` compares: the kind, and the values by their names, whatever their order."""
    values, names = tuple(row), row._fields
    if names is not None and len(set(names)) == len(names) == len(values):
        by_name = sorted(zip(names, values, strict=True), key=lambda pair: pair[0])
        names, values = tuple(name for name, _ in by_name), tuple(value for _, value in by_name)
    return row.get_row_kind().value, names, values


# ------------------------------------------------------------------------------- classes of users


def path_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _named(kind: type, encoder: Encoder) -> Encoder:
    """An encoder whose bytes have the class by its path."""

    def encode_named(key: Any, out: Parts) -> None:
        out.classes.append(kind)
        encoder(key, out)

    return encode_named


def _owner_of_equality(kind: type) -> type:
    """The class that defines the `==` of this class."""
    return next(base for base in kind.__mro__ if "__eq__" in base.__dict__)


def _encoder_for(kind: type) -> Encoder:
    if issubclass(kind, Enum):
        make = _flag_encoder if issubclass(kind, Flag) else _enum_encoder
        return _named(kind, make(kind))
    if (known := content_of(kind)) is not None:
        return _content_encoder(*known)
    if issubclass(kind, np.generic):
        return _refuse_scalar if issubclass(kind, _EXTENDED) else _encode_scalar
    owner = _owner_of_equality(kind)
    if owner in _BUILT_IN:
        return _inexact(_BUILT_IN[owner])
    if (known := content_of(owner)) is not None:
        return _content_encoder(*known)
    return _named(kind, _users_encoder(kind, owner))


def _users_encoder(kind: type, owner: type) -> Encoder:
    compared = _compared_fields(owner)
    if compared is not None:
        return _dataclass_encoder(kind, compared)
    read = compared_by(owner)
    if read is None:
        return _refuse
    return _content_encoder(_sized(b"O", path_of(kind).encode()), read, is_changeable=True)


def _enum_encoder(kind: type[Enum]) -> Encoder:
    """Members that are equal have one name: that of the first of them."""
    path = path_of(kind)
    members = list(kind)

    def encode_member(key: Enum, out: Parts) -> None:
        first = next((one for one in members if one == key), None)
        if first is None:
            raise RefusedKey(
                f"{bounded_repr(key, _SHOWN)} cannot be in a key: it is no member of "
                f"{kind.__qualname__}, as what _missing_() makes, so nothing "
                "says which other one equals it. Let the key selector return its value, or make "
                "a member for what is not known"
            )
        out.is_exact = False
        out.append(_sized(b"E", f"{path}.{first.name}".encode()))

    return encode_member


def _flag_encoder(kind: type[Enum]) -> Encoder:
    """A flag is its bits: one that is no combination of members has no name."""
    path = path_of(kind)
    if _owner_of_equality(kind) not in (object, int):
        return _refuse
    return _content_encoder(_sized(b"F", path.encode()), lambda key: key.value)


def _encode_scalar(key: np.generic, out: Parts) -> None:
    out.is_exact = False
    encode(key.item(), out)


def _refuse_scalar(key: np.generic, _out: Parts) -> None:
    raise RefusedKey(
        f"{bounded_repr(key, _SHOWN)} cannot be in a key: {type(key).__qualname__} of numpy has no "
        "value of Python that equals it always; convert it, for example with float()"
    )


def _dataclass_encoder(kind: type, compared: tuple[str, ...]) -> Encoder:
    path = path_of(kind)
    parameters: Any = getattr(kind, "__dataclass_params__", None)
    return _content_encoder(
        _sized(b"O", path.encode()),
        lambda key: tuple(getattr(key, name) for name in compared),
        is_changeable=not parameters.frozen,
    )


def _compared_fields(owner: type) -> tuple[str, ...] | None:
    """The fields that the `==` and the hash of a dataclass read; None: the class has written its `==` itself."""
    equality = owner.__dict__["__eq__"]
    if "__dataclass_fields__" not in owner.__dict__ or not isinstance(equality, FunctionType):
        return None
    fields = dataclasses.fields(owner)
    names = [field.name for field in fields if field.compare]
    made: Any = dataclasses.make_dataclass("Made", [(name, object) for name in names])
    code, expected = equality.__code__, made.__eq__.__code__
    # The code that `dataclass` generates for these fields, so the class has not written another.
    if (code.co_code, code.co_names) != (expected.co_code, expected.co_names):
        return None
    return tuple(field.name for field in fields if field.compare or field.hash)


def _refuse(key: Any, _out: Parts) -> None:
    kind = type(key)
    equality = _owner_of_equality(kind).__dict__["__eq__"]
    if equality is object.__eq__:
        why = "has no __eq__, so no two of its objects are equal, and no record would find the state of another"
    elif not isinstance(equality, FunctionType):
        why = "has an == that is not written in Python, so that what it compares cannot be read"
    else:
        why = (
            "has an __eq__ of its own that does more than compare attributes of two objects by ==, "
            "so that no bytes follow from it that are the same for equal objects in every process"
        )
    raise RefusedKey(
        f"{bounded_repr(key, _SHOWN)} cannot be in a key: class {path_of(kind)} {why}. {_INSTEAD}"
    )


_PLAIN_BASES: Final = frozenset({str, int, float, bytes, tuple})


_BUILT_IN: Final[dict[type, Encoder]] = {
    type(None): lambda _key, out: out.append(b"N"),
    bool: lambda key, out: out.append(b"T" if key else b"F"),
    int: _encode_int,
    float: _encode_float,
    str: lambda key, out: out.append(_sized(b"s", key.encode("utf-8", "surrogatepass"))),
    bytes: lambda key, out: out.append(_sized(b"b", key)),
    tuple: lambda key, out: _encode_items(b"(", key, out),
    Row: _content_encoder(b"R", _of_row, is_changeable=True),
    list: _changeable(lambda key, out: _encode_items(b"[", key, out)),
    dict: _changeable(lambda key, out: _encode_unordered(b"{", key.items(), out)),
    frozenset: lambda key, out: _encode_unordered(b"<", key, out),
    set: _changeable(lambda key, out: _encode_unordered(b">", key, out)),
    bytearray: _changeable(lambda key, out: out.append(_sized(b"Y", key))),
}  # fmt: skip


_ENCODER_OF: Final = dict(_BUILT_IN)
"""The encoders of all classes that keys have had."""
