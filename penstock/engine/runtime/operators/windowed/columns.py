"""ColumnWindowOperator: tumbling and sliding event-time aggregates over columns.

No Python object is made per record: Arrow groups rows by (pane, key). A pane is the widest slice of time
that no window cuts. Panes are combined when the watermark completes a window. Source: Flink's sliced
window aggregation of the SQL runtime, whose watermark is restored too; differs: a record within the allowed lateness fires
its windows again once per batch and key, not once per record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from penstock.engine.model.key_types import KeyType
from penstock.engine.runtime.elements import Batch, ColumnBatch, Watermark
from penstock.engine.runtime.keys import KeySelection
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
    Partials,
    by_pane,
    partials_of,
)
from penstock.engine.runtime.operators.windowed.panes import PaneGrid
from penstock.engine.runtime.operators.windowed.running_columns import RunningColumnWindows
from penstock.engine.runtime.records.columns import ColumnAggregate
from penstock.engine.runtime.state.snapshot import (
    COLUMN_WINDOWS,
    KeyedPart,
    OperatorSnapshot,
    StateInfo,
    check_restored,
)
from penstock.engine.runtime.windowing.assigners import WindowAssigner, _EventTime

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
