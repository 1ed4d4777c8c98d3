"""Keys: how a record's key is taken, hashed, and put into a key group and a channel.

The hash is the same in every process, for rows and for columns, and never Python's own:

* int (and every undeclared int that fits 64 bits): Flink's long rule; declared INT, SHORT, BYTE: the value;
* str: the 31-polynomial over UTF-16 units; bool: 1231 or 1237; float: the long rule on its bits
  (-0.0 and 0.0 differ, all NaN are one key), as in Java;
* all others: CRC-32 of the canonical encoding (`canonical_bytes`), which for classes that it does not know are the pickled
  attributes, as for every undeclared key of PyFlink.

None is refused, and so is what cannot be pickled. 1, 1.0 and True are three keys unless
a declared key type makes them one. Knows no channel object and no state.
Source: Flink KeyGroupRangeAssignment, MathUtils.murmurHash; differs: a batch at a time.
"""

from __future__ import annotations

import datetime as dt
import functools
import io
import pickle
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from decimal import Decimal
from enum import Enum
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import UserError
from penstock.model.former_modules import first_module
from penstock.model.row import Row
from penstock.model.time import Instant
from penstock.model.types import BasicType, BasicTypeInfo, TypeInformation

UInt32s: TypeAlias = NDArray[np.uint32]
Channels: TypeAlias = NDArray[np.unsignedinteger[Any]]

_MASK: Final = 0xFFFFFFFF
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_PLAIN: Final = frozenset({str, int, bytes})
_PLAIN_ITEMS: Final = frozenset({str, int, type(None)})
"""Without bytes, so that no tuple of them is equal to an OtherKey of an encoding."""
_DOUBLE: Final = struct.Struct(">d")
_DOUBLE_BITS: Final = struct.Struct(">Q")
_NAN_BITS: Final = 0x7FF8000000000000
_CHANGEABLE: Final = b""
"""Stands among the parts of a key's encoding for what can be changed in place."""
_MORE_BYTES, _FIRST_OF_TWO, _FIRST_OF_FOUR = 0x80, 0xC0, 0xF0  # bytes of UTF-8, from these on
_INT32_KINDS: Final = frozenset({BasicType.INT, BasicType.SHORT, BasicType.BYTE})


class OtherKey(tuple[Any, ...]):  # ruff: ignore[no-slots-in-tuple-subclass] - a tuple cannot have slots beside its items
    """Stands in dicts for a key whose Python equality is not its identity; `key` is the key itself.

    A tuple, so that hash and equality run in C: of the key's encoding alone, or, of a tuple that is not plain but has the identity
    of one that is (a named one, say), its items.
    """

    key: Any

    def encoding(self) -> bytes:
        """`canonical_bytes` of the key."""
        is_encoded = len(self) == 1 and type(self[0]) is bytes
        return self[0] if is_encoded else canonical_bytes(tuple(self))


class _NoKey:
    """Where there is no key: whatever looks for its state or timers is told so."""

    def __hash__(self) -> int:
        raise UserError(
            "there is no key here, so no keyed state and no timers: a broadcast element belongs to no key. Use them in "
            "process_element(), and broadcast state (ctx.get_broadcast_state) here."
        )


NO_KEY: Final = _NoKey()


# ------------------------------------------------------------------------------- hash of one key


def murmur(value: int) -> int:
    """Flink's mix of a 32-bit hash; never negative."""
    x = (value & _MASK) * 0xCC9E2D51 & _MASK
    x = (x << 15 | x >> 17) & _MASK
    x = x * 0x1B873593 & _MASK
    x = (x << 13 | x >> 19) & _MASK
    x = (x * 5 + 0xE6546B64 & _MASK) ^ 4
    x ^= x >> 16
    x = x * 0x85EBCA6B & _MASK
    x ^= x >> 13
    x = x * 0xC2B2AE35 & _MASK
    x ^= x >> 16
    if x < 0x80000000:
        return x
    return 0 if x == 0x80000000 else 0x100000000 - x


