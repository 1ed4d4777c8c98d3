"""Partition transforms of Iceberg, for whole arrays. Source: Iceberg table spec (Partition Transforms, Appendix B: 32-bit Hash)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

_UNITS: Final = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_MASK: Final = np.uint32(0x7FFFFFFF)


def transformed(transform: Any, source: Any, values: pa.Array) -> pa.Array:
    """The values of a partition field; nulls stay. `source`: the column's type in Iceberg.

    Where there is no operation for a whole array (buckets of texts, cut decimals), each different value is computed once.
    """
    name, _, width = str(transform).rstrip("]").partition("[")
    if name == "identity":
        return values
    if name == "void":
        return pa.nulls(len(values), pa.int32())
    if name in _UNITS:
        times = values.to_numpy(zero_copy_only=False)
        units = times.astype(f"datetime64[{_UNITS[name]}]").astype(np.int64)
        return pa.array(units, mask=np.isnat(times))
    if name == "bucket" and (kinds.is_integer(values.type) or kinds.is_temporal(values.type)):
        return _buckets(values, int(width))
    if name == "truncate" and not kinds.is_decimal(values.type):
        return _truncated(values, int(width))
    return _one_by_one(transform.transform(source), name, values)


def _truncated(values: pa.Array, width: int) -> pa.Array:
    if kinds.is_integer(values.type):
        numbers, mask = _numbers(values)
        return pa.array(numbers - np.mod(numbers, width), values.type, mask)
    if kinds.is_binary(values.type) or kinds.is_large_binary(values.type):
        return pc.binary_slice(values, 0, width)
    return pc.utf8_slice_codeunits(values, 0, width)


def _buckets(values: pa.Array, count: int) -> pa.Array:
    """Murmur3 (x86, 32 bits, seed 0) of the 8 bytes of each number."""
    numbers, mask = _numbers(values)
    halves = numbers.astype("<i8").view("<u4").reshape(-1, 2)
    found = np.zeros(len(numbers), np.uint32)
    for half in (halves[:, 0], halves[:, 1]):
        mixed = _rotated(half * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        found = _rotated(found ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    found ^= np.uint32(8)
    found = (found ^ (found >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    found = (found ^ (found >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    found ^= found >> np.uint32(16)
    return pa.array((found & _MASK) % np.uint32(count), pa.int32(), mask)


def _rotated(numbers: Any, bits: int) -> Any:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))


def _numbers(values: pa.Array) -> tuple[Any, Any]:
    """As int64, 0 for a null; and where the nulls are."""
    if kinds.is_date32(values.type) or kinds.is_time32(values.type):
        values = values.cast(pa.int32())
    whole = values.cast(pa.int64())
    return whole.fill_null(0).to_numpy(), whole.is_null().to_numpy(zero_copy_only=False)


def _one_by_one(of_value: Any, name: str, values: pa.Array) -> pa.Array:
    encoded = values.dictionary_encode()
    kind = pa.int32() if name == "bucket" else values.type
    computed = pa.array([of_value(one) for one in encoded.dictionary.to_pylist()], kind)
    return computed.take(encoded.indices)
