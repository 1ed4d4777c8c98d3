"""Columns of state, packed: numbers and texts as Arrow arrays, tuples and Rows as a column for each of their items. Does
not know states.

What is packed cannot be changed any more, and packing takes about as long as looking whether values could be changed.
It is put in the order of key groups and cut without a look at single values, which takes a tenth of doing so with
Python's values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.engine.model.row import Row, RowKind
from penstock.engine.runtime.elements import classes_of
from penstock.engine.runtime.keys.hash_arrays import (
    Channels,
    as_channels,
    groups_of_hashes,
    hash_array,
    key_groups,
)
from penstock.engine.runtime.keys.hashing import original_key
from penstock.engine.runtime.records.frozen import Column, Dumps, is_immutable
from penstock.engine.runtime.state.column_format import (
    COLUMN_HEAD,
    LENGTH,
    arrow_array,
    encode_array,
    encode_column,
)

_FIELDS: Final = attrgetter("_fields")
_VALUES: Final = attrgetter("_values")
_ROW_KIND: Final = attrgetter("_row_kind")
_AT_ONCE: Final = 4096


@dataclass(frozen=True, slots=True)
class PackedValues:
    """Values of one class that Arrow has."""

    array: pa.Array

    def taken(self, order: pa.Array) -> PackedValues:
        """The values at these places, as the other classes' `taken`. `order`: int64."""
        return PackedValues(self.array.take(order))

    def encoded(self, start: int, end: int, dumps: Dumps) -> Iterator[bytes]:
        """A part of the column, as `encode_column` writes it."""
        return encode_array(self.array.slice(start, end - start))


@dataclass(frozen=True, slots=True)
class PlainValues:
    """Values that no Arrow array holds: of several classes, or of another one. Nobody changes them."""

    values: Sequence[Any]

    def taken(self, order: pa.Array) -> PlainValues:
        return PlainValues(list(map(self.values.__getitem__, order.to_numpy().tolist())))

    def encoded(self, start: int, end: int, dumps: Dumps) -> Iterator[bytes]:
        return encode_column(self.values[start:end], dumps)


