"""Partial aggregates of column windows: made of rows, combined, finished. Know no window and no time.

Rows are grouped by (pane, keys) in Arrow. Counts by one integer key whose values lie close together, the usual
case of ids that grow, are counted in an array instead: no hash table, a fifth of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.columns import ColumnAggregate
from penstock.runtime.elements import Int64s

PANE: Final = "__pane__"
_DENSE_CELLS_PER_ROW: Final = 4
_DENSE_CELLS_MIN: Final = 1 << 16
_BATCH_ROWS_MIN: Final = 1024
_PARTIALS: Final = {
    "count": ("count",), "sum": ("sum",), "min": ("min",), "max": ("max",),
    "first": ("first",), "last": ("last",), "avg": ("sum", "count_values"),
}  # fmt: skip
_ARROW: Final = {
    "count": "count_all", "count_values": "count", "sum": "sum", "min": "min", "max": "max",
    "first": "first", "last": "last",
}  # fmt: skip
_COMBINE: Final = {
    "count": "sum", "count_values": "sum", "sum": "sum", "min": "min", "max": "max",
    "first": "first", "last": "last",
}  # fmt: skip


class Partials:
    """Which partial columns the aggregates need, how they are made, combined and finished."""

    def __init__(self, keys: tuple[str, ...], aggregates: Sequence[ColumnAggregate]) -> None:
        self.keys = list(keys)
        self.aggregates = tuple(aggregates)
        self.columns: dict[str, tuple[str, str | None]] = {}
        for aggregate in aggregates:
            for kind in _PARTIALS[aggregate.kind]:
                self.columns[self.name(kind, aggregate.column)] = (kind, aggregate.column)
        self.inputs = list(dict.fromkeys(c for _, c in self.columns.values() if c is not None))

    @staticmethod
    def name(kind: str, column: str | None) -> str:
        return f"__{kind}__{column or ''}"

    def first(self, table: pa.Table) -> pa.Table:
        """Rows to partials by (pane, keys)."""
        wanted = [
            ([], "count_all") if column is None else (column, _ARROW[kind])
            for kind, column in self.columns.values()
        ]
        grouped = table.group_by([PANE, *self.keys], use_threads=False).aggregate(wanted)
        return _renamed(grouped, [PANE, *self.keys], list(self.columns))

    def combine(self, tables: Sequence[pa.Table], by: list[str]) -> pa.Table:
        """Partials to fewer partials, in the tables' order."""
        wanted = [(name, _COMBINE[kind]) for name, (kind, _) in self.columns.items()]
        table = pa.concat_tables(tables, promote_options="permissive")
        grouped = table.group_by(by, use_threads=False).aggregate(wanted)
        return _renamed(grouped, by, list(self.columns))

    def finish(self, partials: pa.Table, start: int, end: int) -> pa.RecordBatch:
        """Keys, window_start, window_end, results."""
        rows = partials.num_rows
        arrays = [partials.column(name).combine_chunks() for name in self.keys]
        arrays += [pa.array(np.full(rows, start, np.int64)), pa.array(np.full(rows, end, np.int64))]
        arrays += [self._result(partials, aggregate) for aggregate in self.aggregates]
        names = [*self.keys, "window_start", "window_end"]
        names += [aggregate.output_name for aggregate in self.aggregates]
        return pa.RecordBatch.from_arrays([_one_array(a) for a in arrays], names=names)

    def _result(self, partials: pa.Table, aggregate: ColumnAggregate) -> Any:
        if aggregate.kind != "avg":
            return partials.column(self.name(aggregate.kind, aggregate.column)).combine_chunks()
        total = partials.column(self.name("sum", aggregate.column)).cast(pa.float64())
        count = partials.column(self.name("count_values", aggregate.column)).cast(pa.float64())
        return pc.divide(total, count).combine_chunks()


class DenseCounts(Partials):
    """Only counts, by one integer key. Falls back to grouping when keys lie far apart or are missing."""

    def first(self, table: pa.Table) -> pa.Table:
        """Batches of channels that are far apart in time are counted one by one; a (pane, key) may then
        come several times.
        """
        counted = self._counted(table)
        if counted is not None:
            return counted
        batches = table.to_batches()
        if len(batches) == 1 or table.num_rows < len(batches) * _BATCH_ROWS_MIN:
            return super().first(table)
        pieces = [pa.Table.from_batches([batch]) for batch in batches]
        made = []
        for piece in pieces:
            counted = self._counted(piece)
            made.append(super().first(piece) if counted is None else counted)
        return pa.concat_tables(made, promote_options="permissive")

    def _counted(self, table: pa.Table) -> pa.Table | None:
        keys = _integers(table.column(self.keys[0]))
        if keys is None or not len(keys):
            return None
        panes = table.column(PANE).to_numpy()
        first_pane, first_key = int(panes.min()), int(keys.min())
        width = int(keys.max()) - first_key + 1
        cells = (int(panes.max()) - first_pane + 1) * width
        if not _is_dense(cells, len(keys)):
            return None
        counts = np.bincount((panes - first_pane) * width + (keys - first_key), minlength=cells)
        filled = np.flatnonzero(counts)
        made = self._table(table, filled % width + first_key, counts[filled])
        return made.add_column(0, PANE, pa.array(filled // width + first_pane))

    def combine(self, tables: Sequence[pa.Table], by: list[str]) -> pa.Table:
        table = pa.concat_tables(tables, promote_options="permissive")
        keys = _integers(table.column(self.keys[0])) if by == self.keys else None
        if keys is None or not len(keys):
            return super().combine(tables, by)
        first_key = int(keys.min())
        cells = int(keys.max()) - first_key + 1
        if not _is_dense(cells, len(keys)):
            return super().combine(tables, by)
        weights = table.column(next(iter(self.columns))).to_numpy()
        counts = np.bincount(keys - first_key, weights=weights)  # exact below 2^53 rows
        filled = np.flatnonzero(counts)
        return self._table(table, filled + first_key, counts[filled].astype(np.int64))

    def _table(self, like: pa.Table, keys: Int64s, counts: Int64s) -> pa.Table:
        key_type = like.schema.field(self.keys[0]).type
        arrays = [pa.array(keys, key_type), pa.array(counts)]
        return pa.Table.from_arrays(arrays, names=[self.keys[0], next(iter(self.columns))])


def partials_of(keys: tuple[str, ...], aggregates: Sequence[ColumnAggregate]) -> Partials:
    """The quickest kind for these keys and aggregates."""
    is_only_count = all(a.kind == "count" and a.column is None for a in aggregates)
    kind = DenseCounts if len(keys) == 1 and is_only_count else Partials
    return kind(keys, aggregates)


def _integers(column: pa.ChunkedArray) -> Int64s | None:
    """As int64, or None when the column has nulls or anything else in it."""
    if not pa.types.is_integer(column.type) or pa.types.is_uint64(column.type):
        return None
    if column.null_count:
        return None
    values: Int64s = column.to_numpy().astype(np.int64, copy=False)
    return values


def _is_dense(cells: int, rows: int) -> bool:
    return cells <= max(_DENSE_CELLS_MIN, _DENSE_CELLS_PER_ROW * rows)


def _renamed(table: pa.Table, by: list[str], partials: list[str]) -> pa.Table:
    """Grouped tables name their columns by function; the order is what we rely on."""
    keys_first = table.column_names[: len(by)] == by
    if keys_first:
        return table.rename_columns([*by, *partials])
    count = len(partials)
    renamed = table.rename_columns([*partials, *table.column_names[count:]])
    return renamed.select([*by, *partials])


def _one_array(array: Any) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
