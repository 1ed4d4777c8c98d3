"""Columns of times: as epoch milliseconds, the event times of their records; and in nanoseconds, for which Python has no
class.

Does not know sources or declared types. What is finer than a millisecond, or than a microsecond, is cut towards the
past, also before 1970. pyarrow's own way from nanoseconds to Python depends on whether pandas is installed. Source:
none in Flink, whose TimestampData has nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.runtime.elements import NO_TIMESTAMP, Int64s

_MS_PER_DAY: Final = 86_400_000
PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def epoch_ms(array: pa.Array) -> Int64s:
    """The milliseconds; NO_TIMESTAMP for a null. Of integers, which are milliseconds; of timestamps and dates in their own unit.

    Raises: TypeError: the column has another type; pa.ArrowInvalid, OverflowError: a time does not fit into 64 bits.
    """
    kind = array.type
    if pa.types.is_date32(kind):
        return _filled(array.cast(pa.int32()).cast(pa.int64()), _MS_PER_DAY)
    if pa.types.is_timestamp(kind):
        per_second = PER_SECOND[kind.unit]
        numbers = array.cast(pa.int64())
        return _filled(numbers, max(1, 1000 // per_second), max(1, per_second // 1000))
    if pa.types.is_integer(kind) or pa.types.is_date64(kind):
        return _filled(array.cast(pa.int64()))
    raise TypeError(
        f"its type is {kind}: expected epoch milliseconds as an integer, a timestamp or a date"
    )


def _filled(numbers: pa.Array, factor: int = 1, divisor: int = 1) -> Int64s:
    values: Any = numbers.fill_null(0).to_numpy()
    if factor > 1 and len(values):
        most = (2**63 - 1) // factor
        if values.max() > most or values.min() < -most:
            raise OverflowError("a time does not fit into 64 bits as milliseconds")
    made = values * factor // divisor if factor > 1 or divisor > 1 else values
    if numbers.null_count:
        made = np.where(numbers.is_null().to_numpy(zero_copy_only=False), NO_TIMESTAMP, made)
    stamps: Int64s = made
    return stamps


@lru_cache(1024)
def has_nanos(kind: pa.DataType) -> bool:
    """Whether the type is, or contains, one of times in nanoseconds."""
    if pa.types.is_dictionary(kind):
        return has_nanos(kind.value_type)
    if pa.types.is_nested(kind):
        return any(has_nanos(kind.field(place).type) for place in range(kind.num_fields))
    return pa.types.is_temporal(kind) and getattr(kind, "unit", None) == "ns"


def nanos_as_numbers(array: pa.Array) -> pa.Array:
    """The array with int64 in place of times in nanoseconds."""
    return _changed(array, lambda leaf: leaf.cast(pa.int64()))


def nanos_as_micros(array: pa.Array) -> pa.Array:
    """The array with times in microseconds in place of those in nanoseconds."""
    return _changed(array, _micros)


def _micros(leaf: pa.Array) -> pa.Array:
    kind = leaf.type
    numbers = leaf.cast(pa.int64())
    micros = np.floor_divide(numbers.fill_null(0).to_numpy(), 1000)
    nulls = numbers.is_null().to_numpy(zero_copy_only=False)
    return pa.array(micros, pa.int64(), mask=nulls).cast(_in_micros(kind))


def _in_micros(kind: Any) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.time64("us") if pa.types.is_time(kind) else pa.duration("us")


def _changed(array: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The array with another array in place of each one of times in nanoseconds. Nulls and lengths stay."""
    kind = array.type
    if not has_nanos(kind):
        return array
    if pa.types.is_dictionary(kind):
        return _changed(array.dictionary_decode(), change)
    if not pa.types.is_nested(kind):
        return change(array)
    if pa.types.is_struct(kind):
        parts = [_changed(array.field(place), change) for place in range(kind.num_fields)]
        fields = [kind.field(at).with_type(part.type) for at, part in enumerate(parts)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    if pa.types.is_map(kind):
        fields = [kind.key_field, kind.item_field]
        items = pa.StructArray.from_arrays([array.keys, array.items], fields=fields)
    else:
        items = array.values
    items = _changed(items, change)
    own = array.buffers()[: 1 if pa.types.is_fixed_size_list(kind) else 2]
    made = _list_of(kind, items.type)
    return pa.Array.from_buffers(made, len(array), own, offset=array.offset, children=[items])


def _list_of(kind: Any, items: Any) -> pa.DataType:
    """The type of lists or maps with another type of its items."""
    if pa.types.is_map(kind):
        return pa.map_(items.field(0), items.field(1), kind.keys_sorted)
    value = kind.value_field.with_type(items)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(value, kind.list_size)
    return pa.large_list(value) if pa.types.is_large_list(kind) else pa.list_(value)
