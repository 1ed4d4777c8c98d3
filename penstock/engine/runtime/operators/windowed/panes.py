"""Panes of tumbling and sliding windows, and the partial aggregates that are kept for each.

A pane is the widest slice of time that no window cuts. Does not know the watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.runtime.elements import MAX_WATERMARK, Int64s
from penstock.engine.runtime.operators.windowed.column_partials import PANE, Part, Partials, rows_in
from penstock.engine.runtime.windowing.assigners import _EventTime

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
        """How many timestamps are behind the watermark by more than the allowed lateness."""
        return int(np.count_nonzero(stamps <= watermark - self._allowed_lateness_ms))


class PaneStore:
    """Partial aggregates by pane. New rows are gathered first, so that many are grouped at once."""

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
