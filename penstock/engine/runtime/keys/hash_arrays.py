"""Key groups and channels of many keys at once: the rules of `hashing` for whole columns. Does not know key selectors.

Source: Flink KeyGroupRangeAssignment, MathUtils.murmurHash.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.engine.runtime.keys.encoding import NAN_BITS
from penstock.engine.runtime.keys.hashing import INT64_MAX, INT64_MIN, hash32, utf16

UInt32s: TypeAlias = NDArray[np.uint32]
Channels: TypeAlias = NDArray[np.unsignedinteger[Any]]

# Bytes of UTF-8 from these values on: a continuation byte, the first byte of two or more, the
# first byte of four.
_MORE_BYTES, _FIRST_OF_TWO, _FIRST_OF_FOUR = 0x80, 0xC0, 0xF0


def murmur_array(hashes: UInt32s) -> UInt32s:
    """`murmur` of each value. Works in place where it can, because the passes are limited by memory bandwidth."""
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
    # The one number that has no positive counterpart.
    x[x == 0x80000000] = 0
    return x


def key_groups(
    keys: list[Any], max_parallelism: int, *, is_int32: bool = False
) -> NDArray[np.int64]:
    """`key_group` of many keys. Raises: TypeError for keys that cannot be keys."""
    return groups_of_hashes(hash_keys(keys, is_int32=is_int32), max_parallelism)


def groups_of_hashes(hashes: UInt32s, max_parallelism: int) -> NDArray[np.int64]:
    """The key group of each hash."""
    return (murmur_array(hashes) % np.uint32(max_parallelism)).astype(np.int64)


def hash_keys(keys: list[Any], *, is_int32: bool = False) -> UInt32s:
    """`hash32` of many keys. Raises: TypeError for keys that cannot be keys."""
    kinds = set(map(type, keys))
    if kinds == {str}:
        return hash_strings(keys)
    if kinds == {float}:
        return hash_doubles(np.array(keys, np.float64))
    if kinds == {int} and min(keys) >= INT64_MIN and max(keys) <= INT64_MAX:
        values = np.array(keys, np.int64)
        return values.astype(np.uint32) if is_int32 else hash_longs(values)
    each = (hash32(key, is_int32=is_int32) for key in keys)
    return np.fromiter(each, np.uint32, len(keys))


def channels_of_hashes(hashes: UInt32s, channels: int, max_parallelism: int) -> Channels:
    """The channel of each hash, computed through its key group."""
    mixed = murmur_array(hashes)
    # numpy's % is slower than this.
    groups = mixed - mixed // np.uint32(max_parallelism) * np.uint32(max_parallelism)
    return _channel_of_group(channels, max_parallelism).take(groups)


@functools.cache
def _channel_of_group(channels: int, max_parallelism: int) -> Channels:
    groups = np.arange(max_parallelism, dtype=np.int64)
    return as_channels(groups * channels // max_parallelism, channels)


def as_channels(found: Any, channels: int) -> Channels:
    """Channel numbers in the narrowest integer type, because sorting by one byte takes one pass."""
    return np.asarray(found, np.uint8 if channels <= 256 else np.uint16)


def hash_longs(values: NDArray[np.int64]) -> UInt32s:
    """Flink's hash of a long."""
    bits = values.view(np.uint64)
    return (bits ^ bits >> np.uint64(32)).astype(np.uint32)


def hash_doubles(values: NDArray[np.float64]) -> UInt32s:
    """Flink's hash of a long, applied to the bits of a double. All NaN are one key, and so are 0.0 and -0.0."""
    bits = (values + 0.0).view(np.int64)
    bits[np.isnan(values)] = NAN_BITS
    return hash_longs(bits)


def hash_units(units: NDArray[Any], lengths: NDArray[np.int64]) -> UInt32s:
    """Java's string hash (31-polynomial) of consecutive strings, given their code units and lengths."""
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
    """`hash32` of strings stored one after the other, without creating Python strings. `offsets`: where each
    begins; the last one is the end.
    """
    if not len(text) or text.max() < _MORE_BYTES:
        return hash_units(text, np.diff(offsets))
    # Java hashes UTF-16. The first byte of a UTF-8 character stands for one UTF-16 unit, or for
    # two if the character has four bytes.
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
    parts = [utf16(text) for text in texts]
    lengths = np.fromiter(map(len, parts), np.int64, len(parts)) // 2
    return hash_units(np.frombuffer(b"".join(parts), np.uint16), lengths)


def hash_array(array: pa.Array, *, is_int32: bool = False) -> UInt32s | None:
    """`hash32` of each value, without making Python values. None: the type cannot be hashed this way.

    Raises: TypeError: there is a null.
    """
    if array.null_count:
        # Raises the same error as a null key among rows.
        hash_of_none = hash32(None)
        raise AssertionError(hash_of_none)
    if pa.types.is_dictionary(array.type):
        found = hash_array(array.dictionary, is_int32=is_int32)
        return None if found is None else found[array.indices.to_numpy()]
    kind = array.type
    if pa.types.is_integer(kind) and kind != pa.uint64():
        values = array.to_numpy().astype(np.int64)
        hashes: UInt32s = values.astype(np.uint32) if is_int32 else hash_longs(values)
        return hashes
    if pa.types.is_floating(kind):
        return hash_doubles(array.to_numpy().astype(np.float64))
    if pa.types.is_boolean(kind):
        flags = array.to_numpy(zero_copy_only=False)
        return np.where(flags, np.uint32(1231), np.uint32(1237)).astype(np.uint32)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return _hash_string_array(array) if is_text else None


def _hash_string_array(array: pa.Array) -> UInt32s:
    if len(array) == 0:
        return np.zeros(0, np.uint32)
    _, offsets_buffer, data = array.buffers()
    width = np.int64 if pa.types.is_large_string(array.type) else np.int32
    offsets = np.frombuffer(offsets_buffer, width)[array.offset : array.offset + len(array) + 1]
    if data is None:
        return np.zeros(len(array), np.uint32)
    text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return hash_utf8(text, (offsets - offsets[0]).astype(np.int64))


def with_equal_floats(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The same rows, where keys that are equal have equal bits: 0.0 for -0.0, and one NaN. `names`: of the key columns."""
    for name in names:
        column = rows.column(name)
        if pa.types.is_floating(column.type):
            made = pc.if_else(pc.is_nan(column), float("nan"), pc.add(column, 0.0))
            rows = rows.set_column(rows.schema.get_field_index(name), name, made.cast(column.type))
    return rows