def hash32(key: Any, *, is_int32: bool = False) -> int:  # ruff: ignore[too-many-return-statements] - a dispatch by type
    """The unsigned 32-bit hash of a key before `murmur`.

    Raises: TypeError for None and for types that cannot be a key.
    """
    kind = type(key)
    if kind is str:
        return _hash_str(key)
    if kind is int:
        if is_int32:
            return int(key) & _MASK
        if _INT64_MIN <= key <= _INT64_MAX:
            return _fold(key & 0xFFFFFFFFFFFFFFFF)
        return zlib.crc32(canonical_bytes(key))
    if kind is bool:
        return 1231 if key else 1237
    if kind is float:
        return _fold(_double_bits(key))
    if isinstance(key, np.generic):
        return hash32(key.item(), is_int32=is_int32)
    if kind is not bytes and isinstance(key, str | int) and not isinstance(key, Enum):
        return hash32(state_key(key), is_int32=is_int32)
    return zlib.crc32(canonical_bytes(key))


def key_group(key: Any, max_parallelism: int, *, is_int32: bool = False) -> int:
    """Key group of one key."""
    return murmur(hash32(key, is_int32=is_int32)) % max_parallelism


def channel_of(key: Any, channels: int, max_parallelism: int, *, is_int32: bool = False) -> int:
    """Channel of one key."""
    return key_group(key, max_parallelism, is_int32=is_int32) * channels // max_parallelism


def canonical_bytes(key: Any) -> bytes:
    """The identity of a key as bytes: a tag, then the content with its length where that varies.

    Two keys are one key exactly when these bytes are equal. Names of a Row's fields and its kind do
    not count; 1.0 and 1.00 as Decimals do differ. Dicts and sets have no order; objects of other classes are one key when
    their classes have one name and what they pickle is equal.
    Raises: TypeError for None (at the top) and for what cannot be pickled.
    """
    return b"".join(_parts(key))


def _parts(key: Any) -> list[bytes]:
    if key is None:
        raise TypeError(
            "a key must not be None; make the key selector return another value, or filter before key_by"
        )
    out: list[bytes] = []
    _encode(key, out.append)
    return out


def state_key(key: Any) -> Any:
    """What stands for the key in a dict: itself for str, int, bytes and tuples of str, int and None, else an OtherKey."""
    kind = type(key)
    if kind in _PLAIN or (kind is tuple and _PLAIN_ITEMS.issuperset(map(type, key))):
        return key
    if isinstance(key, np.generic):
        return state_key(key.item())
    if isinstance(key, str | int) and not isinstance(key, bool | Enum):
        return _bare(key)
    if isinstance(key, tuple):
        items = tuple(map(_bare, key))
        if _PLAIN_ITEMS.issuperset(map(type, items)):
            return _other_key(items, key)
    parts = _parts(key)
    # What can be changed may be so by the user's function when the record has passed.
    return _other_key((b"".join(parts),), deepcopy(key) if _CHANGEABLE in parts else key)


