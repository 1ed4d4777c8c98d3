"""Rows of keyed state as keys of a sorted store, and back.

    key group (2 bytes) | length (4) | state key | length (4) | namespace | what the state adds: a map's key, a place in a list
    timers:  key group | length (4) | time (8) | length (4) | state key and namespace, each with its length

The rows of a key group lie together, and so do those of a key in a namespace. State keys and namespaces are stored as their
canonical bytes, and can be read back from them. Does not know databases. Source: Flink RocksDBSerializedCompositeKeyBuilder.
"""

from __future__ import annotations

import datetime as dt
import importlib
import io
import pickle
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from penstock.model.former_modules import present_module, present_name
from penstock.model.row import Row
from penstock.model.time import Instant
from penstock.runtime.keys.encoding import canonical_bytes
from penstock.runtime.keys.hashing import OtherKey
from penstock.runtime.windows import TimeWindow

GROUP: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">I")
_LONG: Final = struct.Struct(">q")
_TIMES: Final = struct.Struct(">qq")
_TIME: Final = struct.Struct(">Q")
_LOWEST: Final = -(2**63)
_INT64: Final = range(-(2**63), 2**63)
_ABOVE_LENGTHS: Final = b"\xff" * _LENGTH.size
_NO_NAMESPACE: Final = _LENGTH.pack(0)


def group_start(group: int) -> bytes:
    """A key below all rows of the key group and above those of the groups before."""
    return GROUP.pack(group)


def window_prefix(group: int, start: int) -> bytes:
    """The prefix of the rows of a window, where rows are ordered by window: the window's start is in the place of the state key."""
    content = encode_plain(start)
    return b"".join((GROUP.pack(group), _LENGTH.pack(len(content)), content))


def above_window(prefix: bytes) -> bytes:
    """A key above all rows with the prefix `window_prefix`, and below those of other windows."""
    return prefix + _ABOVE_LENGTHS


def window_row(group: int, start: int, skey: Any) -> bytes:
    """The row of a state key in a window: the state key is in the place of the namespace."""
    key = _encode_key(skey)
    return b"".join((window_prefix(group, start), _LENGTH.pack(len(key)), key))


def prefix_of(group: int, skey: Any, namespace: bytes) -> bytes:
    """The prefix of all rows of a key in a namespace. `namespace`: as returned by `encode_namespace`."""
    key = _encode_key(skey)
    return b"".join((GROUP.pack(group), _LENGTH.pack(len(key)), key, namespace))


def group_time_row(group: int, timestamp: int, skey: Any, namespace: Any) -> bytes:
    """The row of a timer. The rows of a key group are in the order of their times (epoch ms)."""
    key = _encode_key(skey)
    rest = b"".join((_LENGTH.pack(len(key)), key, encode_namespace(namespace)))
    time = _TIME.pack(timestamp - _LOWEST)
    return b"".join((
        GROUP.pack(group),
        _LENGTH.pack(_TIME.size),
        time,
        _LENGTH.pack(len(rest)),
        rest,
    ))


def time_of(row: bytes) -> int:
    """The time of a timer's row."""
    stored: int = _TIME.unpack_from(row, GROUP.size + _LENGTH.size)[0]
    return stored + _LOWEST


def group_time_row_parts(row: bytes) -> tuple[int, Any, Any]:
    """The time, key and namespace of a timer's row."""
    at = GROUP.size + _LENGTH.size + _TIME.size + _LENGTH.size
    (key_size,) = _LENGTH.unpack_from(row, at)
    at += _LENGTH.size
    key, namespace = row[at : at + key_size], row[at + key_size + _LENGTH.size :]
    return time_of(row), decode_plain(key), decode_namespace(namespace)


def _encode_key(skey: Any) -> bytes:
    return encode_plain(skey) if type(skey) is not OtherKey else b"o" + skey.encoding()


def encode_namespace(namespace: Any) -> bytes:
    """The encoded namespace, with its length before it."""
    if namespace is None:
        return _NO_NAMESPACE
    if type(namespace) is TimeWindow:
        content = b"W" + _TIMES.pack(namespace.start, namespace.end)
    else:
        content = encode_plain(namespace)
    return _LENGTH.pack(len(content)) + content


def encode_plain(value: Any) -> bytes:
    """Equal values of one type have equal bytes. A value without canonical bytes is stored as its pickle."""
    kind = type(value)
    if kind is str:
        return b"s" + str(value).encode("utf-8", "surrogatepass")
    if kind is int and value in _INT64:
        return b"i" + _LONG.pack(value)
    if kind is bytes:
        return b"b" + bytes(value)
    try:
        # The value is wrapped in a tuple, so that None is allowed; the tuple's own bytes are cut
        # off.
        return b"o" + canonical_bytes((value,))[5:]
    except TypeError:
        return b"P" + pickle.dumps(value, protocol=5)