@dataclass(frozen=True, slots=True)
class PackedTuples:
    """Tuples of one length, which is not 0: a column for each item."""

    columns: tuple[Packed, ...]

    def taken(self, order: pa.Array) -> PackedTuples:
        return PackedTuples(tuple([column.taken(order) for column in self.columns]))

    def encoded(self, start: int, end: int, dumps: Dumps) -> Iterator[bytes]:
        parts = [LENGTH.pack(len(self.columns))]
        for column in self.columns:
            parts += column.encoded(start, end, dumps)
        yield COLUMN_HEAD.pack(b"U", sum(map(len, parts)))
        yield from parts


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows with the same fields and kind, by their values, which are tuples."""

    fields: tuple[str, ...] | None
    row_kind: RowKind
    items: Packed

    def taken(self, order: pa.Array) -> PackedRows:
        return PackedRows(self.fields, self.row_kind, self.items.taken(order))

    def encoded(self, start: int, end: int, dumps: Dumps) -> Iterator[bytes]:
        shape = json.dumps({"fields": self.fields, "kind": self.row_kind.name}).encode()
        parts = [LENGTH.pack(len(shape)), shape, *self.items.encoded(start, end, dumps)]
        yield COLUMN_HEAD.pack(b"R", sum(map(len, parts)))
        yield from parts


Packed: TypeAlias = PackedValues | PlainValues | PackedTuples | PackedRows
StateColumn: TypeAlias = Column | Packed
"""Of a part of keyed state: a list while its owner fills it."""


class TableValues(Sequence[Any]):
    """The values of a dict, in its order, which are read when they are wanted. `kind`: the class of all of them; None: not known."""

    def __init__(self, table: Mapping[Any, Any], kind: type | None = None) -> None:
        self._table = table
        self.kind = kind

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._table.values())

    def __getitem__(self, place: Any) -> Any:
        return list(self._table.values())[place]

    def __reduce__(self) -> Any:
        return list, (list(self),)


def packed(values: Sequence[Any]) -> Packed | None:
    """The column. None: some of the values could be changed, or the Rows differ in more than their values."""
    if isinstance(values, TableValues) and values.kind is not None:
        array = arrow_array(values, {values.kind})
        if array is not None:
            return PackedValues(array)
    if len(values) <= _AT_ONCE:
        return _packed_at_once(list(values))
    if next(iter(values)) is None and (found := _nones(values)) is not None:
        return found
    # Values lie anywhere in memory. Those of a piece stay in the processor's cache from the look at their classes to the end.
    rest, pieces = iter(values), []
    while piece := list(islice(rest, _AT_ONCE)):
        column = _packed_at_once(piece)
        if column is None:
            return None
        pieces.append(column)
    if any(isinstance(column, PackedRows) for column in pieces):
        return _joined_rows(pieces, values)
    return _joined(pieces, lambda: list(values))


def _nones(values: Sequence[Any]) -> PackedValues | None:
    """Namespaces mostly are nothing but None. None: these are not.

    Arrow takes its own null for None, and counting takes whatever calls itself equal. Nothing does both.
    """
    try:
        array = pa.array(values, pa.null())
    except pa.ArrowException:
        return None
    return PackedValues(array) if values.count(None) == len(values) else None


def _packed_at_once(values: Sequence[Any]) -> Packed | None:
    kinds = classes_of(values)
    if kinds == {Row}:
        return _packed_rows(values)
    if kinds == {tuple} and len(lengths := set(map(len, values))) == 1 and lengths != {0}:
        return _packed_tuples(values, lengths.pop())
    array = arrow_array(values, kinds)
    if array is not None:
        return PackedValues(array)
    return PlainValues(values) if is_immutable(values) else None


def _packed_rows(rows: Sequence[Row]) -> PackedRows | None:
    fields, row_kinds = set(map(_FIELDS, rows)), set(map(_ROW_KIND, rows))
    if len(fields) > 1 or len(row_kinds) > 1:
        return None
    items = _packed_at_once(list(map(_VALUES, rows)))
    return None if items is None else PackedRows(fields.pop(), row_kinds.pop(), items)


def _packed_tuples(values: Sequence[tuple[Any, ...]], size: int) -> PackedTuples | None:
    columns: list[Packed] = []
    for place in range(size):
        column = _packed_at_once(list(map(itemgetter(place), values)))
        # Rows in a tuple are pickled with it.
        if column is None or isinstance(column, PackedRows):
            return None
        columns.append(column)
    return PackedTuples(tuple(columns))


def _joined_rows(pieces: Sequence[Packed], values: Sequence[Row]) -> PackedRows | None:
    """One column of the pieces. None: they have Rows of several kinds, or something else besides."""
    rows = [piece for piece in pieces if isinstance(piece, PackedRows)]
    shape = rows[0].fields, rows[0].row_kind
    if len(rows) < len(pieces) or any((one.fields, one.row_kind) != shape for one in rows):
        return None
    items = _joined([one.items for one in rows], lambda: list(map(_VALUES, values)))
    return PackedRows(*shape, items)


def _joined(pieces: Sequence[Packed], values: Callable[[], Sequence[Any]]) -> Packed:
    """One column of the pieces, which are not Rows. `values`: gives all their values, if the pieces do not fit together."""
    tuples = [piece for piece in pieces if isinstance(piece, PackedTuples)]
    if len(tuples) == len(pieces) and len({len(piece.columns) for piece in tuples}) == 1:
        places = range(len(tuples[0].columns))
        return PackedTuples(tuple([_joined_items(tuples, place, values) for place in places]))
    arrays = [piece.array for piece in pieces if isinstance(piece, PackedValues)]
    if len(arrays) == len(pieces) and len({array.type for array in arrays}) == 1:
        return PackedValues(pa.concat_arrays(arrays))
    return PlainValues(values())


def _joined_items(
    pieces: Sequence[PackedTuples], place: int, values: Callable[[], Sequence[Any]]
) -> Packed:
    items = [piece.columns[place] for piece in pieces]
    return _joined(items, lambda: list(map(itemgetter(place), values())))


@dataclass(frozen=True, slots=True)
class SortedKeys:
    """Keys of keyed state in the order of their key groups, and what one checkpoint leaves for the next. Does not know
    states.

    Most keys of a checkpoint were in the last one too, in the same place, because a dict keeps the order in which its
    keys came. To see that takes a few ns a key; to hash and to pack a text takes 300.

    Keys by key group.

    `keys`: state keys, in the order of the state. `groups`: the key group of each. `order`: where the keys are in the
    order of their key groups. `column`: the keys as users know them, in that order. `bounds`: where each group's keys
    are in it.
    """

    keys: Sequence[Any]
    groups: Channels
    order: pa.Array
    column: Packed
    bounds: dict[int, tuple[int, int]]


@dataclass(slots=True)
class KeyRule:
    """How the keys of a state get their key groups. `last`: keys of the last checkpoint, if they are worth keeping.

    Any thread may replace `last`.
    """

    max_parallelism: int
    is_int32: bool
    keeps: bool = False
    last: SortedKeys | None = None

    def sorted(self, keys: Sequence[Any], groups: NDArray[np.int64] | None = None) -> SortedKeys:
        """`groups`: of the keys, if they are not what the keys say; else None."""
        last = self.last
        if last is not None and last.keys == keys:
            return last
        column = _packed(keys)
        found = self._groups(keys, column, last) if groups is None else self._narrow(groups)
        # To sort by one or two bytes takes no comparisons.
        order = pa.array(np.argsort(found, kind="stable"))
        ends = np.cumsum(np.bincount(found)).tolist()
        bounds = {
            group: (start, end)
            for group, (start, end) in enumerate(pairwise([0, *ends]))
            if start < end
        }
        made = SortedKeys(keys, found, order, column.taken(order), bounds)
        if self.keeps:
            self.last = made
        return made

    def _groups(self, keys: Sequence[Any], column: Packed, last: SortedKeys | None) -> Channels:
        known = 0 if last is None else len(last.keys)
        if last is None or known > len(keys) or keys[:known] != last.keys:
            return self._groups_of(keys, column)
        new = keys[known:]
        return np.concatenate([last.groups, self._groups_of(new, _packed(new))])

    def _groups_of(self, keys: Sequence[Any], column: Packed) -> Channels:
        hashes = None
        if isinstance(column, PackedValues):
            hashes = hash_array(column.array, is_int32=self.is_int32)
        if hashes is not None:
            return self._narrow(groups_of_hashes(hashes, self.max_parallelism))
        originals = list(map(original_key, keys))
        found = key_groups(originals, self.max_parallelism, is_int32=self.is_int32)
        return self._narrow(found)

    def _narrow(self, groups: NDArray[np.int64]) -> Channels:
        return as_channels(groups, self.max_parallelism)


def _packed(keys: Sequence[Any]) -> Packed:
    """The keys as users know them. State keys cannot be changed, but for what an OtherKey stands for."""
    found = packed(keys)
    if found is None:
        keys = list(map(original_key, keys))
        found = packed(keys)
    return PlainValues(keys) if found is None else found