def _bare(value: Any) -> Any:
    """The str or int that has the same encoding; all else is as it was."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in _PLAIN_ITEMS or isinstance(value, bool | Enum):
        return value
    if isinstance(value, str):
        return "".join(value)
    return int(value) + 0 if isinstance(value, int) else value


def _other_key(content: tuple[Any, ...], key: Any) -> OtherKey:
    made = OtherKey(content)
    made.key = key
    return made


def original_key(skey: Any) -> Any:
    """The key for which `state_key` gave this."""
    return skey.key if type(skey) is OtherKey else skey


def state_keys(keys: list[Any]) -> list[Any]:
    """`state_key` of a batch; the same list when every key stands for itself."""
    kinds = set(map(type, keys))
    if kinds <= _PLAIN:
        return keys
    if kinds == {tuple} and _PLAIN_ITEMS.issuperset(map(type, chain.from_iterable(keys))):
        return keys
    return [state_key(key) for key in keys]


def _hash_str(text: str) -> int:
    units = text.encode("ascii") if text.isascii() else memoryview(_utf16(text)).cast("H")
    value = 0
    for unit in units:
        value = value * 31 + unit & _MASK
    return value


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def _fold(bits: int) -> int:
    return (bits ^ bits >> 32) & _MASK


def _double_bits(value: float) -> int:
    if value != value:  # ruff: ignore[comparison-with-itself] - NaN; every NaN is one key, as for Java's Double
        return _NAN_BITS
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
    put(_CHANGEABLE)
    _encode_items(b"[", key, put)


def _encode_unordered(tag: bytes, items: Iterable[Any], put: Callable[[bytes], Any]) -> None:
    put(_CHANGEABLE)
    parts = []
    for item in items:
        out: list[bytes] = []
        _encode(item, out.append)
        parts.append(b"".join(out))
    put(tag + len(parts).to_bytes(4, "big") + b"".join(sorted(parts)))


class _KeyPickler(pickle.Pickler):
    """Writes equal objects alike: what they share plays no part (`fast` keeps no memo), and classes are their names."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.fast = True

    def persistent_id(self, obj: Any) -> str | None:
        return _path_of(obj) if isinstance(obj, type) else None


def _path_of(kind: type) -> str:
    """As it was when keys were first hashed: a class of ours that moves keeps its keys in their key groups."""
    return f"{first_module(kind.__module__)}.{kind.__qualname__}"


def _encode_object(key: Any, put: Callable[[bytes], Any]) -> None:
    file = io.BytesIO()
    try:
        _KeyPickler(file).dump(key)
    except Exception as error:  # user classes may raise anything here
        raise TypeError(
            f"a key cannot contain a value of type {type(key).__qualname__}, which cannot be pickled ({error}): "
            f"{key!r:.200}. Have the key selector return what it is told by: str, int, tuple or Row."
        ) from error
    put(_CHANGEABLE)
    put(_sized(b"P", file.getvalue()))


