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

import zlib
from copy import deepcopy
from enum import Enum
from itertools import chain
from typing import Any, Final

import numpy as np

from penstock.model.errors import UserError
from penstock.model.types import BasicType, BasicTypeInfo, TypeInformation
from penstock.runtime.keys.encoding import (
    CHANGEABLE,
    canonical_bytes,
    double_bits,
    parts_of,
)

_MASK: Final = 0xFFFFFFFF
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_PLAIN: Final = frozenset({str, int, bytes})
_PLAIN_ITEMS: Final = frozenset({str, int, type(None)})
"""Without bytes, so that no tuple of them is equal to an OtherKey of an encoding."""
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
        if INT64_MIN <= key <= INT64_MAX:
            return _fold(key & 0xFFFFFFFFFFFFFFFF)
        return zlib.crc32(canonical_bytes(key))
    if kind is bool:
        return 1231 if key else 1237
    if kind is float:
        return _fold(double_bits(key))
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
    parts = parts_of(key)
    # What can be changed may be so by the user's function when the record has passed.
    return _other_key((b"".join(parts),), deepcopy(key) if CHANGEABLE in parts else key)


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
    units = text.encode("ascii") if text.isascii() else memoryview(utf16(text)).cast("H")
    value = 0
    for unit in units:
        value = value * 31 + unit & _MASK
    return value


def utf16(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def _fold(bits: int) -> int:
    return (bits ^ bits >> 32) & _MASK


# ------------------------------------------------------------------------------- hashes of arrays


def is_int32_type(key_type: TypeInformation | None) -> bool:
    """Whether keys of this type hash by Flink's int rule."""
    return isinstance(key_type, BasicTypeInfo) and key_type.basic_type in _INT32_KINDS
