"""Keyed state as rows of a sorted store, and back: their keys, and raw values of each kind of state.

    key group (2 bytes) | length (4) | state key | length (4) | namespace | what the state adds: a map's key, a place in a list
    timers:  key group | length (4) | time (8) | length (4) | state key and namespace, each with its length

The rows of a key group lie together, and so do those of a key in a namespace. State keys and namespaces are stored as
their canonical bytes. Where these give back only a key that equals the one that was stored, Decimal("5") for
Decimal("5.00"), the value of the row ends with the pickled key.

A value, a reduced value and an accumulator are one row. A map has a row for each entry: (key, value). A list has a row
for each `add` or `add_all`, numbered in order, so that adding need not read anything. With TTL a row begins with the
last access in 8 bytes, before the pickled content, so that clean-up need not unpickle. Does not know databases or the
current key. Source: Flink RocksDBSerializedCompositeKeyBuilder, RocksDBValueState, RocksDBListState, RocksDBMapState;
differs: RocksDB merges nothing, lists are rows.
"""

from __future__ import annotations

import pickle
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from penstock.engine.runtime.keys.encoding import Parts, RefusedKey, encode
from penstock.engine.runtime.keys.hashing import OtherKey, original_key, state_key
from penstock.engine.runtime.records.frozen import Dumps, Loads
from penstock.engine.runtime.state.map_entries import entries_of
from penstock.engine.runtime.state.snapshot import StateInfo
from penstock.engine.runtime.state.timer_queues import TIMERS
from penstock.engine.runtime.state.window_tables import LIST_WINDOWS, WINDOW_KINDS
from penstock.engine.runtime.windows import CountWindow, GlobalWindow, TimeWindow

GROUP: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">I")
_LONG: Final = struct.Struct(">q")
_TIMES: Final = struct.Struct(">qq")
_TIME: Final = struct.Struct(">Q")
_LOWEST: Final = -(2**63)
_INT64: Final = range(-(2**63), 2**63)
_ABOVE_LENGTHS: Final = b"\xff" * _LENGTH.size
_NO_NAMESPACE: Final = _LENGTH.pack(0)
_WITH_KEY: Final = b"K"
"""Ends the value of a row that has its key. Other values are empty or pickles, which end with a full stop."""


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
    key = encode_key(skey)
    return b"".join((window_prefix(group, start), _LENGTH.pack(len(key)), key))


def prefix_of(group: int, skey: Any, namespace: bytes) -> bytes:
    """The prefix of all rows of a key in a namespace. `namespace`: as returned by `encode_namespace`."""
    key = encode_key(skey)
    return b"".join((GROUP.pack(group), _LENGTH.pack(len(key)), key, namespace))


def group_time_row(group: int, timestamp: int, skey: Any, namespace: Any) -> bytes:
    """The row of a timer. The rows of a key group are in the order of their times (epoch ms)."""
    key = encode_key(skey)
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


def group_time_row_parts(row: bytes, data: bytes, loads: Loads) -> tuple[int, Any, Any]:
    """The time, state key and namespace of a timer's row. `data`: its value, which `key_suffix` made."""
    at = GROUP.size + _LENGTH.size + _TIME.size + _LENGTH.size
    (key_size,) = _LENGTH.unpack_from(row, at)
    at += _LENGTH.size
    key, namespace = row[at : at + key_size], row[at + key_size + _LENGTH.size :]
    return time_of(row), decode_key(key, data, loads), decode_namespace(namespace)


def encode_key(skey: Any) -> bytes:
    """The bytes of a state key, or of what stands for the key of an entry of a map."""
    return encode_plain(skey) if type(skey) is not OtherKey else b"o" + skey.encoding()


def key_suffix(skey: Any, dumps: Dumps) -> bytes:
    """What the value of a row ends with, so that its key can be read back. Unpickling the value passes over it."""
    if type(skey) is not OtherKey or skey.is_exact:
        return b""
    content = dumps(skey.key)
    return content + _LENGTH.pack(len(content)) + _WITH_KEY


def suffix_in(data: bytes) -> bytes:
    """The suffix that `key_suffix` made in the value of a row; empty: there is none."""
    if not data.endswith(_WITH_KEY):
        return b""
    size = _LENGTH.size + len(_WITH_KEY)
    (length,) = _LENGTH.unpack_from(data, len(data) - size)
    return data[-length - size :]


def decode_key(encoded: bytes, data: bytes, loads: Loads) -> Any:
    """The state key of a row. `encoded`: its bytes in the row; `data`: the value of the row."""
    suffix = suffix_in(data)
    return state_key(loads(suffix) if suffix else decode_plain(encoded))


def encode_namespace(namespace: Any) -> bytes:
    """The encoded namespace, with its length before it."""
    if namespace is None:
        return _NO_NAMESPACE
    kind = type(namespace)
    if kind is TimeWindow:
        content = b"W" + _TIMES.pack(namespace.start, namespace.end)
    elif kind is CountWindow:
        content = b"C" + encode_plain(namespace.id)
    else:
        content = b"G" if kind is GlobalWindow else encode_plain(namespace)
    return _LENGTH.pack(len(content)) + content


