"""ColumnWindowOperator: tumbling and sliding event-time aggregates over columns.

No Python object is made per record: Arrow groups rows by (pane, key). A pane is the widest slice of time
that no window cuts. Panes are combined when the watermark completes a window. Source: Flink's sliced
window aggregation of the SQL runtime, whose watermark is restored too; differs: a record within the allowed lateness fires
its windows again once per batch and key, not once per record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from penstock.runtime.keys.hashing import is_int32_type
from penstock.runtime.operator import (
    Accepts,
    BatchOrder,
    Combining,
    Emitted,
    Operator,
    OperatorContext,
)
from penstock.runtime.operators.columns import columns_of
from penstock.runtime.operators.windowed.column_partials import (
    PANE,
    Part,
    Partials,
    by_pane,
    partials_of,
    rows_in,
)
from penstock.runtime.records.columns import ColumnAggregate
from penstock.runtime.records.frozen import Column
from penstock.runtime.state.snapshot import KeyedPart, OperatorSnapshot, StateInfo, check_restored
from penstock.runtime.windowing.assigners import WindowAssigner, _EventTime, checked_timestamp

PANES: Final = "panes"
_FLUSH_ROWS: Final = 1 << 16
_COMPACT_PARTS: Final = 8
_MAX_FIRED_ROWS: Final = 1 << 16
_MOST_PARTIALS: Final = 1 << 17
_BY_ARRIVAL: Final = frozenset({"first", "last"})


class ColumnWindowOperator(Operator):
    """Emits key columns, `window_start`, `window_end` (epoch ms) and the aggregates' columns.

    Windows that one watermark completes come in one batch, the oldest first.
    """

    accepts = Accepts.COLUMNS
    batch_order = BatchOrder.BY_TIME

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
        self._partials = partials_of(keys.columns or (), aggregates)
        self._restored: KeyedPart | None = None
        self._info = StateInfo("Column windows", _contents_text(assigner, keys, aggregates))

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The input columns that it reads; others need not be sent."""
        return self._partials.inputs

    def open(self, context: OperatorContext) -> None:
        self._count_late = context.late_records_dropped
        self._pane_ms = int(np.gcd(self.grid.size, self.grid.slide))
        self._watermark = MIN_WATERMARK
        self._rows: list[pa.RecordBatch] = []
        self._row_count = 0
        self._max_parallelism, self._subtask = context.max_parallelism, context.subtask
        self._panes: dict[int, list[Part]] = {}
        self._known: set[int] = set()
        self._fired_groups: dict[int, set[int]] = {}
        self._reached: dict[int, int] = {}
        if self._restored is not None:
            check_restored(context.operator_id, PANES, self._restored.info, self._info)
            self._put_back(self._restored)
            self._restored = None
        self._to_fire = sorted(self._known)

    # ------------------------------------------------------------------ records

    def process(self, batch: Batch, input_index: int) -> Emitted:
        data, panes = self._timely(columns_of(batch))
        present = _distinct(panes)
        self._announce(present)
        if data.num_rows:
            self._fire_again_later(data, panes)
            self._keep(data, panes)
        refired = [start for pane in present for start in self._fired_windows(pane)]
        return self._refire(sorted(set(refired)), data) if refired else ()

    def _timely(self, columns: ColumnBatch) -> tuple[pa.RecordBatch, Int64s]:
        """The needed columns of the rows that some window takes, and the panes of these rows."""
        stamps = columns.timestamps
        data = columns.select(self._partials.inputs).data
        if stamps is None or (len(stamps) and int(stamps.min()) == NO_TIMESTAMP):
            checked_timestamp(NO_TIMESTAMP, columns.data.slice(0, 1).to_pylist())
            return data.slice(0, 0), np.zeros(0, np.int64)
        panes = (stamps - self.grid.offset) // self._pane_ms
        late = [pane for pane in _distinct(panes) if self._is_pane_late(pane)]
        if late:
            is_late = np.isin(panes, np.array(late))
            self._drop_late(stamps[is_late])
            data, panes = data.filter(pa.array(~is_late)), panes[~is_late]
        return data, panes

    def _keep(self, data: pa.RecordBatch, panes: Int64s) -> None:
        arrays = [pa.array(panes), *data.columns]
        names = [PANE, *self._partials.inputs]
        self._rows.append(pa.RecordBatch.from_arrays(arrays, names=names))
        self._row_count += data.num_rows
        if self._row_count >= _FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        """Group the gathered rows into partials per pane."""
        if not self._rows:
            return
        rows = pa.concat_tables(
            [pa.Table.from_batches([part]) for part in self._rows], promote_options="permissive"
        )
        self._rows, self._row_count = [], 0
        self._add(self._partials.first(rows))

    def _add(self, found: Iterable[tuple[int, Part]]) -> None:
        for pane, part in found:
            parts = self._panes.setdefault(pane, [])
            parts.append(part)
            if len(parts) >= _COMPACT_PARTS:
                self._panes[pane] = [self._partials.combine(parts)]

    # ------------------------------------------------------------------ windows of panes

    def _starts(self, pane: int) -> range:
        """The starts of the windows that contain the pane, oldest first."""
        begin = pane * self._pane_ms + self.grid.offset
        slide, size = self.grid.slide, self.grid.size
        newest = begin - (begin - self.grid.offset) % slide
        count = max(0, -((begin - newest - size) // slide))
        return range(newest - (count - 1) * slide, newest + 1, slide)

    def _cleanup_ms(self, start: int) -> int:
        return min(start + self.grid.size - 1 + self.allowed_lateness_ms, MAX_WATERMARK)

    def _is_pane_late(self, pane: int) -> bool:
        """Whether no window takes the pane's records: all are cleaned up, or the pane lies in a gap between windows."""
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
        """Windows that have fired already and still take late records."""
        size, now = self.grid.size, self._watermark
        return [s for s in self._starts(pane) if s + size - 1 <= now < self._cleanup_ms(s)]

    # ------------------------------------------------------------------ firing

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        # The restored watermark is higher.
        if watermark.timestamp_ms < self._watermark:
            watermark = Watermark(self._watermark)
        now = self._watermark = watermark.timestamp_ms
        size = self.grid.size
        if self._to_fire and self._to_fire[0] + size - 1 <= now:
            self._flush()
        fired = _Fired(self._partials, size)
        while self._to_fire and self._to_fire[0] + size - 1 <= now:
            start = heappop(self._to_fire)
            self._known.discard(start)
            fired.add(start, self._not_fired(start, self._contents(start)))
            if fired.rows >= _MAX_FIRED_ROWS:
                yield from fired.take()
        yield from fired.take()
        self._forget()
        yield watermark

    def _contents(self, start: int) -> Part | None:
        """All contents of a window, as one part."""
        width = self.grid.size // self._pane_ms
        first = (start - self.grid.offset) // self._pane_ms
        parts = [part for pane in range(first, first + width) for part in self._panes.get(pane, ())]
        return self._partials.combine(parts) if parts else None

    def _not_fired(self, start: int, contents: Part | None) -> Part | None:
        """The contents without keys for which the window fired already, at a former subtask with a later watermark."""
        fired = self._fired_groups.pop(start, None)
        if fired is None or contents is None:
            return contents
        table = self._partials.table([contents])
        return table.filter(pa.array(~np.isin(self._groups_of(table), list(fired))))

    def _fire_again_later(self, data: pa.RecordBatch, panes: Int64s) -> None:
        """New records for windows that fired at a former subtask: they fire again, for all keys of the key group."""
        if not self._fired_groups:
            return
        groups = self._groups_of(pa.Table.from_batches([data]))
        for pane in _distinct(panes):
            found = set(groups[panes == pane].tolist())
            for start in self._starts(pane):
                if start in self._fired_groups:
                    self._fired_groups[start] -= found

    def _refire(self, starts: list[int], data: pa.RecordBatch) -> Emitted:
        """The results of these windows, for the keys in `data`."""
        self._flush()
        keys = self._partials.keys
        only = pa.Table.from_batches([data]).select(keys)
        fired = _Fired(self._partials, self.grid.size)
        for start in starts:
            contents = self._contents(start)
            if contents is not None and keys:
                table = self._partials.table([contents])
                contents = table.join(only, keys=keys, join_type="left semi")
            fired.add(start, contents)
        return list(fired.take())

    def _forget(self) -> None:
        for pane in [pane for pane in self._panes if self._is_pane_late(pane)]:
            del self._panes[pane]

    def before_exchange(self) -> Combining | None:
        return _combining(self.grid, self.keys, self.aggregates)

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> OperatorSnapshot:
        """A row per key group: its partials, its windows to fire, the subtask's number of records, index and watermark."""
        self._flush()
        groups, tables = self._by_group()
        count = len(tables)
        numbers: list[int] = groups.tolist()
        columns: list[Column] = [
            tables,
            [self._to_fire_in(group) for group in numbers],
            [self._partials.arrived] * count,
            [self._subtask] * count,
            [max(self._watermark, self._reached.get(group, MIN_WATERMARK)) for group in numbers],
        ]
        is_int32 = is_int32_type(self.keys.key_type)
        part = KeyedPart(self._info, self._max_parallelism, is_int32, numbers, columns, groups)
        return OperatorSnapshot({PANES: part})

    def restore(self, snapshot: OperatorSnapshot) -> None:
        # The prefix is the whole name of the part, so the rest of the name is empty.
        self._restored = snapshot.take(PANES).get("")

    def _to_fire_in(self, group: int) -> tuple[int, ...]:
        fired = self._fired_groups
        return tuple(s for s in sorted(self._to_fire) if group not in fired.get(s, ()))

    def _by_group(self) -> tuple[Int64s, list[pa.Table]]:
        """The key groups that have partials, and the partials of each."""
        panes = [
            (pane, self._partials.table(parts)) for pane, parts in self._panes.items() if parts
        ]
        if not panes:
            return np.zeros(0, np.int64), []
        table = pa.concat_tables(
            [t.append_column(PANE, pa.array(np.full(t.num_rows, pane))) for pane, t in panes],
            promote_options="permissive",
        )
        groups = self._groups_of(table)
        order = np.argsort(groups, kind="stable")
        table, groups = table.take(pa.array(order)), groups[order]
        found, starts = np.unique(groups, return_index=True)
        lengths = np.diff([*starts.tolist(), len(groups)]).tolist()
        pieces = zip(starts.tolist(), lengths, strict=True)
        return found, [table.slice(start, length) for start, length in pieces]

    def _groups_of(self, table: pa.Table) -> Int64s:
        """The key group of each row. Without a key all rows are in the first one."""
        if not self._partials.keys or not table.num_rows:
            return np.zeros(table.num_rows, np.int64)
        batch = ColumnBatch(
            table.select(self._partials.keys).combine_chunks().to_batches()[0], None
        )
        count = self._max_parallelism
        return self.keys.channels_of_columns(batch, count, count).astype(np.int64)

    def _put_back(self, part: KeyedPart) -> None:
        """Take over the state of former subtasks. Each of them numbered its records from 0, so their numbers are shifted apart. Their
        watermarks can differ: the lowest counts, and what had fired at others is remembered by key group.
        """
        begins: dict[int, int] = {}
        tables: dict[int, list[pa.Table]] = {}
        waiting: dict[int, tuple[int, ...]] = {}
        for group, table, to_fire, arrived, subtask, watermark in part.rows():
            self._known.update(to_fire)
            waiting[group], self._reached[group] = to_fire, watermark
            if subtask not in begins:
                begins[subtask] = self._partials.arrived
                self._partials.arrived += arrived
            tables.setdefault(subtask, []).append(table)
        for subtask, of_one in tables.items():
            whole = pa.concat_tables(of_one, promote_options="permissive")
            for pane, partial in by_pane(self._partials.renumbered(whole, begins[subtask])):
                self._panes.setdefault(pane, []).append(partial)
        self._watermark = min(self._reached.values(), default=MIN_WATERMARK)
        for start in {start for pane in self._panes for start in self._starts(pane)}:
            end = start + self.grid.size - 1
            fired = {
                group
                for group, mark in self._reached.items()
                if end <= mark and start not in waiting[group]
            }
            if fired and end > self._watermark:
                self._fired_groups[start] = fired


def _contents_text(
    grid: _EventTime, keys: KeySelection, aggregates: tuple[ColumnAggregate, ...]
) -> str:
    """A text that describes the partials."""
    kinds = ", ".join(f"{one.kind}({one.column or '*'})" for one in aggregates)
    names = ", ".join(keys.columns or ()) or "nothing"
    return f"{kinds} by {names}, size {grid.size}, slide {grid.slide}, offset {grid.offset} ms"


def _combining(
    grid: _EventTime, keys: KeySelection, aggregates: tuple[ColumnAggregate, ...]
) -> Combining | None:
    """None if an aggregate depends on the order in which records arrive, which partial aggregates do not keep."""
    if any(one.kind in _BY_ARRIVAL for one in aggregates):
        return None
    partial = PartialColumnWindowOperator(grid, keys, aggregates)
    final = FinalColumnWindowOperator(grid, keys, aggregates)
    return Combining(partial, final, keys, keeps_type=False)


class PartialColumnWindowOperator(ColumnWindowOperator):
    """Runs in BATCH before the exchange: emits keys, partial aggregates, and the pane of each row. Source: Flink's SQL, whose windowed
    aggregates have a local and a global half.
    """

    def process(self, batch: Batch, input_index: int) -> Emitted:
        data, panes = self._timely(columns_of(batch))
        if data.num_rows:
            self._keep(data, panes)
        held = sum(rows_in(part) for parts in self._panes.values() for part in parts)
        if held >= _MOST_PARTIALS:
            yield from self._take()

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        return (watermark,)

    def finish(self) -> Emitted:
        self._flush()
        yield from self._take()

    def _take(self) -> Iterator[ColumnBatch]:
        held, self._panes = self._panes, {}
        tables = []
        for pane, parts in held.items():
            table = self._partials.table([self._partials.combine(parts)])
            tables.append(table.append_column(PANE, pa.array(np.full(table.num_rows, pane))))
        if tables:
            whole = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
            for data in whole.to_batches():
                yield ColumnBatch(data, None)


class FinalColumnWindowOperator(ColumnWindowOperator):
    """Takes the output of `PartialColumnWindowOperator`."""

    def before_exchange(self) -> Combining | None:
        return None

    def process(self, batch: Batch, input_index: int) -> Emitted:
        table = pa.Table.from_batches([columns_of(batch).data])
        found = list(by_pane(table))
        self._announce([pane for pane, _ in found])
        self._add(found)
        return ()


class _Fired:
    """Windows that fire together and are emitted as one batch."""

    def __init__(self, partials: Partials, size: int) -> None:
        self._partials = partials
        self._size = size
        self._parts: list[Part] = []
        self._starts: list[int] = []
        self.rows = 0

    def add(self, start: int, contents: Part | None) -> None:
        rows = 0 if contents is None else rows_in(contents)
        if contents is not None and rows:
            self._parts.append(contents)
            self._starts.append(start)
            self.rows += rows

    def take(self) -> Iterator[ColumnBatch]:
        """The results, in the order of the windows; nothing if there are none."""
        if self._parts:
            starts = np.array(self._starts, np.int64)
            data = self._partials.finish(self._parts, starts, self._size)
            stamps = pc.subtract(data.column("window_end"), 1).to_numpy()
            self._parts, self._starts, self.rows = [], [], 0
            yield ColumnBatch(data, stamps)


def _distinct(panes: Int64s) -> list[int]:
    """The distinct panes in order. The panes of a batch are few and close together, so counting is faster than sorting."""
    if len(panes) == 0:
        return []
    low, high = int(panes.min()), int(panes.max())
    if low == high:
        return [low]
    if high - low < 4096:
        return list((np.flatnonzero(np.bincount(panes - low)) + low).tolist())
    return list(np.unique(panes).tolist())
