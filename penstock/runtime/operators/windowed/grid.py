"""GridWindowOperator: tumbling and sliding event-time windows with the default trigger, fast on rows.

There is a table per window (state key -> accumulator, kept by the state backend) instead of timers per key. Records of a batch that
fall into the same windows are folded in one loop, and a window fires as a whole. Users see the same results as from
`RecordWindowOperator`, except for the order among keys of one window, which is unspecified. In a BATCH job the records of a key come
together: the records of many keys are folded at once, and then the windows of each key that has ended fire.
Source: Flink WindowOperator; differs as described.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.runtime.context import RuntimeContext
from penstock.runtime.elements import (
    MAX_WATERMARK,
    NO_TIMESTAMP,
    Batch,
    Int64s,
    RowBatch,
    Watermark,
)
from penstock.runtime.keys import state_keys
from penstock.runtime.operator import Emitted
from penstock.runtime.operators.stateless import StampedCollector, rows_of
from penstock.runtime.operators.windowed.base import GRID, WindowOperator
from penstock.runtime.operators.windowed.going_on import folding, results_of
from penstock.runtime.state.snapshot import StateInfo
from penstock.runtime.windowing.assigners import _TimeGrid, checked_timestamp
from penstock.runtime.windows import TimeWindow


class GridWindowOperator(WindowOperator):
    """Keeps tables by window start, a heap of windows to fire, and a heap of fired windows to forget."""

    def prepare(self, runtime_context: RuntimeContext) -> None:
        grid = self.assigner
        assert isinstance(grid, _TimeGrid)
        assert self.evictor is None, "an evictor needs RecordWindowOperator"
        self._grid = grid
        self._result = self.contents.result()
        self._tables = self.windows.window_tables(
            GRID, self._info(), folding(self, self.contents.fold())
        )
        self._to_fire, self._to_forget = self._tables.waiting, self._tables.fired
        # The watermark is not restored. Until the first one comes, windows that had fired take
        # records as if they had not.
        self._fired_before = set(self._tables.fired)
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
            checked_timestamp(NO_TIMESTAMP, rows.values[index] if rows.values else None)
            return
        skeys = state_keys(self.keys_of(rows.values))
        collector = StampedCollector(self)
        if self.key_timers is None:
            yield from self._fold(skeys, rows.values, stamps, collector)
        else:
            yield from self._fold_by_key(skeys, rows.values, stamps, collector)
        yield from collector.take()
        yield from self.take_aside()

    def _fold(
        self, skeys: list[Any], values: list[Any], stamps: Int64s, collector: StampedCollector
    ) -> Iterator[RowBatch]:
        panes = (stamps - self._grid.offset) // self._pane_ms()
        cuts = _cuts(panes)
        # Runs of one pane would be short.
        is_in_disorder = len(cuts) > 8 and len(cuts) * 16 > len(panes)
        # Records may be sorted by pane if windows do not overlap, or if each key's records are in
        # the order of time: then the order of records within each window does not change.
        is_kept = self._grid.size == self._pane_ms() or self.key_timers is not None
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
                windows = self._open_at(int(stamps[begin]))
                if not windows:
                    self.all_late(values[run], stamps[run])
                for window in windows:
                    members = skeys[run], values[run], stamps[run]
                    if not self._is_folded(window, *members):
                        yield from self._refire(window, *members, collector)
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
            windows = self._open_at(int(stamps[group[0]]))
            for window in windows:
                members.setdefault(window.start, []).extend(group)
            if not windows:
                late += group
        for start, group in members.items():
            window = TimeWindow(start, start + self._grid.size)
            group.sort()
            its = [skeys[i] for i in group], [values[i] for i in group], stamps[group]
            if not self._is_folded(window, *its):
                yield from self._refire(window, *its, collector)
        if late:
            late.sort()
            self.all_late([values[i] for i in late], stamps[late])

    def _open_at(self, stamp: int) -> list[TimeWindow]:
        """The windows that contain this time and are not late."""
        windows = self._grid.windows_at(stamp)
        return [window for window in windows if not self.is_window_late(window)]

    def _is_folded(
        self, window: TimeWindow, skeys: list[Any], values: list[Any], stamps: Int64s
    ) -> bool:
        """Fold records into a window that has not fired. False: it has fired, so each record has to fire it again."""
        if window.max_timestamp() <= self.timers.current_watermark:
            return False
        self._announce(window.start)
        self._tables.add(window.start, skeys, self.watched(values, stamps))
        if self._fired_before and window.start in self._fired_before:
            self._tables.let_wait(window.start, skeys)
        return True

    def _pane_ms(self) -> int:
        """The widest slice of time that no window cuts."""
        return int(np.gcd(self._grid.size, self._grid.slide))

    def _announce(self, start: int) -> None:
        known = self._tables.known
        if start not in known:
            known.add(start)
            window_end = start + self._grid.size
            if window_end - 1 > self.timers.current_watermark:
                heappush(self._to_fire, start)
            else:
                heappush(self._to_forget, start)

    def _refire(
        self,
        window: TimeWindow,
        skeys: list[Any],
        values: list[Any],
        stamps: Int64s,
        collector: StampedCollector,
    ) -> Iterator[RowBatch]:
        """Handle records within the allowed lateness: each fires its window again at once."""
        self._announce(window.start)
        watched = self.watched(values, stamps)
        for skey, value, stamp in zip(skeys, watched, stamps.tolist(), strict=False):
            self.context.fired_at_ms = stamp
            self._tables.add(window.start, (skey,), (value,))
            if not self.is_put_aside:
                kept = self._tables.get(window.start, skey)
                yield from self._call_with(skey, window, kept, collector)
        self.context.fired_at_ms = None

    def _call_with(
        self, skey: Any, window: TimeWindow, kept: Any, collector: StampedCollector
    ) -> Iterator[RowBatch]:
        """The results of the window function for an accumulator."""
        try:
            elements = self._elements(kept)
        except Exception as error:
            self.put_window_aside(error, skey, window)
        else:
            yield from self.call_window(skey, window, elements, collector)

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
        for start in sorted(self._tables.known):
            for skey, kept in self._tables.rows(start):
                kept_by_key.setdefault(skey, []).append((start, kept))
            self._tables.drop(start)
        for places in (self._tables.known, self._to_fire, self._to_forget):
            places.clear()
        self._is_between_keys = True
        for skey, windows in kept_by_key.items():
            yield from self._end_key(skey, windows, collector)
        self._is_between_keys = False

    def _end_key(
        self, skey: Any, windows: list[tuple[int, Any]], collector: StampedCollector
    ) -> Iterator[RowBatch]:
        """Fire and clear each window of a key, in the order in which this would happen as time goes on."""
        size = self._grid.size
        # Without a function no key has state.
        if self.output is None:
            for start, kept in windows:
                window = TimeWindow(start, start + size)
                yield from self._call_with(skey, window, kept, collector)
            return
        self.timers.current_watermark = MAX_WATERMARK
        fired: deque[TimeWindow] = deque()
        for start, kept in windows:
            window = TimeWindow(start, start + size)
            while fired and self.cleanup_ms(fired[0]) < window.max_timestamp():
                self.clear_window_state(skey, fired.popleft())
            yield from self._call_with(skey, window, kept, collector)
            fired.append(window)
        for window in fired:
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
        size = self._grid.size
        for start in sorted(s for s in self._tables.some_wait if s + size - 1 <= now):
            rows = self._tables.take_waiting(start)
            yield from self._fire(TimeWindow(start, start + size), rows)
        while self._to_fire and (end := self._to_fire[0] + size) - 1 <= now:
            self._forget_until(end - 2)
            window = TimeWindow(heappop(self._to_fire), end)
            yield from self._fire(window, self._tables.rows(window.start))
            if self.allowed_lateness_ms == 0:
                self._forget(window)
            else:
                heappush(self._to_forget, window.start)
        self._forget_until(now)
        yield watermark

    def _forget_until(self, now: int) -> None:
        """Forget the windows whose lateness is over at this time."""
        kept_ms = self._grid.size - 1 + self.allowed_lateness_ms
        while self._to_forget and self._to_forget[0] + kept_ms <= now:
            start = heappop(self._to_forget)
            self._forget(TimeWindow(start, start + self._grid.size))

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
        collector = StampedCollector(self)
        for skey, kept in rows:
            yield from self._call_with(skey, window, kept, collector)
        yield from collector.take()
        yield from self.take_aside()

    def _passed(self, window: TimeWindow, rows: Iterable[tuple[Any, Any]]) -> Iterator[RowBatch]:
        """Emit the accumulators themselves as results."""
        is_list = self.contents.function is None
        for values in results_of(self, window, rows, None if is_list else self._result):
            yield RowBatch(values, np.full(len(values), window.max_timestamp(), np.int64))

    def _elements(self, kept: Any) -> list[Any]:
        return list(kept) if self.contents.function is None else [self._result(kept)]

    def _forget(self, window: TimeWindow) -> None:
        if self._clear is not None:
            for skey, _ in self._tables.rows(window.start):
                self.clear_window_state(skey, window)
        self._tables.drop(window.start)
        self._tables.known.discard(window.start)


def _cuts(panes: Int64s) -> Int64s:
    """The indexes at which another pane begins."""
    return np.flatnonzero(panes[1:] != panes[:-1]) + 1
