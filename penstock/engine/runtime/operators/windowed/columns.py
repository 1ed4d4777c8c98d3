"""ColumnWindowOperator: tumbling and sliding event-time aggregates over columns.

No Python object is made per record: Arrow groups rows by (pane, key). A pane is the widest slice of time that no window
cuts. Panes are combined when the watermark completes a window. Source: Flink's sliced window aggregation of the SQL
runtime, whose watermark is restored too; differs: a record within the allowed lateness fires its windows again once per
batch and key, not once per record.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.model.key_types import KeyType
from penstock.engine.runtime.elements import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    NO_TIMESTAMP,
    Batch,
    ColumnBatch,
    Int64s,
    Watermark,
)
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.keys.hash_arrays import with_equal_floats
from penstock.engine.runtime.keys.hashing import is_int32_type
from penstock.engine.runtime.operator import (
    Accepts,
    BatchOrder,
    Combining,
    Emitted,
    Operator,
    OperatorContext,
)
from penstock.engine.runtime.operators.columns import columns_of
from penstock.engine.runtime.operators.keyed import key_type_of
from penstock.engine.runtime.operators.windowed.column_partials import (
    PaneGrid,
    PaneStore,
    Part,
    Partials,
    by_pane,
    distinct,
    partials_of,
    rows_in,
)
from penstock.engine.runtime.records.columns import ColumnAggregate
from penstock.engine.runtime.state.packed import StateColumn
from penstock.engine.runtime.state.snapshot import (
    COLUMN_WINDOWS,
    KeyedPart,
    OperatorSnapshot,
    StateInfo,
    check_restored,
)
from penstock.engine.runtime.windowing.assigners import (
    WindowAssigner,
    _EventTime,
    checked_timestamp,
)
from penstock.engine.runtime.windows import TimeWindow

PANES: Final = "panes"
_MOST_PARTIALS: Final = 1 << 17
_BY_ARRIVAL: Final = frozenset({"first", "last"})


class ColumnWindowOperator(Operator):
    """Emits key columns, `window_start`, `window_end` (epoch ms) and the aggregates' columns.

    Windows that one watermark completes come in one batch, the oldest first.
    """

    drops_late_records = True
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
        self._restored: KeyedPart | None = None
        self._info = StateInfo(COLUMN_WINDOWS, _contents_text(assigner, keys, aggregates))

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The input columns that it reads; others need not be sent."""
        return self._partials().inputs

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        if self._restored is not None:
            check_restored(
                f"operator {context.operator_id!r}", PANES, self._restored.info, self._info
            )
        grid = PaneGrid(self.grid, self.allowed_lateness_ms)
        restored, self._restored = self._restored, None
        self._running = RunningColumnWindows(grid, self.keys, self._partials(), context, restored)

    @property
    def state_keys(self) -> KeyType:
        return key_type_of((self.keys,), "TimeWindow")

    def process(self, batch: Batch, input_index: int) -> Emitted:
        return self._running.process(columns_of(batch))

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        return self._running.process_watermark(watermark)

    def before_exchange(self) -> Combining | None:
        return _combining(self.grid, self.keys, self.aggregates)

    def snapshot(self) -> OperatorSnapshot:
        """One keyed part with a row per key group."""
        groups, columns = self._running.snapshot_columns()
        is_int32 = is_int32_type(self.keys.key_type)
        part = KeyedPart(
            self._info, self._running.max_parallelism, is_int32, groups.tolist(), columns, groups
        )
        return OperatorSnapshot({PANES: part})

    def restore(self, snapshot: OperatorSnapshot) -> None:
        # The prefix is the whole name of the part, so the rest of the name is empty.
        self._restored = snapshot.take(PANES).get("")

    def _partials(self) -> Partials:
        return partials_of(self.keys.columns or (), self.aggregates)


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
        data, panes = self._running.timely(columns_of(batch))
        store = self._running.store
        if data.num_rows:
            store.keep(data, panes)
        if store.held_rows() >= _MOST_PARTIALS:
            yield from _batches(store.take())

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        return (watermark,)

    def finish(self) -> Emitted:
        store = self._running.store
        store.flush()
        yield from _batches(store.take())