def head_of(row: bytes) -> bytes:
    """The part of a row's key that `prefix_of` made."""
    (key_size,) = _LENGTH.unpack_from(row, GROUP.size)
    at = GROUP.size + _LENGTH.size + key_size
    (namespace_size,) = _LENGTH.unpack_from(row, at)
    return row[: at + _LENGTH.size + namespace_size]


def split(head: bytes) -> tuple[bytes, bytes]:
    """The state key's bytes and the namespace's bytes in a prefix of `prefix_of`."""
    (key_size,) = _LENGTH.unpack_from(head, GROUP.size)
    at = GROUP.size + _LENGTH.size
    return head[at : at + key_size], head[at + key_size + _LENGTH.size :]


def decode_namespace(data: bytes) -> Any:
    """The namespace of its bytes without their length."""
    if not data:
        return None
    return TimeWindow(*_TIMES.unpack_from(data, 1)) if data[:1] == b"W" else decode_plain(data)


def decode_plain(data: bytes) -> Any:
    """The value given to `encode_plain`; a Row comes back without the names of its fields."""
    tag, content = data[:1], data[1:]
    if tag == b"s":
        return content.decode("utf-8", "surrogatepass")
    if tag == b"i":
        return _LONG.unpack(content)[0]
    if tag == b"b":
        return content
    if tag == b"P":
        # Trusted: these bytes were made in this process, or by a job whose pickles are trusted.
        return _Unpickler(io.BytesIO(content)).load()
    return _Decoder(content).next()


class _Decoder:
    """Reads the format of `canonical_bytes`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def next(self) -> Any:
        """The next value. Raises: ValueError for bytes that no encoder writes."""
        tag = chr(self._data[self._at])
        self._at += 1
        decode = _DECODERS.get(tag)
        if decode is None:
            raise ValueError(
                f"stored keys cannot begin with {tag!r}: the state was altered or is damaged"
            )
        return decode(self)

    def sized(self) -> bytes:
        (size,) = _LENGTH.unpack_from(self._data, self._at)
        self._at += _LENGTH.size + size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return self.sized().decode("utf-8", "surrogatepass")

    def double(self) -> float:
        self._at += 8
        value: float = struct.unpack_from(">d", self._data, self._at - 8)[0]
        return value

    def items(self) -> list[Any]:
        (count,) = _LENGTH.unpack_from(self._data, self._at)
        self._at += _LENGTH.size
        return [self.next() for _ in range(count)]


def _enum_member(name: str) -> Any:
    """An enum member given as `module.Class.NAME`. The class may be nested in others."""
    path, _, member = name.rpartition(".")
    return _class_of(path)[member]


class _Unpickler(pickle.Unpickler):
    """Finds classes of Penstock that were in another module when they were pickled."""

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(present_module(module, name), present_name(module, name))


class _KeyUnpickler(_Unpickler):
    """Reads the pickled keys of other classes: see `_KeyPickler` of `runtime/keys/encoding.py`."""

    def persistent_load(self, pid: Any) -> Any:
        return _class_of(pid)


def _class_of(path: str) -> Any:
    """A class given as `module.Class`. The class may be nested in others."""
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        former = ".".join(parts[:length]), parts[length]
        try:
            found: Any = importlib.import_module(present_module(*former))
        except ImportError:
            continue
        for part in (present_name(*former), *parts[length + 1 :]):
            found = getattr(found, part)
        return found
    raise ValueError(f"the class {path} of a key in the state cannot be imported in this process")


_DECODERS: Final[dict[str, Callable[[_Decoder], Any]]] = {
    "N": lambda _: None,
    "T": lambda _: True,
    "F": lambda _: False,
    "E": lambda decoder: _enum_member(decoder.text()),
    "i": lambda decoder: int.from_bytes(decoder.sized(), "big", signed=True),
    "d": _Decoder.double,
    "s": _Decoder.text,
    "b": _Decoder.sized,
    "(": lambda decoder: tuple(decoder.items()),
    "R": lambda decoder: Row(*decoder.items()),
    "D": lambda decoder: Decimal(decoder.text()),
    "t": lambda decoder: dt.datetime.fromisoformat(decoder.text()),
    "a": lambda decoder: dt.date.fromisoformat(decoder.text()),
    "h": lambda decoder: dt.time.fromisoformat(decoder.text()),
    "l": lambda decoder: dt.timedelta(*decoder.items()),
    "I": lambda decoder: Instant(*decoder.items()),
    "[": _Decoder.items,
    "{": lambda decoder: dict(decoder.items()),
    "<": lambda decoder: frozenset(decoder.items()),
    ">": lambda decoder: set(decoder.items()),
    "P": lambda decoder: _KeyUnpickler(io.BytesIO(decoder.sized())).load(),
}
