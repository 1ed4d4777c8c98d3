"""Partial aggregates of column windows: made of rows, combined, finished. Do not know windows or time.

A part holds the partial aggregates of some rows of one pane, with one row for each key: an Arrow table, made by
grouping. The usual case of growing ids, counts by one integer key whose values lie close together, is counted in an
array instead (`Counts`). This needs no hash table and takes a fifth of the time. Rows are numbered as they arrive, and
`first` and `last` compare these numbers, because the panes of one window do not follow each other in the order of
arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.runtime.elements import MAX_WATERMARK, Int64s
from penstock.engine.runtime.keys.hash_arrays import with_equal_floats
from penstock.engine.runtime.records.columns import ColumnAggregate
from penstock.engine.runtime.windowing.assigners import _EventTime

PANE: Final = "__pane__"
_ARRIVAL: Final = "__arrival__"
_DENSE_CELLS_PER_ROW: Final = 4
_DENSE_CELLS_MIN: Final = 1 << 16
_BATCH_ROWS_MIN: Final = 1024
_PARTIALS: Final = {
    "count": ("count",), "sum": ("sum",), "min": ("min",), "max": ("max",),
    "first": ("first_at",), "last": ("last_at",), "avg": ("sum", "count_values"),
}  # fmt: skip
_ARROW: Final = {
    "count": "count_all", "count_values": "count", "sum": "sum", "min": "min", "max": "max",
    "first_at": "min", "last_at": "max",
}  # fmt: skip
_COMBINE: Final = {
    "count": "sum", "count_values": "sum", "sum": "sum", "min": "min", "max": "max",
    "first_at": "min", "last_at": "max",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Counts:
    """`counts[i]` rows have the key `first_key + i`."""

    first_key: int
    counts: Int64s


Part: TypeAlias = "pa.Table | Counts"


class Partials:
    """Which partial columns the aggregates need, and how they are made, combined and finished."""

    def __init__(self, keys: tuple[str, ...], aggregates: Sequence[ColumnAggregate]) -> None:
        self.keys = list(keys)
        self.aggregates = tuple(aggregates)
        self.columns: dict[str, tuple[str, str | None]] = {}
        for aggregate in aggregates:
            for kind in _PARTIALS[aggregate.kind]:
                self.columns[self.name(kind, aggregate.column)] = (kind, aggregate.column)
        inputs = [column for _, column in self.columns.values() if column is not None]
        self.inputs = tuple(dict.fromkeys([*keys, *inputs]))
        self.arrived = 0
        self._ordered = [a for a in self.aggregates if a.kind in {"first", "last"}]

    @staticmethod
    def name(kind: str, column: str | None) -> str:
        return f"__{kind}__{column or ''}"

    def first(self, rows: pa.Table) -> Iterator[tuple[int, Part]]:
        """The parts for rows that have their panes in the column PANE. A pane may be yielded several times."""
        rows = with_equal_floats(self._numbered(rows) if self._ordered else rows, self.keys)
        wanted = [
            ([], "count_all")
            if column is None
            else (_ARRIVAL + column if kind.endswith("_at") else column, _ARROW[kind])
            for kind, column in self.columns.values()
        ]
        grouped = rows.group_by([PANE, *self.keys], use_threads=False).aggregate(wanted)
        grouped = _renamed(grouped, [PANE, *self.keys], list(self.columns))
        for aggregate in self._ordered:
            column = aggregate.column or ""
            numbers = rows.column(_ARRIVAL + column)
            grouped = self._with_values(grouped, aggregate, rows.column(column), numbers)
        return by_pane(grouped)

    def combine(self, parts: Sequence[Part]) -> Part:
        """Combine parts to one."""
        wanted = [(name, _COMBINE[kind]) for name, (kind, _) in self.columns.items()]
        table = self.table(parts)
        grouped = table.group_by(self.keys, use_threads=False).aggregate(wanted)
        grouped = _renamed(grouped, self.keys, list(self.columns))
        for aggregate in self._ordered:
            values, numbers = (
                table.column(self.name(kind, aggregate.column))
                for kind in (aggregate.kind, f"{aggregate.kind}_at")
            )
            grouped = self._with_values(grouped, aggregate, values, numbers)
        return grouped

    def _numbered(self, rows: pa.Table) -> pa.Table:
        """Add the row numbers for each column whose first or last value is wanted; null for rows where the column is null."""
        first = self.arrived
        self.arrived += rows.num_rows
        numbers = pa.array(np.arange(first, self.arrived))
        for column in dict.fromkeys(aggregate.column or "" for aggregate in self._ordered):
            numbered = pc.if_else(rows.column(column).is_valid(), numbers, None)
            rows = rows.append_column(_ARRIVAL + column, numbered)
        return rows

    def _with_values(
        self, grouped: pa.Table, aggregate: ColumnAggregate, values: Any, numbers: Any
    ) -> pa.Table:
        """Add the values whose numbers are in `grouped`."""
        name = self.name(aggregate.kind, aggregate.column)
        if name in grouped.column_names:
            return grouped
        wanted = grouped.column(self.name(f"{aggregate.kind}_at", aggregate.column))
        places = pc.index_in(wanted, value_set=_one_array(numbers), skip_nulls=True)
        return grouped.append_column(name, values.take(places))

    def renumbered(self, table: pa.Table, by: int) -> pa.Table:
        """Shift the row numbers, so that they follow those of another table."""
        for name, (kind, _) in self.columns.items():
            if kind.endswith("_at") and by:
                place = table.schema.get_field_index(name)
                table = table.set_column(place, name, pc.add(table.column(name), by))
        return table

    def table(self, parts: Sequence[Part]) -> pa.Table:
        """One table with the rows of all parts."""
        return pa.concat_tables(parts, promote_options="permissive")

    def finish(self, parts: Sequence[Part], starts: Int64s, ends: Int64s) -> pa.RecordBatch:
        """Key columns, window_start, window_end, results. `starts`, `ends`: of each part's window, shape (len(parts),)."""
        partials = self.table(parts)
        rows = [rows_in(part) for part in parts]
        arrays = [partials.column(name) for name in self.keys]
        arrays += [pa.array(np.repeat(times, rows)) for times in (starts, ends)]
        arrays += [self._result(partials, aggregate) for aggregate in self.aggregates]
        names = [*self.keys, "window_start", "window_end"]
        names += [aggregate.output_name for aggregate in self.aggregates]
        return pa.RecordBatch.from_arrays([_one_array(a) for a in arrays], names=names)

    def _result(self, partials: pa.Table, aggregate: ColumnAggregate) -> pa.ChunkedArray:
        if aggregate.kind != "avg":
            return partials.column(self.name(aggregate.kind, aggregate.column))
        total = partials.column(self.name("sum", aggregate.column)).cast(pa.float64())
        count = partials.column(self.name("count_values", aggregate.column)).cast(pa.float64())
        return pc.divide(total, count)