def encode_plain(value: Any) -> bytes:
    """Equal values of one type have equal bytes. A value whose canonical bytes do not give it back is stored as its pickle."""
    kind = type(value)
    if kind is str:
        return b"s" + str(value).encode("utf-8", "surrogatepass")
    if kind is int and value in _INT64:
        return b"i" + _LONG.pack(value)
    if kind is bytes:
        return b"b" + bytes(value)
    parts = Parts()
    try:
        encode(value, parts)
    except RefusedKey:
        parts.is_exact = False
    return b"o" + parts.joined() if parts.is_exact else b"P" + pickle.dumps(value, protocol=5)


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
    tag = data[:1]
    if not tag:
        return None
    if tag == b"W":
        return TimeWindow(*_TIMES.unpack_from(data, 1))
    if tag == b"C":
        return CountWindow(decode_plain(data[1:]))
    return GlobalWindow() if tag == b"G" else decode_plain(data)


def decode_plain(data: bytes) -> Any:
    """The value given to `encode_plain`, or one that equals the key of these bytes."""
    tag, content = data[:1], data[1:]
    if tag == b"s":
        return content.decode("utf-8", "surrogatepass")
    if tag == b"i":
        return _LONG.unpack(content)[0]
    if tag == b"b":
        return content
    if tag == b"P":
        # Trusted: these bytes were made in this process, or by a job whose pickles are trusted.
        return pickle.loads(content)
    return _Decoder(content).next()


class _Decoder:
    """Reads the exact keys of `canonical_bytes`: numbers, texts, bytes and tuples of them."""

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


_DECODERS: Final[dict[str, Callable[[_Decoder], Any]]] = {
    "N": lambda _: None,
    "T": lambda _: True,
    "F": lambda _: False,
    "i": lambda decoder: int.from_bytes(decoder.sized(), "big", signed=True),
    "d": _Decoder.double,
    "s": _Decoder.text,
    "b": _Decoder.sized,
    "(": lambda decoder: tuple(decoder.items()),
}


Row: TypeAlias = tuple[bytes, bytes]

_STAMP: Final = struct.Struct(">q")
_NUMBER: Final = struct.Struct(">Q")
_STATES: Final = frozenset({"Value", "List", "Map", "Reducing", "Aggregating"})


class RowFormat(ABC):
    """The format of one state."""

    def __init__(self, dumps: Dumps, loads: Loads, *, has_ttl: bool) -> None:
        self._dumps, self._loads = dumps, loads
        self._skipped = _STAMP.size if has_ttl else 0

    @abstractmethod
    def rows(self, prefix: bytes, raw: Any, next_number: Callable[[], int]) -> Iterator[Row]:
        """The rows that hold a raw value. `prefix`: of its key and namespace."""

    @abstractmethod
    def raw(self, rows: Sequence[Row]) -> Any:
        """The raw value of all its rows: (rest of the key after the prefix, content)."""

    @abstractmethod
    def _stamp(self, content: Any) -> int:
        """With TTL: the latest last access among the content of a row."""

    def pack(self, content: Any) -> bytes:
        """The content of one row."""
        if not self._skipped:
            return self._dumps(content)
        return _STAMP.pack(self._stamp(content)) + self._dumps(content)

    def unpack(self, data: bytes) -> Any:
        """What `pack` was given."""
        return self._loads(data[self._skipped :] if self._skipped else data)


def columns_of(info: StateInfo) -> int:
    """How many columns the snapshot of a state has besides the keys: namespaces and values, or values alone for a state of the engine.
    For windows and timers see `window_tables` and `timer_queues`.
    """
    if info.kind in WINDOW_KINDS:
        return 3
    return 2 if info.kind in _STATES or info == TIMERS else 1


def stamp_of(data: bytes) -> int:
    """The last access of a row of a state with TTL, read without unpickling."""
    stamp: int = _STAMP.unpack_from(data)[0]
    return stamp


class SingleRow(RowFormat):
    """A value, a reduced value or an accumulator in one row."""

    def rows(self, prefix: bytes, raw: Any, next_number: Callable[[], int]) -> Iterator[Row]:
        yield prefix, self.pack(raw)

    def raw(self, rows: Sequence[Row]) -> Any:
        return self.unpack(rows[0][1])

    def _stamp(self, content: Any) -> int:
        stamp: int = content[1]
        return stamp


class ListRows(RowFormat):
    """A list, with some elements in each row."""

    def rows(self, prefix: bytes, raw: Any, next_number: Callable[[], int]) -> Iterator[Row]:
        yield prefix + _NUMBER.pack(next_number()), self.pack(raw)

    def raw(self, rows: Sequence[Row]) -> Any:
        return [item for _, data in rows for item in self.unpack(data)]

    def _stamp(self, content: Any) -> int:
        latest: int = max(stamp for _, stamp in content)
        return latest


class MapRows(RowFormat):
    """A map, with one entry in each row."""

    def rows(self, prefix: bytes, raw: Any, next_number: Callable[[], int]) -> Iterator[Row]:
        for entry, one in raw.items():
            yield prefix + encode_key(entry), self.pack((original_key(entry), one))

    def raw(self, rows: Sequence[Row]) -> Any:
        return entries_of(self.unpack(data) for _, data in rows)

    def _stamp(self, content: Any) -> int:
        stamp: int = content[1][1]
        return stamp


def format_of(info: StateInfo, dumps: Dumps, loads: Loads) -> RowFormat:
    """The format for this kind of state."""
    kinds: dict[str, type[RowFormat]] = {"List": ListRows, LIST_WINDOWS: ListRows, "Map": MapRows}
    return kinds.get(info.kind, SingleRow)(dumps, loads, has_ttl=info.has_ttl)
