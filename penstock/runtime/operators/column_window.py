"""ColumnWindowOperator: tumbling and sliding event-time aggregates over columns.

No Python object is made per record: rows are grouped by (pane, key) in Arrow, a pane being the widest slice
that all windows share; panes are combined when the watermark completes a window. Source: Flink's sliced
window aggregation of the SQL runtime; differs: a record within the allowed lateness fires its windows again
once per batch and key, not once per record.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.runtime.columns import ColumnAggregate
from penstock.runtime.elements import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    NO_TIMESTAMP,
    Batch,
    ColumnBatch,
    Int64s,
    Watermark,
)
from penstock.runtime.keys import KeySelection
from penstock.runtime.operator import Accepts, Emitted, Operator, OperatorContext
from penstock.runtime.operators.column_partials import PANE, partials_of
from penstock.runtime.operators.columns import columns_of
from penstock.runtime.windowing.assigners import WindowAssigner, _EventTime, checked_timestamp

_FLUSH_ROWS: Final = 1 << 16
_COMPACT_TABLES: Final = 8


class ColumnWindowOperator(Operator):
    """Emits key columns, `window_start`, `window_end` (epoch ms) and the aggregates' columns."""

    accepts = Accepts.COLUMNS

    def __init__(
        self,
        assigner: WindowAssigner,
        keys: KeySelection,
        aggregates: tuple[ColumnAggregate, ...],
        allowed_lateness_ms: int = 0,
    ) -> None:
        if not isinstance(assigner, _EventTime):
            raise TypeError(
                "column aggregates take tumbling or sliding event-time windows, got "
                f"{type(assigner).__name__}; use an AggregateFunction on rows for others"
            )
        names = [aggregate.output_name for aggregate in aggregates]
        names += [*(keys.columns or ()), "window_start", "window_end"]
        if not aggregates or len(set(names)) != len(names):
            raise ValueError(
                f"column aggregates need at least one aggregate and different names, got {names}; "
                "rename with .alias('name')"
            )
        self.grid = assigner
        self.keys = keys
        self.aggregates = aggregates
        self.allowed_lateness_ms = allowed_lateness_ms
        self._restored: dict[str, Any] = {}

    def open(self, context: OperatorContext) -> None:
        self._count_late = context.late_records_dropped
        self._partials = partials_of(self.keys.columns or (), self.aggregates)
        self._pane_ms = int(np.gcd(self.grid.size, self.grid.slide))
        self._watermark = MIN_WATERMARK
        self._rows: list[pa.RecordBatch] = []
        self._row_count = 0
        self._panes: dict[int, list[pa.Table]] = self._restored.pop("panes", {})
        self._to_fire: list[int] = list(self._restored.pop("to_fire", ()))
        self._known = set(self._to_fire)
        heapify(self._to_fire)

    # ------------------------------------------------------------------ records

    def process(self, batch: Batch, input_index: int) -> Emitted:
        columns = columns_of(batch)
        stamps = columns.timestamps
        if stamps is None or (len(stamps) and int(stamps.min()) == NO_TIMESTAMP):
            checked_timestamp(NO_TIMESTAMP, columns.data.slice(0, 1).to_pylist())
            return ()
        panes = (stamps - self.grid.offset) // self._pane_ms
        present = _distinct(panes)
        late = [pane for pane in present if self._is_pane_late(pane)]
        data = columns.data
        if late:
            is_late = np.isin(panes, np.array(late))
            self._drop_late(stamps[is_late])
            data, panes = data.filter(pa.array(~is_late)), panes[~is_late]
            present = [pane for pane in present if pane not in set(late)]
        self._announce(present)
        if data.num_rows:
            self._keep(data, panes)
        refired = [start for pane in present for start in self._fired_windows(pane)]
        return self._refire(sorted(set(refired)), data) if refired else ()

    def _keep(self, data: pa.RecordBatch, panes: Int64s) -> None:
        names = list(dict.fromkeys([*self._partials.keys, *self._partials.inputs]))
        for name in names:
            if name not in data.schema.names:
                raise KeyError(
                    f"column {name!r} is not in this stream; its columns are {data.schema.names}"
                )
        arrays = [pa.array(panes), *(data.column(name) for name in names)]
        self._rows.append(pa.RecordBatch.from_arrays(arrays, names=[PANE, *names]))
        self._row_count += data.num_rows
        if self._row_count >= _FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        """Group the rows at hand into partials per pane."""
        if not self._rows:
            return
        rows = pa.concat_tables(
            [pa.Table.from_batches([part]) for part in self._rows], promote_options="permissive"
        )
        self._rows, self._row_count = [], 0
        partials = self._partials.first(rows)
        for pane, part in _by_pane(partials):
            tables = self._panes.setdefault(pane, [])
            tables.append(part)
            if len(tables) >= _COMPACT_TABLES:
                self._panes[pane] = [self._partials.combine(tables, self._partials.keys)]

    # ------------------------------------------------------------------ windows of panes

    def _starts(self, pane: int) -> range:
        """Starts of the windows that contain the pane, oldest first."""
        begin = pane * self._pane_ms + self.grid.offset
        slide, size = self.grid.slide, self.grid.size
        newest = begin - (begin - self.grid.offset) % slide
        count = max(0, -((begin - newest - size) // slide))
        return range(newest - (count - 1) * slide, newest + 1, slide)

    def _cleanup_ms(self, start: int) -> int:
        return min(start + self.grid.size - 1 + self.allowed_lateness_ms, MAX_WATERMARK)

    def _is_pane_late(self, pane: int) -> bool:
        """No window takes its records: all are cleaned up, or the pane lies in a gap."""
        starts = self._starts(pane)
        return len(starts) == 0 or self._cleanup_ms(starts[-1]) <= self._watermark

    def _drop_late(self, stamps: Int64s) -> None:
        limit = self._watermark - self.allowed_lateness_ms
        dropped = int(np.count_nonzero(stamps <= limit))
        if dropped and self._count_late is not None:
            self._count_late.inc(dropped)

    def _announce(self, panes: list[int]) -> None:
        for pane in panes:
            for start in self._starts(pane):
                if start not in self._known and start + self.grid.size - 1 > self._watermark:
                    self._known.add(start)
                    heappush(self._to_fire, start)

    def _fired_windows(self, pane: int) -> list[int]:
        """Windows that fired already and still take late records."""
        size, now = self.grid.size, self._watermark
        return [s for s in self._starts(pane) if s + size - 1 <= now < self._cleanup_ms(s)]

    # ------------------------------------------------------------------ firing

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        now = self._watermark = watermark.timestamp_ms
        size = self.grid.size
        if self._to_fire and self._to_fire[0] + size - 1 <= now:
            self._flush()
        while self._to_fire and self._to_fire[0] + size - 1 <= now:
            start = heappop(self._to_fire)
            self._known.discard(start)
            fired = self._fire(start)
            if fired is not None:
                yield fired
        self._forget()
        yield watermark

    def _fire(self, start: int, only: pa.Table | None = None) -> ColumnBatch | None:
        """Result of a window; with `only`, of these keys."""
        width = self.grid.size // self._pane_ms
        first = (start - self.grid.offset) // self._pane_ms
        tables = [t for pane in range(first, first + width) for t in self._panes.get(pane, ())]
        if not tables:
            return None
        combined = self._partials.combine(tables, self._partials.keys)
        if only is not None and self._partials.keys:
            combined = combined.join(only, keys=self._partials.keys, join_type="left semi")
        end = start + self.grid.size
        data = self._partials.finish(combined, start, end)
        return ColumnBatch(data, np.full(data.num_rows, end - 1, np.int64))

    def _refire(self, starts: list[int], data: pa.RecordBatch) -> Emitted:
        self._flush()
        keys = self._partials.keys
        only = pa.Table.from_batches([data]).select(keys) if keys else None
        fired = [self._fire(start, only) for start in starts]
        return [batch for batch in fired if batch is not None]

    def _forget(self) -> None:
        for pane in [pane for pane in self._panes if self._is_pane_late(pane)]:
            del self._panes[pane]

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> dict[str, Any]:
        """Partials per pane, as Arrow tables."""
        self._flush()
        return {"panes": dict(self._panes), "to_fire": list(self._to_fire)}

    def restore(self, state: dict[str, Any]) -> None:
        self._restored = dict(state)


def _by_pane(partials: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The partials of each pane; cut without copying where they stand together."""
    panes = partials.column(PANE).to_numpy()
    rest = partials.drop_columns([PANE])
    if (panes[1:] < panes[:-1]).any():
        for pane in _distinct(panes):
            yield pane, rest.filter(pa.array(panes == pane))
        return
    starts = [0, *(np.flatnonzero(panes[1:] != panes[:-1]) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(panes)], strict=True):
        if end > start:
            yield int(panes[start]), rest.slice(start, end - start)


def _distinct(panes: Int64s) -> list[int]:
    """Distinct panes in order. Panes of a batch are few and close: counting beats sorting."""
    if len(panes) == 0:
        return []
    low, high = int(panes.min()), int(panes.max())
    if low == high:
        return [low]
    if high - low < 4096:
        return list((np.flatnonzero(np.bincount(panes - low)) + low).tolist())
    return list(np.unique(panes).tolist())