class DenseCounts(Partials):
    """Only counts, by one integer key. Falls back to grouping if keys lie far apart or are missing."""

    _key_type: pa.DataType = pa.int64()

    def first(self, rows: pa.Table) -> Iterator[tuple[int, Part]]:
        """If the batches together have keys or panes too far apart (channels may differ much in time), they are counted
        one by one.
        """
        batches = rows.to_batches()
        counted = self._counted(rows)
        if counted is not None:
            yield from counted
        elif len(batches) == 1 or rows.num_rows < len(batches) * _BATCH_ROWS_MIN:
            yield from super().first(rows)
        else:
            for batch in batches:
                yield from self.first(pa.Table.from_batches([batch]))

    def _counted(self, rows: pa.Table) -> Iterator[tuple[int, Counts]] | None:
        keys = _integers(rows.column(self.keys[0]))
        if keys is None or not len(keys):
            return None
        self._key_type = rows.schema.field(self.keys[0]).type
        panes = rows.column(PANE).to_numpy()
        first_pane, first_key = int(panes.min()), int(keys.min())
        width = int(keys.max()) - first_key + 1
        cells = (int(panes.max()) - first_pane + 1) * width
        if not _is_dense(cells, len(keys)):
            return None
        counts = np.bincount((panes - first_pane) * width + (keys - first_key), minlength=cells)
        return _trimmed(counts.reshape(-1, width), first_pane, first_key)

    def combine(self, parts: Sequence[Part]) -> Part:
        counted = [part for part in parts if isinstance(part, Counts)]
        if not counted or len(counted) < len(parts):
            return super().combine(parts)
        first_key = min(part.first_key for part in counted)
        width = max(part.first_key + len(part.counts) for part in counted) - first_key
        if not _is_dense(width, sum(len(part.counts) for part in counted)):
            return super().combine(parts)
        total = np.zeros(width, np.int64)
        for part in counted:
            place = part.first_key - first_key
            total[place : place + len(part.counts)] += part.counts
        return Counts(first_key, total)

    def table(self, parts: Sequence[Part]) -> pa.Table:
        return super().table([
            self._as_table(part) if isinstance(part, Counts) else part for part in parts
        ])

    def _as_table(self, part: Counts) -> pa.Table:
        filled = np.flatnonzero(part.counts)
        arrays = [pa.array(filled + part.first_key, self._key_type), pa.array(part.counts[filled])]
        return pa.Table.from_arrays(arrays, names=[self.keys[0], *self.columns])