class FinalColumnWindowOperator(ColumnWindowOperator):
    """Takes the output of `PartialColumnWindowOperator`."""

    def before_exchange(self) -> Combining | None:
        return None

    def process(self, batch: Batch, input_index: int) -> Emitted:
        table = pa.Table.from_batches([columns_of(batch).data])
        found = list(by_pane(table))
        self._running.announce([pane for pane, _ in found])
        self._running.store.add(found)
        return ()


def _batches(tables: list[pa.Table]) -> Iterator[ColumnBatch]:
    if tables:
        whole = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
        for data in whole.to_batches():
            yield ColumnBatch(data, None)


_MAX_FIRED_ROWS: Final = 1 << 16


class RunningColumnWindows:
    """The state of a ColumnWindowOperator while it runs: its panes, its watermark, and the windows that have fired or are
    due.

    The operator's `open` creates it. Before that, the operator is only a description.

    The column windows of one subtask.
    """

    def __init__(
        self,
        grid: PaneGrid,
        keys: KeySelection,
        partials: Partials,
        context: OperatorContext,
        restored: KeyedPart | None,
    ) -> None:
        """`restored`: the columns that `snapshot_columns` returned in one or several former subtasks."""
        self.store = PaneStore(partials)
        self._grid = grid
        self._keys = keys
        self._partials = partials
        self._count_late = context.late_records_dropped
        self.max_parallelism, self._subtask = context.max_parallelism, context.subtask
        self._watermark = MIN_WATERMARK
        self._known: set[int] = set()
        self._fired_groups: dict[int, set[int]] = {}
        self._reached: dict[int, int] = {}
        if restored is not None:
            self._put_back(restored)
        self._to_fire = list(self._known)
        heapify(self._to_fire)

    # ------------------------------------------------------------------ records

    def process(self, columns: ColumnBatch) -> Emitted:
        """Add records. Returns the results of windows that fire again for late records."""
        data, panes = self.timely(columns)
        present = distinct(panes)
        self.announce(present)
        if data.num_rows:
            self._fire_again_later(data, panes)
            self.store.keep(data, panes)
        refired = {start for pane in present for start in self._fired_windows(pane)}
        return self._refire(sorted(refired), data) if refired else ()

    def timely(self, columns: ColumnBatch) -> tuple[pa.RecordBatch, Int64s]:
        """The needed columns of the rows that some window takes, and the panes of these rows."""
        stamps = columns.timestamps
        data = columns.select(self._partials.inputs).data
        if stamps is None or (len(stamps) and int(stamps.min()) == NO_TIMESTAMP):
            checked_timestamp(NO_TIMESTAMP, columns.data.slice(0, 1).to_pylist())
            return data.slice(0, 0), np.zeros(0, np.int64)
        panes = self._grid.panes_of(stamps)
        late = [pane for pane in distinct(panes) if self._is_late(pane)]
        if late:
            is_late = np.isin(panes, np.array(late))
            self._drop_late(stamps[is_late])
            data, panes = data.filter(pa.array(~is_late)), panes[~is_late]
        return data, panes

    def announce(self, panes: list[int]) -> None:
        """Have the windows of these panes fire when they are complete."""
        for pane in panes:
            for start in self._grid.starts(pane):
                if start not in self._known and self._grid.end(start) > self._watermark:
                    self._known.add(start)
                    heappush(self._to_fire, start)

    def _is_late(self, pane: int) -> bool:
        return self._grid.is_late(pane, self._watermark)

    def _drop_late(self, stamps: Int64s) -> None:
        dropped = self._grid.count_late(stamps, self._watermark)
        if dropped and self._count_late is not None:
            self._count_late.inc(dropped)

    def _fired_windows(self, pane: int) -> list[int]:
        """Windows that have fired already and still take late records."""
        grid, now = self._grid, self._watermark
        return [s for s in grid.starts(pane) if grid.end(s) <= now < grid.cleanup_ms(s)]

    # ------------------------------------------------------------------ firing

    def process_watermark(self, watermark: Watermark) -> Emitted:
        # The restored watermark is higher.
        if watermark.timestamp_ms < self._watermark:
            watermark = Watermark(self._watermark)
        now = self._watermark = watermark.timestamp_ms
        end = self._grid.end
        if self._to_fire and end(self._to_fire[0]) <= now:
            self.store.flush()
        fired = _Fired(self._partials, self._grid)
        while self._to_fire and end(self._to_fire[0]) <= now:
            start = heappop(self._to_fire)
            self._known.discard(start)
            fired.add(start, self._not_fired(start, self._contents(start)))
            if fired.rows >= _MAX_FIRED_ROWS:
                yield from fired.take()
        yield from fired.take()
        self.store.forget(self._is_late)
        yield watermark

    def _contents(self, start: int) -> Part | None:
        return self.store.contents(self._grid.panes_in(start))

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
        for pane in distinct(panes):
            found = set(groups[panes == pane].tolist())
            for start in self._grid.starts(pane):
                if start in self._fired_groups:
                    self._fired_groups[start] -= found

    def _refire(self, starts: list[int], data: pa.RecordBatch) -> Emitted:
        """The results of these windows, for the keys in `data`."""
        self.store.flush()
        keys = self._partials.keys
        only = with_equal_floats(pa.Table.from_batches([data]).select(keys), keys)
        fired = _Fired(self._partials, self._grid)
        for start in starts:
            contents = self._contents(start)
            if contents is not None and keys:
                table = self._partials.table([contents])
                contents = table.join(only, keys=keys, join_type="left semi")
            fired.add(start, contents)
        return list(fired.take())

    # ------------------------------------------------------------------ snapshots

    def snapshot_columns(self) -> tuple[Int64s, list[StateColumn]]:
        """The key groups that have partials, and a row for each.

        A row has the group's partials, its windows to fire, the subtask's number of records, index and watermark.
        """
        self.store.flush()
        groups, tables = self._by_group()
        numbers: list[int] = groups.tolist()
        return groups, [
            tables,
            [self._to_fire_in(group) for group in numbers],
            [self._partials.arrived] * len(tables),
            [self._subtask] * len(tables),
            [max(self._watermark, self._reached.get(group, MIN_WATERMARK)) for group in numbers],
        ]

    def _to_fire_in(self, group: int) -> tuple[int, ...]:
        fired = self._fired_groups
        return tuple(s for s in sorted(self._to_fire) if group not in fired.get(s, ()))

    def _by_group(self) -> tuple[Int64s, list[pa.Table]]:
        """The key groups that have partials, and the partials of each."""
        table = self.store.table()
        if table is None:
            return np.zeros(0, np.int64), []
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
        count = self.max_parallelism
        return self._keys.channels_of_columns(batch, count, count).astype(np.int64)

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
            self.store.put_back(by_pane(self._partials.renumbered(whole, begins[subtask])))
        self._watermark = min(self._reached.values(), default=MIN_WATERMARK)
        for start in {start for pane in self.store for start in self._grid.starts(pane)}:
            end = self._grid.end(start)
            fired = {
                group
                for group, mark in self._reached.items()
                if end <= mark and start not in waiting[group]
            }
            if fired and end > self._watermark:
                self._fired_groups[start] = fired


class _Fired:
    """Windows that fire together and are emitted as one batch."""

    def __init__(self, partials: Partials, grid: PaneGrid) -> None:
        self._partials = partials
        self._grid = grid
        self._parts: list[Part] = []
        self._windows: list[TimeWindow] = []
        self.rows = 0

    def add(self, start: int, contents: Part | None) -> None:
        rows = 0 if contents is None else rows_in(contents)
        if contents is not None and rows:
            self._parts.append(contents)
            self._windows.append(self._grid.window(start))
            self.rows += rows

    def take(self) -> Iterator[ColumnBatch]:
        """The results, in the order of the windows; nothing if there are none."""
        if self._parts:
            starts = np.array([window.start for window in self._windows], np.int64)
            ends = np.array([window.end for window in self._windows], np.int64)
            data = self._partials.finish(self._parts, starts, ends)
            stamps = pc.subtract(data.column("window_end"), 1).to_numpy()
            # The last window is the newest.
            if ends[-1] == MAX_WATERMARK:
                stamps = np.where(stamps == MAX_WATERMARK - 1, MAX_WATERMARK, stamps)
            self._parts, self._windows, self.rows = [], [], 0
            yield ColumnBatch(data, stamps)