_ENCODERS: Final[list[tuple[Any, Callable[[Any, Callable[[bytes], Any]], Any]]]] = [
    (type(None), lambda _key, put: put(b"N")),
    (bool, lambda key, put: put(b"T" if key else b"F")),
    (Enum, _encode_enum),
    (int, _encode_int),
    (float, lambda key, put: put(b"d" + _double_bits(key).to_bytes(8, "big"))),
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


# ------------------------------------------------------------------------------- hashes of arrays


def murmur_array(hashes: UInt32s) -> UInt32s:
    """`murmur` of each. In place as far as it goes: the passes are bound by memory."""
    x = hashes * np.uint32(0xCC9E2D51)
    shifted = x >> np.uint32(17)
    x <<= np.uint32(15)
    x |= shifted
    x *= np.uint32(0x1B873593)
    np.right_shift(x, np.uint32(19), out=shifted)
    x <<= np.uint32(13)
    x |= shifted
    x *= np.uint32(5)
    x += np.uint32(0xE6546B64)
    x ^= np.uint32(4)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        np.right_shift(x, np.uint32(shift), out=shifted)
        x ^= shifted
        x *= np.uint32(factor)
    np.right_shift(x, np.uint32(16), out=shifted)
    x ^= shifted
    signed = x.view(np.int32)
    np.abs(signed, out=signed)
    x[x == 0x80000000] = 0  # the one number without a positive counterpart
    return x


def key_groups(
    keys: list[Any], max_parallelism: int, *, is_int32: bool = False
) -> NDArray[np.int64]:
    """`key_group` of many keys. Raises: TypeError for keys that cannot be keys."""
    hashes = hash_keys(keys, is_int32=is_int32)
    return (murmur_array(hashes) % np.uint32(max_parallelism)).astype(np.int64)


def hash_keys(keys: list[Any], *, is_int32: bool = False) -> UInt32s:
    """`hash32` of many keys. Raises: TypeError for keys that cannot be keys."""
    kinds = set(map(type, keys))
    if kinds == {str}:
        return hash_strings(keys)
    if kinds == {float}:
        return hash_doubles(np.array(keys, np.float64))
    if kinds == {int} and min(keys) >= _INT64_MIN and max(keys) <= _INT64_MAX:
        values = np.array(keys, np.int64)
        return values.astype(np.uint32) if is_int32 else hash_longs(values)
    each = (hash32(key, is_int32=is_int32) for key in keys)
    return np.fromiter(each, np.uint32, len(keys))


def channels_of_hashes(hashes: UInt32s, channels: int, max_parallelism: int) -> Channels:
    """Channel of each hash, by way of its key group."""
    mixed = murmur_array(hashes)
    groups = mixed - mixed // np.uint32(max_parallelism) * np.uint32(max_parallelism)  # % is slow
    return _channel_of_group(channels, max_parallelism).take(groups)


@functools.cache
def _channel_of_group(channels: int, max_parallelism: int) -> Channels:
    groups = np.arange(max_parallelism, dtype=np.int64)
    return as_channels(groups * channels // max_parallelism, channels)


def as_channels(found: Any, channels: int) -> Channels:
    """Numbers of channels as narrow as may be: sorting by one byte takes one pass."""
    return np.asarray(found, np.uint8 if channels <= 256 else np.uint16)


def hash_longs(values: NDArray[np.int64]) -> UInt32s:
    """Flink's long rule."""
    bits = values.view(np.uint64)
    return (bits ^ bits >> np.uint64(32)).astype(np.uint32)


def hash_doubles(values: NDArray[np.float64]) -> UInt32s:
    """The long rule on the bits; every NaN is one."""
    bits = values.view(np.int64).copy()
    bits[np.isnan(values)] = _NAN_BITS
    return hash_longs(bits)


def hash_units(units: NDArray[Any], lengths: NDArray[np.int64]) -> UInt32s:
    """31-polynomial of consecutive strings, given their code units and lengths."""
    hashes = np.zeros(len(lengths), np.uint32)
    filled = lengths > 0
    if not filled.any():
        return hashes
    ends = np.cumsum(lengths)
    powers = np.empty(int(lengths.max()), np.uint32)
    powers[0] = 1
    powers[1:] = 31
    np.multiply.accumulate(powers, out=powers)
    exponents = np.repeat(ends, lengths)
    exponents -= np.arange(1, int(ends[-1]) + 1)
    terms = units.astype(np.uint32)
    terms *= powers[exponents]
    hashes[filled] = np.add.reduceat(terms, (ends - lengths)[filled])
    return hashes


def hash_utf8(text: NDArray[np.uint8], offsets: NDArray[np.int64]) -> UInt32s:
    """`hash32` of strings that lie one behind the other, without making any. `offsets`: where each begins, and the last one ends."""
    if not len(text) or text.max() < _MORE_BYTES:
        return hash_units(text, np.diff(offsets))
    # In UTF-16, of which Java's hash is, a character's first byte stands for one unit, or for two from four bytes on.
    units = (text < _MORE_BYTES) | (text >= _FIRST_OF_TWO)
    counts = units.astype(np.int64) + (text >= _FIRST_OF_FOUR)
    ends = np.concatenate([[0], np.cumsum(counts)])[offsets]
    wide = np.frombuffer(text.tobytes().decode("utf-8").encode("utf-16-le"), np.uint16)
    return hash_units(wide, np.diff(ends))


def hash_strings(texts: Sequence[str]) -> UInt32s:
    """`hash32` of many strings."""
    joined = "".join(texts)
    if joined.isascii():
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return hash_units(np.frombuffer(joined.encode("ascii"), np.uint8), lengths)
    parts = [_utf16(text) for text in texts]
    lengths = np.fromiter(map(len, parts), np.int64, len(parts)) // 2
    return hash_units(np.frombuffer(b"".join(parts), np.uint16), lengths)


def is_int32_type(key_type: TypeInformation | None) -> bool:
    """Whether keys of this type hash by Flink's int rule."""
    return isinstance(key_type, BasicTypeInfo) and key_type.basic_type in _INT32_KINDS
