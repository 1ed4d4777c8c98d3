"""Keys: how a record's key is hashed and assigned to a key group and a channel.

The hash is the same in every process, for rows and for columns. It is never Python's own hash:

* int (and every undeclared int that fits 64 bits): Flink's hash of a long; declared INT, SHORT, BYTE: the value;
* str: the 31-polynomial over UTF-16 units; bool: 1231 or 1237; float: the hash of a long on its bits, as in Java, but -0.0 has that of
  0.0, because they are one key;
* all others: CRC-32 of the canonical encoding (`canonical_bytes`).

None is refused, and so is a value of a class that gives no canonical bytes. 1, 1.0 and True are three keys unless
a declared key type makes them one. Does not know channel objects or state.
Source: Flink KeyGroupRangeAssignment, MathUtils.murmurHash; differs: a batch at a time.
"""

from __future__ import annotations

import zlib
from copy import deepcopy
from enum import Enum
from itertools import chain
from typing import Any, Final

import numpy as np

from penstock.engine.model.errors import FinalError
from penstock.engine.model.types import BasicType, BasicTypeInfo, TypeInformation
from penstock.engine.runtime.elements import classes_of
from penstock.engine.runtime.keys.encoding import (
    canonical_bytes,
    double_bits,
    has_own_equality,
    parts_of,
)

_MASK: Final = 0xFFFFFFFF
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
PLAIN: Final = frozenset({str, int, bytes})
"""Keys of these classes stand for themselves, but for ints of more than 64 bits."""
_BASES: Final = (str, int, float, bytes)
_OF_SCALARS: Final = frozenset({str, int, float, bytes, bool})
_TIMES: Final = (np.datetime64, np.timedelta64)
_PLAIN_ITEMS: Final = frozenset({str, int, type(None)})
"""Without bytes, so that no tuple of these equals an OtherKey that holds an encoding."""
_INT32_KINDS: Final = frozenset({BasicType.INT, BasicType.SHORT, BasicType.BYTE})


