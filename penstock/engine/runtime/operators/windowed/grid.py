"""GridWindowOperator: tumbling and sliding event-time windows with the default trigger, fast on rows.

There is a table per window (state key -> accumulator, kept by the state backend) instead of timers per key. Records of
a batch that fall into the same windows are folded in one loop, and a window fires as a whole. Users see the same
results as from `RecordWindowOperator`, except for the order among keys of one window, which is unspecified. In a BATCH
job the records of a key come together: the records of many keys are folded at once, and then the windows of each key
that has ended fire. Source: Flink WindowOperator; differs as described.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import chain, islice, pairwise
from typing import Any, TypeAlias

import numpy as np

from penstock.engine.runtime.context import RuntimeContext
from penstock.engine.runtime.elements import (
    MAX_WATERMARK,
    NO_TIMESTAMP,
    Batch,
    Int64s,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.keys.hashing import original_key
from penstock.engine.runtime.operator import MAX_EMIT, Emitted
from penstock.engine.runtime.operators.collectors import StampedCollector
from penstock.engine.runtime.operators.keyed import Pauses
from penstock.engine.runtime.operators.stateless import rows_of
from penstock.engine.runtime.operators.windowed.base import GRID, WindowOperator
from penstock.engine.runtime.operators.windowed.functions import AggregateContents
from penstock.engine.runtime.row_functions.runner import ColumnRows
from penstock.engine.runtime.state.snapshot import StateInfo
from penstock.engine.runtime.state.window_tables import Fold
from penstock.engine.runtime.windowing.assigners import _TimeGrid, checked_timestamp
from penstock.engine.runtime.windows import TimeWindow

_Members: TypeAlias = tuple[list[Any], list[Any], Int64s]
"""State keys, values and timestamps of records."""


class _AddingWindows(WindowOperator):
    """What is added to windows: an aggregate may get the fields that it reads."""

    _grid: _TimeGrid
    _added_rows: tuple[ColumnRows, list[Any]] | None = None
    """The batch that is being added, if the aggregate gets fields, and what it gets for each record."""

    def prepare(self, runtime_context: RuntimeContext) -> None:
        grid = self.assigner
        assert isinstance(grid, _TimeGrid)
        self._grid = grid
        # A record that is put aside has to be whole.
        if self.functions_as_columns and self.poison is None:
            self.may_get_fields = self.is_given_fields()

    def is_given_fields(self) -> bool:
        """Whether it has an aggregate, and nothing that needs whole records, as late ones of a side output."""
        return isinstance(self.contents, AggregateContents) and self.late_tag is None

    def _values_of(self, rows: RowBatch) -> list[Any]:
        """What is added for each record."""
        self._added_rows = None
        if not isinstance(rows, ColumnRows):
            return rows.values
        values = list(rows.plan.records(rows.batch, rows.known))
        self._added_rows = rows, values
        return values

    def _record_at(self, index: int) -> Any:
        value = super()._record_at(index)
        if self._added_rows is None:
            return value
        rows, values = self._added_rows
        places = (place for place, one in enumerate(values) if one is value)
        place = next(places, None)
        return value if place is None else rows.record_at(place)

    def _waits(self, start: int) -> bool:
        """Whether a window has not fired."""
        return self._grid.last_ms(start) > self.timers.current_watermark


class GridWindowOperator(_AddingWindows):
    """Keeps tables by window start, a heap of windows to fire, and a heap of fired windows to forget."""

    def prepare(self, runtime_context: RuntimeContext) -> None:
        assert self.evictor is None, "an evictor needs RecordWindowOperator"
        super().prepare(runtime_context)
        self._result = self.contents.result()
        self.tables = self.windows.window_tables(
            GRID, self._info(), folding(self, self.contents.fold())
        )
        self._result_pauses = Pauses(self.timers.now_ms, MAX_EMIT)
        self._to_fire, self._to_forget = self.tables.waiting, self.tables.fired
        # The watermark is not restored. Until the first one comes, windows that had fired take
        # records as if they had not.
        self._fired_before = set(self.tables.fired)
        self._open_key: Any = None

    def shape(self) -> str:
        info = self._info()
        return f"{info.kind.lower()} of {info.type_text}"

    def _info(self) -> StateInfo:
        grid = self.assigner
        assert isinstance(grid, _TimeGrid)
        return StateInfo(
            f"{self.contents.kind} windows",
            f"size {grid.size}, slide {grid.slide}, offset {grid.offset} ms",
            type_info=self.contents.stored_type(self.windows.owner.records),
        )

    # ------------------------------------------------------------------ records

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        stamps = rows.timestamps
        if stamps is None or (len(stamps) and int(stamps.min()) == NO_TIMESTAMP):
            index = 0 if stamps is None else int(np.argmin(stamps))
            checked_timestamp(NO_TIMESTAMP, rows.record_at(index) if len(rows) else None)
            return
        _, skeys = self.state_keys_of(rows.values)
        values = self._values_of(rows)
        collector = StampedCollector(self)
        if self.key_timers is None:
            yield from self._fold(skeys, values, stamps, collector)
        else:
            yield from self._fold_by_key(skeys, values, stamps, collector)
        # All values were added, so nothing of the batch is kept.
        self.watched([])
        self._added_rows = None
        yield from collector.take()
        yield from self.take_aside()

    def _fold(
        self, skeys: list[Any], values: list[Any], stamps: Int64s, collector: StampedCollector
    ) -> Iterator[RowBatch]:
        panes = self._grid.panes_of(stamps)
        cuts = _cuts(panes)
        # Runs of one pane would be short.
        is_in_disorder = len(cuts) > 8 and len(cuts) * 16 > len(panes)
        # Records may be sorted by pane if windows do not overlap, or if each key's records are in
        # the order of time: then the order of records within each window does not change.
        is_kept = self._grid.size == self._grid.pane_ms or self.key_timers is not None
        if is_in_disorder and not is_kept:
            yield from self._by_window(skeys, values, stamps, panes, collector)
        else:
            if is_in_disorder:
                order = np.argsort(panes, kind="stable")
                numbers, stamps, cuts = order.tolist(), stamps[order], _cuts(panes[order])
                skeys, values = [skeys[i] for i in numbers], [values[i] for i in numbers]
            yield from self._by_run(skeys, values, stamps, cuts, collector)

    def _by_run(
        self,
        skeys: list[Any],
        values: list[Any],
        stamps: Int64s,
        cuts: Int64s,
        collector: StampedCollector,
    ) -> Iterator[RowBatch]:
        """Fold neighbouring records that fall into the same windows together."""
        begin = 0
        for end in [*cuts.tolist(), len(values)]:
            if end > begin:
                run = slice(begin, end)
                starts = self._open_at(int(stamps[begin]))
                if not starts:
                    self.all_late(values[run], stamps[run])
                members = skeys[run], values[run], stamps[run]
                for start in starts:
                    if not self._is_folded(start, members):
                        yield from self._refire(start, *members, collector)
            begin = end

    def _by_window(
        self,
        skeys: list[Any],
        values: list[Any],
        stamps: Int64s,
        panes: Int64s,
        collector: StampedCollector,
    ) -> Iterator[RowBatch]:
        """Fold window by window, the records of each window in the order in which they came."""
        order = np.argsort(panes, kind="stable")
        numbers = order.tolist()
        members: dict[int, list[int]] = {}
        late: list[int] = []
        for begin, end in pairwise([0, *_cuts(panes[order]).tolist(), len(numbers)]):
            group = numbers[begin:end]
            starts = self._open_at(int(stamps[group[0]]))
            for start in starts:
                members.setdefault(start, []).extend(group)
            if not starts:
                late += group
        for start, group in members.items():
            group.sort()
            its = [skeys[i] for i in group], [values[i] for i in group], stamps[group]
            if not self._is_folded(start, its):
                yield from self._refire(start, *its, collector)
        if late:
            late.sort()
            self.all_late([values[i] for i in late], stamps[late])

    def _open_at(self, stamp: int) -> list[int]:
        """The starts of the windows that contain this time and are not late."""
        now, last_of = self.timers.current_watermark, self._grid.last_ms
        limit = now - self.allowed_lateness_ms if now != MAX_WATERMARK else now
        return [start for start in self._grid.starts_at(stamp) if last_of(start) > limit]

    def _is_folded(self, start: int, members: _Members) -> bool:
        """Fold records into a window that has not fired. False: it has fired, so each record has to fire it again."""
        if not self._waits(start):
            return False
        self._announce(start)
        skeys, values, stamps = members
        self.tables.add(start, skeys, self.watched(values, stamps))
        if self._fired_before and start in self._fired_before:
            self.tables.let_wait(start, skeys)
        return True

    def _announce(self, start: int) -> None:
        known = self.tables.known
        if start not in known:
            known.add(start)
            if self._waits(start):
                heappush(self._to_fire, start)
            else:
                heappush(self._to_forget, start)

    def _refire(
        self,
        start: int,
        skeys: list[Any],
        values: list[Any],
        stamps: Int64s,
        collector: StampedCollector,
    ) -> Iterator[RowBatch]:
        """Handle records within the allowed lateness: each fires its window again at once."""
        self._announce(start)
        window = self._grid.window(start)
        watched = self.watched(values, stamps)
        for skey, value, stamp in zip(skeys, watched, stamps.tolist(), strict=False):
            self.context.fired_at_ms = stamp
            self.tables.add(start, (skey,), (value,))
            if not self.is_put_aside:
                kept = self.tables.get(start, skey)
                yield from self._call_with(skey, window, kept, collector)
        self.context.fired_at_ms = None

    def _call_with(
        self, skey: Any, window: TimeWindow, kept: Any, collector: StampedCollector
    ) -> Iterable[RowBatch]:
        """Add the results of the window function for an accumulator. Returns: as `call_window`."""
        try:
            elements = self._elements(kept)
        except BaseException as error:
            self.put_window_aside(error, skey, window)
            return ()
        return self.call_window(skey, window, elements, collector)

    # ------------------------------------------------------------------ key by key

    def _fold_by_key(
        self, skeys: list[Any], values: list[Any], stamps: Int64s, collector: StampedCollector
    ) -> Iterator[RowBatch]:
        """Fold in BATCH. All keys of the batch but the last one have ended."""
        if not skeys:
            return
        last, begin = skeys[-1], len(skeys)
        while begin and skeys[begin - 1] == last:
            begin -= 1
        if begin:
            yield from self._fold(skeys[:begin], values[:begin], stamps[:begin], collector)
        if last != self._open_key:
            yield from self._end_keys(collector)
            self._open_key = last
        yield from self._fold(skeys[begin:], values[begin:], stamps[begin:], collector)

    def _end_keys(self, collector: StampedCollector) -> Iterator[RowBatch]:
        """Fire and drop all windows, one key after the other."""
        kept_by_key: dict[Any, list[tuple[int, Any]]] = {}
        for start in sorted(self.tables.known):
            for skey, kept in self.tables.rows(start):
                kept_by_key.setdefault(skey, []).append((start, kept))
            self.tables.drop(start)
        for places in (self.tables.known, self._to_fire, self._to_forget):
            places.clear()
        self._is_between_keys = True
        for skey, windows in kept_by_key.items():
            yield from self._end_key(skey, windows, collector)
        self._is_between_keys = False

    def _end_key(
        self, skey: Any, windows: list[tuple[int, Any]], collector: StampedCollector
    ) -> Iterator[RowBatch]:
        """Fire and clear each window of a key, in the order in which watermarks pass them."""
        window_at = self._grid.window
        # Without a function no key has state.
        if self.output is None:
            for start, kept in windows:
                yield from self._call_with(skey, window_at(start), kept, collector)
            return
        self.timers.current_watermark = MAX_WATERMARK
        fired: deque[TimeWindow] = deque()
        for start, kept in windows:
            window = window_at(start)
            while fired and self.cleanup_ms(fired[0]) < window.max_timestamp():
                self.clear_window_state(skey, fired.popleft())
            yield from self._call_with(skey, window, kept, collector)
            fired.append(window)
        for window in fired:
            # Lateness that lasts to the end of time never ends.
            if self.cleanup_ms(window) != MAX_WATERMARK or window.end == MAX_WATERMARK:
                self.clear_window_state(skey, window)
        self.forget_key()

    # ------------------------------------------------------------------ firing

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        if self.key_timers is not None:
            yield from self._end_last_keys()
            yield watermark
            return
        now = self.timers.current_watermark = watermark.timestamp_ms
        self.watched([])
        self._pauses.begin()
        self._result_pauses.begin()
        window_at, last_of = self._grid.window, self._grid.last_ms
        for start in sorted(s for s in self.tables.some_wait if last_of(s) <= now):
            rows = self.tables.take_waiting(start)
            yield from self._fire(window_at(start), rows)
        while self._to_fire and (last := last_of(self._to_fire[0])) <= now:
            self._forget_until(last - 1)
            start = heappop(self._to_fire)
            yield from self._fire(window_at(start), self.tables.rows(start))
            if self.allowed_lateness_ms == 0 or last == MAX_WATERMARK:
                self._forget(start)
            else:
                heappush(self._to_forget, start)
        self._forget_until(min(now, MAX_WATERMARK - 1))
        yield watermark

    def _forget_until(self, now: int) -> None:
        """Forget the windows whose lateness is over at this time, which is before 2^63-1."""
        kept_ms = self._grid.size - 1 + self.allowed_lateness_ms
        while self._to_forget and self._to_forget[0] + kept_ms <= now:
            self._forget(heappop(self._to_forget))

    def _end_last_keys(self) -> Emitted:
        self.watched([])
        collector = StampedCollector(self)
        yield from self._end_keys(collector)
        yield from collector.take()
        yield from self.take_aside()

    def _fire(self, window: TimeWindow, rows: Iterable[tuple[Any, Any]]) -> Emitted:
        if self.output is None:
            yield from self._passed(window, rows)
            return
        result = None if self.contents.function is None else self._result
        yield from called(self, window, rows, result, self._pauses)

    def _passed(self, window: TimeWindow, rows: Iterable[tuple[Any, Any]]) -> Emitted:
        """Emit the accumulators themselves as results."""
        result = None if self.contents.function is None else self._result
        for some in results_of(self, window, rows, result, self._result_pauses):
            stamps = np.full(len(some or ()), window.max_timestamp(), np.int64)
            yield None if some is None else RowBatch(some, stamps)

    def _elements(self, kept: Any) -> list[Any]:
        return list(kept) if self.contents.function is None else [self._result(kept)]

    def _forget(self, start: int) -> None:
        if self._clear is not None:
            window = self._grid.window(start)
            for skey, _ in self.tables.rows(start):
                self.clear_window_state(skey, window)
        self.tables.drop(start)
        self.tables.known.discard(start)


def _cuts(panes: Int64s) -> Int64s:
    """The indexes at which another pane begins."""
    return np.flatnonzero(panes[1:] != panes[:-1]) + 1


def folding(operator: WindowOperator, fold: Fold) -> Fold:
    """Call the functions of grid windows for many records or keys at once, and continue after
    records that are put aside.

    Adds values to a table of accumulators. Does not know windows' times. Source: see `grid`.
    """

    def fold_on(table: dict[Any, Any], skeys: Iterable[Any], values: Iterable[Any]) -> None:
        # A record is taken from both iterators before the function is called.
        left_keys, left_values = iter(skeys), iter(values)
        while True:
            try:
                fold(table, left_keys, left_values)
            except Exception as error:
                operator.put_current_aside(error)
            else:
                return

    return fold if operator.poison is None else fold_on


def called(
    operator: WindowOperator,
    window: Any,
    rows: Iterable[tuple[Any, Any]],
    result: Callable[[Any], Any] | None,
    pauses: Pauses,
) -> Emitted:
    """What the window function returns for each key of a window that fires, in full batches, and None where it may be left.

    Args: as of `results_of`. Here a key is quicker by a half than with `call_window`, because the window is entered once.
    """
    collector = StampedCollector(operator)
    enter, call, is_due = operator.enter_window, operator.window_call, pauses.is_due
    state, windows = operator.state, operator.windows
    stamp = window.max_timestamp()
    enter(window)
    for skey, kept in rows:
        state.key = windows.key = key = original_key(skey)
        state.skey = windows.skey = skey
        try:
            elements = list(kept) if result is None else [result(kept)]
            made = operator.collected(call(key, window, elements), stamp, collector)
        except BaseException as error:
            operator.put_window_aside(error, skey, window)
            made = ()
        if made:
            yield from operator.going_on(made, skey, window)
            enter(window)
        if is_due():
            yield from operator.pause(collector)
            enter(window)
    yield from collector.take()
    yield from operator.take_aside()


def results_of(
    operator: WindowOperator,
    window: Any,
    rows: Iterable[tuple[Any, Any]],
    result: Callable[[Any], Any] | None,
    pauses: Pauses,
) -> Iterator[list[Any] | None]:
    """The results of a window, in lists of at most MAX_EMIT, and None where it may be left.

    Args: rows: state keys with their contents. result: from an accumulator to its result; None: the contents are lists of results.
    Raises: RuntimeError: `result` raised StopIteration, at which an iteration in C would end without an error.
    """
    last: Any = None
    is_through = False

    def contents() -> Iterator[Any]:
        nonlocal last, is_through
        for skey, kept in rows:
            last = skey
            yield kept
        is_through = True

    results = chain.from_iterable(contents()) if result is None else map(result, contents())
    is_over = False
    while not is_over:
        values: list[Any] = []
        is_pause = False
        while not (is_over or is_pause or len(values) == MAX_EMIT):
            before, room = len(values), MAX_EMIT - len(values)
            wanted = room if result is None else min(room, pauses.calls)
            try:
                values.extend(islice(results, wanted))
                found = len(values) - before
                _check(is_through=is_through or found == wanted)
            except BaseException as error:
                operator.put_window_aside(error, last, window)
            else:
                is_over = found < wanted
                is_pause = result is not None and pauses.is_due(found)
        if values:
            yield values
        if is_pause:
            yield None
            pauses.resume()


def _check(*, is_through: bool) -> None:
    if not is_through:
        raise RuntimeError(
            "get_result raised StopIteration (a next() on an exhausted iterator?): give next() a "
            "default, "
            "or catch it"
        )