def rows_in(part: Part) -> int:
    """How many keys the part has."""
    if isinstance(part, Counts):
        return int(np.count_nonzero(part.counts))
    return int(part.num_rows)


def partials_of(keys: tuple[str, ...], aggregates: Sequence[ColumnAggregate]) -> Partials:
    """The fastest kind for these keys and aggregates."""
    is_only_count = all(a.kind == "count" and a.column is None for a in aggregates)
    kind = DenseCounts if len(keys) == 1 and is_only_count else Partials
    return kind(keys, aggregates)


def _integers(column: pa.ChunkedArray) -> Int64s | None:
    """The column as int64; None when it has nulls or is not of integers up to 64 bits."""
    if not pa.types.is_integer(column.type) or pa.types.is_uint64(column.type):
        return None
    if column.null_count:
        return None
    values: Int64s = column.to_numpy().astype(np.int64, copy=False)
    return values


def _trimmed(counts: Int64s, first_pane: int, first_key: int) -> Iterator[tuple[int, Counts]]:
    """The counts of each pane. `counts`: shape (panes, keys). Zeros at both ends of a pane are cut off."""
    for row, of_pane in enumerate(counts):
        filled = np.flatnonzero(of_pane)
        if len(filled):
            low, high = int(filled[0]), int(filled[-1]) + 1
            yield first_pane + row, Counts(first_key + low, of_pane[low:high].copy())