class OtherKey(tuple[Any, ...]):  # ruff: ignore[no-slots-in-tuple-subclass] - a tuple cannot have slots in addition to its items
    """Stands in dicts for a key whose Python equality is not its identity. `key`: the key itself. `is_exact`: the encoding alone gives
    the key back, and not only one that equals it. `classes`: those that the encoding names.

    It is a tuple, so that hash and equality run in C. It holds the key's encoding alone. Exception: if the key is a tuple that is
    not plain but has the same identity as a plain one (a named tuple, say), it holds the items of the plain one.
    """

    key: Any
    is_exact: bool
    classes: tuple[type, ...] = ()

    def encoding(self) -> bytes:
        """`canonical_bytes` of the key."""
        is_encoded = len(self) == 1 and type(self[0]) is bytes
        return self[0] if is_encoded else canonical_bytes(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """What stands for the key where it is read, because the encoding belongs to this release."""
        return state_key, (self.key,)


class NoKeySet(FinalError):
    """Keyed state or timers are used where there is no key. `where`: as `NoKey` has it."""

    def __init__(self, where: str, state: str = "") -> None:
        """`state`: names the state and its operator; empty: timers are used, or the state is not known."""
        of_state = f". The state is {state}" if state else ""
        super().__init__(
            f"No key set: keyed state and timers cannot be used {where}{of_state}. Use them where "
            "a record or a timer is processed, as in process_element() and on_timer(); open() may "
            "get the state, but not use it"
        )
        self.where = where


class NoKey:
    """Stands for the state key where there is none: whoever looks up state or timers with it gets NoKeySet. `where`: "in open()"."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __hash__(self) -> int:
        raise NoKeySet(self._where)


NO_KEY: Final = NoKey("where no record and no timer is processed")
NO_KEY_OF_BROADCAST: Final = NoKey(
    "here, because a broadcast element belongs to no key (here use broadcast state: "
    "ctx.get_broadcast_state)"
)


# ------------------------------------------------------------------------------- hash of one key


def murmur(value: int) -> int:
    """Flink's bit mixing of a 32-bit hash. The result is never negative."""
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

    Raises: RefusedKey for None and for what cannot be a key.
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
    bare = _bare(key)
    return zlib.crc32(canonical_bytes(key)) if bare is key else hash32(bare, is_int32=is_int32)


def key_group(key: Any, max_parallelism: int, *, is_int32: bool = False) -> int:
    """The key group of one key."""
    return murmur(hash32(key, is_int32=is_int32)) % max_parallelism


def channel_of(key: Any, channels: int, max_parallelism: int, *, is_int32: bool = False) -> int:
    """The channel of one key."""
    return key_group(key, max_parallelism, is_int32=is_int32) * channels // max_parallelism


def state_key(key: Any) -> Any:
    """The object that stands for the key in dicts: the key itself if it is a str, an int of 64 bits, bytes or a tuple of str,
    int and None, else an OtherKey. Raises: RefusedKey: it cannot be a key.
    """
    kind = type(key)
    if kind in PLAIN:
        is_plain = kind is not int or INT64_MIN <= key <= INT64_MAX
    else:
        is_plain = kind is tuple and _PLAIN_ITEMS.issuperset(map(type, key))
    if is_plain:
        return key
    bare = _bare(key)
    if bare is not key:
        return state_key(bare)
    if isinstance(key, tuple) and (kind is tuple or not has_own_equality(kind)):
        items = tuple(map(_bare, key))
        if _PLAIN_ITEMS.issuperset(map(type, items)):
            return _other_key(items, key, is_exact=False)
    parts = parts_of(key)
    # The user's function may change a mutable key in place after the record has been processed.
    kept = deepcopy(key) if parts.is_changeable else key
    made = _other_key((parts.joined(),), kept, is_exact=parts.is_exact)
    if parts.classes:
        made.classes = tuple(parts.classes)
    return made


def _bare(value: Any) -> Any:
    """The value of a plain class that is the same key; any other value unchanged."""
    kind = type(value)
    if kind in PLAIN or kind is float or kind is bool:
        return value
    if isinstance(value, np.generic):
        item = value.item()
        return item if type(item) in _OF_SCALARS and not isinstance(value, _TIMES) else value
    if not isinstance(value, _BASES) or isinstance(value, Enum) or has_own_equality(kind):
        return value
    # The constructor of a class may have another meaning; this is what it is pickled with.
    plain: Any = next(base for base in _BASES if isinstance(value, base))
    return plain.__getnewargs__(value)[0]


def _other_key(content: tuple[Any, ...], key: Any, *, is_exact: bool) -> OtherKey:
    made = OtherKey(content)
    made.key = key
    made.is_exact = is_exact
    return made


def original_key(skey: Any) -> Any:
    """The key from which `state_key` made this."""
    return skey.key if type(skey) is OtherKey else skey


def state_keys(keys: list[Any], kinds: set[type] | None = None) -> list[Any]:
    """`state_key` of a batch of keys; the same list when every key stands for itself. `kinds`: their classes, where they are known."""
    kinds = classes_of(keys) if kinds is None else kinds
    if kinds <= PLAIN and (int not in kinds or _have_64_bits(keys, kinds)):
        return keys
    if kinds == {tuple} and _PLAIN_ITEMS.issuperset(map(type, chain.from_iterable(keys))):
        return keys
    return [state_key(key) for key in keys]


def _have_64_bits(keys: list[Any], kinds: set[type]) -> bool:
    """Whether all ints among the keys, of these classes, have 64 bits.

    Python hashes an int by its remainder by 2**61 - 1: of 64 bits at most 9 have one hash, of larger ones any number, and a
    dict takes a step for each of them whenever it looks for one.
    """
    ints = keys if kinds == {int} else [key for key in keys if type(key) is int]
    try:
        np.fromiter(ints, np.int64, len(ints))
    except OverflowError:
        return False
    return True


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
    """Whether keys of this type are hashed by Flink's rule for int."""
    return isinstance(key_type, BasicTypeInfo) and key_type.basic_type in _INT32_KINDS
