"""Keys of any kind as bytes that are the same in every process. Keys are hashed by these bytes, and RocksDB stores keys as these bytes.

Two keys have the same bytes if and only if they are the same key: 1, 1.0 and True are three keys. Does not compute hashes.
"""

from __future__ import annotations

import datetime as dt
import io
import pickle
import struct
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import numpy as np

from penstock.model.former_modules import first_module
from penstock.model.row import Row
from penstock.model.texts.bounded_text import bounded_repr
from penstock.model.time import Instant

_DOUBLE: Final = struct.Struct(">d")


_DOUBLE_BITS: Final = struct.Struct(">Q")


NAN_BITS: Final = 0x7FF8000000000000


CHANGEABLE: Final = b""
"""Marks, among the parts of a key's encoding, that the key contains an object that can be changed in place."""


_NONE: Final = (
    "a key must not be None; make the key selector return another value, or filter before key_by"
)


class NoneKey(TypeError):
    """A key is None."""


def canonical_bytes(key: Any) -> bytes:
    """The identity of a key as bytes: a tag, then the content, preceded by its length if that varies.

    Two keys are one key exactly when these bytes are equal. The field names and the kind of a Row do
    not count. The Decimals 1.0 and 1.00 differ. Dicts and sets have no order. Objects of other classes are one key when
    their classes have the same name and their pickled content is equal.
    Raises: TypeError for None (at the top level) and for a value that cannot be pickled.
    """
    return b"".join(parts_of(key))


def parts_of(key: Any) -> list[bytes]:
    if key is None:
        raise NoneKey(_NONE)
    out: list[bytes] = []
    _encode(key, out.append)
    return out


def double_bits(value: float) -> int:
    if value != value:  # ruff: ignore[comparison-with-itself] - NaN; every NaN is one key, as for Java's Double
        return NAN_BITS
    bits: int = _DOUBLE_BITS.unpack(_DOUBLE.pack(value))[0]
    return bits


def _sized(tag: bytes, content: bytes) -> bytes:
    return tag + len(content).to_bytes(4, "big") + content


def _encode_int(key: int, put: Callable[[bytes], Any]) -> None:
    put(_sized(b"i", int(key).to_bytes(key.bit_length() // 8 + 1, "big", signed=True)))


def _encode_items(tag: bytes, items: Sequence[Any], put: Callable[[bytes], Any]) -> None:
    put(tag + len(items).to_bytes(4, "big"))
    for item in items:
        _encode(item, put)


def _encode_enum(key: Enum, put: Callable[[bytes], Any]) -> None:
    kind = type(key)
    put(_sized(b"E", f"{_path_of(kind)}.{key.name}".encode()))


def _encode_list(key: list[Any], put: Callable[[bytes], Any]) -> None:
    put(CHANGEABLE)
    _encode_items(b"[", key, put)


def _encode_unordered(tag: bytes, items: Iterable[Any], put: Callable[[bytes], Any]) -> None:
    put(CHANGEABLE)
    parts = []
    for item in items:
        out: list[bytes] = []
        _encode(item, out.append)
        parts.append(b"".join(out))
    put(tag + len(parts).to_bytes(4, "big") + b"".join(sorted(parts)))


class _KeyPickler(pickle.Pickler):
    """Pickles equal objects to equal bytes. Shared parts make no difference (`fast` keeps no memo); classes are
    written as their names.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.fast = True

    def persistent_id(self, obj: Any) -> str | None:
        return _path_of(obj) if isinstance(obj, type) else None


def _path_of(kind: type) -> str:
    """The path of a class when keys were first hashed: if a class of Penstock moves, its keys stay in their key groups."""
    return f"{first_module(kind.__module__)}.{kind.__qualname__}"


def _encode_object(key: Any, put: Callable[[bytes], Any]) -> None:
    file = io.BytesIO()
    try:
        _KeyPickler(file).dump(key)
    except Exception as error:
        # The pickling code of user classes may raise anything.
        raise TypeError(
            f"a key cannot contain a value of type {type(key).__qualname__}, which cannot be pickled ({error}): "
            f"{bounded_repr(key, 200)}. Let the key selector return a str, int, tuple or Row that identifies the key."
        ) from error
    put(CHANGEABLE)
    put(_sized(b"P", file.getvalue()))


_ENCODERS: Final[list[tuple[Any, Callable[[Any, Callable[[bytes], Any]], Any]]]] = [
    (type(None), lambda _key, put: put(b"N")),
    (bool, lambda key, put: put(b"T" if key else b"F")),
    (Enum, _encode_enum),
    (int, _encode_int),
    (float, lambda key, put: put(b"d" + double_bits(key).to_bytes(8, "big"))),
    (str, lambda key, put: put(_sized(b"s", key.encode("utf-8", "surrogatepass")))),
    (bytes, lambda key, put: put(_sized(b"b", key))),
    (tuple, lambda key, put: _encode_items(b"(", key, put)),
    (Row, lambda key, put: _encode_items(b"R", list(key), put)),
    (Decimal, lambda key, put: put(_sized(b"D", str(key).encode()))),
    (dt.datetime, lambda key, put: put(_sized(b"t", key.isoformat().encode()))),
    (dt.date, lambda key, put: put(_sized(b"a", key.isoformat().encode()))),
    (dt.time, lambda key, put: put(_sized(b"h", key.isoformat().encode()))),
    (dt.timedelta, lambda key, put: _encode_items(b"l", (key.days, key.seconds, key.microseconds), put)),
    (Instant, lambda key, put: _encode_items(b"I", (key.seconds, key.nanos), put)),
    (np.generic, lambda key, put: _encode(key.item(), put)),
    (list, _encode_list),
    (dict, lambda key, put: _encode_unordered(b"{", key.items(), put)),
    (frozenset, lambda key, put: _encode_unordered(b"<", key, put)),
    (set, lambda key, put: _encode_unordered(b">", key, put)),
    (object, _encode_object),
]  # fmt: skip


_ENCODER_OF: Final = dict(_ENCODERS)


def _encode(key: Any, put: Callable[[bytes], Any]) -> None:
    encoder = _ENCODER_OF.get(type(key))
    if encoder is None:
        encoder = next(found for kind, found in _ENCODERS if isinstance(key, kind))
    encoder(key, put)
