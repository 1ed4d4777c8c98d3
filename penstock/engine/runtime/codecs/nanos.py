"""Times in nanoseconds, for which Python has no class: as whole numbers, or in microseconds. Does not know declared types.

What is finer than a microsecond is cut, towards the past, as from what a clock shows. pyarrow's own way to Python depends on whether
pandas is installed. Source: none in Flink, whose TimestampData has nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa


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
