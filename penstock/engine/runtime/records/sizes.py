"""Estimates how much memory batches take once they are decoded. Does not know budgets."""

from __future__ import annotations

import sys
from collections.abc import Collection
from itertools import islice
from typing import Any, Final

from penstock.engine.model.row import Row
from penstock.engine.runtime.elements import Batch, ColumnBatch

_SAMPLE: Final = 8
_LARGE_SAMPLE: Final = 64
_DEEPEST: Final = 4
_ROW_POINTERS: Final = 40
"""Per row: a place in three lists, a timestamp, its place in the order."""
_COLUMN_COPIES: Final = 3
"""The pieces, one batch of all of them, and that batch sorted."""


def sorting_size(batch: Batch) -> int:
    """The bytes of a decoded batch while it is sorted. For rows it is estimated from a few of them, as if they shared no objects."""
    if isinstance(batch, ColumnBatch):
        return _COLUMN_COPIES * (int(batch.data.nbytes) + 8 * len(batch))
    values = batch.values
    if not values:
        return 0
    sample = values[:: -(-len(values) // _SAMPLE)]
    return len(values) * (sum(map(_object_size, sample)) // len(sample) + _ROW_POINTERS)


def objects_size(values: Collection[Any]) -> int:
    """The bytes of all values, estimated from the first ones, as if they shared no objects."""
    sample = list(islice(values, _LARGE_SAMPLE))
    return len(values) * sum(map(_object_size, sample)) // max(len(sample), 1)


def _object_size(value: Any, depth: int = 0) -> int:
    size = sys.getsizeof(value)
    if depth == _DEEPEST:
        return size
    if isinstance(value, dict):
        inside: Any = [*value, *value.values()]
    elif isinstance(value, list | tuple | set | frozenset | Row):
        inside = value
    else:
        inside = getattr(value, "__dict__", {}).values()
    return size + sum(_object_size(one, depth + 1) for one in inside)