def by_pane(partials: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The partials of each pane, without copying if the rows of each pane stand together."""
    panes = partials.column(PANE).to_numpy()
    rest = partials.drop_columns([PANE])
    if (panes[1:] < panes[:-1]).any():
        order = np.argsort(panes, kind="stable")
        panes, rest = panes[order], rest.take(pa.array(order))
    starts = [0, *(np.flatnonzero(panes[1:] != panes[:-1]) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(panes)], strict=True):
        if end > start:
            yield int(panes[start]), rest.slice(start, end - start)


def _is_dense(cells: int, rows: int) -> bool:
    return cells <= max(_DENSE_CELLS_MIN, _DENSE_CELLS_PER_ROW * rows)


def _renamed(table: pa.Table, by: list[str], partials: list[str]) -> pa.Table:
    """Rename the columns of a grouped table, which are named by function. Relies on the order of the columns."""
    keys_first = table.column_names[: len(by)] == by
    if keys_first:
        return table.rename_columns([*by, *partials])
    count = len(partials)
    renamed = table.rename_columns([*partials, *table.column_names[count:]])
    return renamed.select([*by, *partials])


def _one_array(array: Any) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


_FLUSH_ROWS: Final = 1 << 16
_COMPACT_PARTS: Final = 8


class PaneGrid:
    """Which windows contain which panes. Windows are named by their start, panes by their number; times are epoch ms."""

    def __init__(self, windows: _EventTime, allowed_lateness_ms: int) -> None:
        self._size = windows.size
        self._slide, self._offset = windows.slide, windows.offset
        self._allowed_lateness_ms = allowed_lateness_ms
        self._pane_ms, self._pane_zero_ms = windows.pane_ms, windows.pane_zero_ms
        self.panes_of, self.end, self.window = windows.panes_of, windows.last_ms, windows.window

    def starts(self, pane: int) -> range:
        """The windows that contain the pane, oldest first."""
        begin = pane * self._pane_ms + self._pane_zero_ms
        slide, size = self._slide, self._size
        newest = begin - (begin - self._offset) % slide
        count = max(0, -((begin - newest - size) // slide))
        return range(newest - (count - 1) * slide, newest + 1, slide)

    def panes_in(self, start: int) -> range:
        """The panes of a window."""
        first = (start - self._pane_zero_ms) // self._pane_ms
        return range(first, first + self._size // self._pane_ms)

    def cleanup_ms(self, start: int) -> int:
        """The watermark from which on a window takes no late records."""
        return min(self.end(start) + self._allowed_lateness_ms, MAX_WATERMARK)

    def is_late(self, pane: int, watermark: int) -> bool:
        """Whether no window takes the pane's records: all are cleaned up, or the pane lies in a gap between windows."""
        starts = self.starts(pane)
        return len(starts) == 0 or self.cleanup_ms(starts[-1]) <= watermark

    def count_late(self, stamps: Int64s, watermark: int) -> int:
        """Return how many timestamps are late by more than the allowed lateness."""
        return int(np.count_nonzero(stamps <= watermark - self._allowed_lateness_ms))


class PaneStore:
    """Panes of tumbling and sliding windows, and the partial aggregates that are kept for each.

    A pane is the widest slice of time that no window cuts. Does not know the watermark.

    Partial aggregates by pane. New rows are gathered first, so that many are grouped at once.
    """

    def __init__(self, partials: Partials) -> None:
        self.partials = partials
        self._rows: list[pa.RecordBatch] = []
        self._row_count = 0
        self._parts: dict[int, list[Part]] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._parts)

    def keep(self, data: pa.RecordBatch, panes: Int64s) -> None:
        """Gather rows. Args: panes: the pane of each row."""
        arrays = [pa.array(panes), *data.columns]
        names = [PANE, *self.partials.inputs]
        self._rows.append(pa.RecordBatch.from_arrays(arrays, names=names))
        self._row_count += data.num_rows
        if self._row_count >= _FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Group the gathered rows into partials per pane."""
        if not self._rows:
            return
        rows = pa.concat_tables(
            [pa.Table.from_batches([part]) for part in self._rows], promote_options="permissive"
        )
        self._rows, self._row_count = [], 0
        self.add(self.partials.first(rows))

    def add(self, found: Iterable[tuple[int, Part]]) -> None:
        """Add partials with their panes. A pane may come several times."""
        for pane, part in found:
            parts = self._parts.setdefault(pane, [])
            parts.append(part)
            if len(parts) >= _COMPACT_PARTS:
                self._parts[pane] = [self.partials.combine(parts)]

    def put_back(self, found: Iterable[tuple[int, Part]]) -> None:
        """Add restored partials, without combining them yet."""
        for pane, part in found:
            self._parts.setdefault(pane, []).append(part)

    def contents(self, panes: Iterable[int]) -> Part | None:
        """All partials of these panes, as one; None if there are none. Gathered rows are not included."""
        parts = [part for pane in panes for part in self._parts.get(pane, ())]
        return self.partials.combine(parts) if parts else None

    def forget(self, is_late: Callable[[int], bool]) -> None:
        for pane in [pane for pane in self._parts if is_late(pane)]:
            del self._parts[pane]

    def held_rows(self) -> int:
        """How many rows all partials have."""
        return sum(rows_in(part) for parts in self._parts.values() for part in parts)

    def take(self) -> list[pa.Table]:
        """Remove all partials: a table per pane, with the pane in the column PANE."""
        held, self._parts = self._parts, {}
        return [
            _with_pane(self.partials.table([self.partials.combine(parts)]), pane)
            for pane, parts in held.items()
        ]

    def table(self) -> pa.Table | None:
        """All partials with their panes in the column PANE; None if there are none. They are not removed."""
        tables = [
            _with_pane(self.partials.table(parts), pane)
            for pane, parts in self._parts.items()
            if parts
        ]
        return pa.concat_tables(tables, promote_options="permissive") if tables else None


def _with_pane(table: pa.Table, pane: int) -> pa.Table:
    return table.append_column(PANE, pa.array(np.full(table.num_rows, pane)))


def distinct(panes: Int64s) -> list[int]:
    """The distinct panes in order. The panes of a batch are few and close together, so counting is faster than sorting."""
    if len(panes) == 0:
        return []
    low, high = int(panes.min()), int(panes.max())
    if low == high:
        return [low]
    if high - low < 4096:
        return list((np.flatnonzero(np.bincount(panes - low)) + low).tolist())
    return list(np.unique(panes).tolist())
