"""Columns of records that nothing can change any more: copied flat where that is enough, else pickled at once.

Values that cannot change are kept without pickling: numbers, text, tuples of them; copied lists and dicts of those; and Rows of them.
"""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from itertools import chain
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.model.row import Row, RowKind
from penstock.engine.model.time import Instant
from penstock.engine.runtime.elements import classes_of
from penstock.engine.runtime.windows import Window

Dumps: TypeAlias = Callable[[object], bytes]


Loads: TypeAlias = Callable[[bytes], Any]


IMMUTABLE_KINDS: Final = frozenset({
    int, float, complex, str, bytes, bool, type(None), Decimal, Instant, pa.Table,
    dt.date, dt.datetime, dt.time, dt.timedelta,
})  # fmt: skip


_PICKLED_TOGETHER: Final = 4096


# Of numpy's scalars all but `np.void`: its fields can be set.
ATOM_BASES: Final = (Enum, np.number, np.bool_, np.character, np.datetime64, Window)


@dataclass(frozen=True, slots=True)
class Pickled:
    """A column as it was when the snapshot was taken: pickled lists of a few thousand values each."""

    chunks: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class FrozenRows:
    """A column of Rows with the same fields and kind, as tuples of values that cannot change."""

    fields: tuple[str, ...] | None
    row_kind: RowKind
    values: list[tuple[Any, ...]]


Column: TypeAlias = Sequence[Any] | Pickled | FrozenRows


def plain_dumps(value: object) -> bytes:
    """Pickle with protocol 5, for objects whose classes can be imported."""
    return pickle.dumps(value, protocol=5)


def frozen(column: Column, dumps: Dumps) -> Column:
    """The column in a form that nothing can change."""
    if isinstance(column, Pickled | FrozenRows):
        return column
    kinds = classes_of(column)
    if kinds == {list} and is_immutable(list(chain.from_iterable(column))):
        return list(map(list.copy, column))
    if kinds == {dict} and (tables := _frozen_tables(column)) is not None:
        return tables
    if kinds == {Row} and (rows := _frozen_rows(column)) is not None:
        return rows
    if is_immutable(column):
        return column
    # In pieces, because a pickler's memo of a million objects needs more memory than the objects.
    starts = range(0, len(column), _PICKLED_TOGETHER)
    return Pickled(tuple(dumps(list(column[i : i + _PICKLED_TOGETHER])) for i in starts))


def _frozen_tables(column: Sequence[dict[Any, Any]]) -> list[dict[Any, Any]] | None:
    """Copies of tables that hold values which cannot change, or lists of those. None for other tables."""
    if not is_immutable(list(chain.from_iterable(column))):
        return None
    values = list(chain.from_iterable(map(dict.values, column)))
    if classes_of(values) == {list} and is_immutable(list(chain.from_iterable(values))):
        return [dict(zip(table, map(list.copy, table.values()), strict=True)) for table in column]
    return list(map(dict.copy, column)) if is_immutable(values) else None


def _frozen_rows(column: Sequence[Row]) -> FrozenRows | None:
    """None when the Rows differ in more than their values, or hold a value that can change."""
    fields = set(map(attrgetter("_fields"), column))
    row_kinds = set(map(attrgetter("_row_kind"), column))
    if len(fields) > 1 or len(row_kinds) > 1:
        return None
    values = list(map(attrgetter("_values"), column))
    return FrozenRows(fields.pop(), row_kinds.pop(), values) if is_immutable(values) else None


def is_immutable(values: Sequence[Any]) -> bool:
    """Whether none of these values can be changed. Checks level by level, in C."""
    while values:
        kinds = classes_of(values)
        others = kinds - IMMUTABLE_KINDS - {tuple}
        if not all(issubclass(kind, ATOM_BASES) for kind in others):
            return False
        if tuple not in kinds:
            return True
        tuples = values if kinds == {tuple} else [v for v in values if type(v) is tuple]
        values = list(chain.from_iterable(tuples))
    return True
