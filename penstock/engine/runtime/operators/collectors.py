"""Collectors: gather the results of a batch before they go on, in batches of about MAX_EMIT. Do not know functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from penstock.engine.runtime.elements import Int64s, RowBatch
from penstock.engine.runtime.operator import MAX_EMIT, Operator
from penstock.engine.runtime.records.output_copies import opened


class Collector:
    """Collects the results of a batch. `counts`: length of `values` after each record, when there are timestamps.

    `stamps`: timestamp of each record, or a list that grows with the records (timers).
    """

    __slots__ = ("_next", "counts", "stamps", "values")

    def __init__(self, stamps: Int64s | list[int] | None) -> None:
        self.stamps = stamps
        self.values: list[Any] = []
        self.counts: list[int] = []
        self._next = 0

    def take(self, open_record: bool = False) -> list[RowBatch]:
        """Remove and return the results, cut to MAX_EMIT. `open_record`: the last record has more results to come."""
        values, counts = self.values, self.counts
        if open_record and self.stamps is not None:
            counts.append(len(values))
        stamps = self._stamps(counts)
        self._next += len(counts) - open_record
        self.values, self.counts = [], []
        if not values:
            return []
        if len(values) <= 2 * MAX_EMIT:
            return [RowBatch(values, stamps)]
        whole = RowBatch(values, stamps)
        return [whole.slice(at, at + MAX_EMIT) for at in range(0, len(values), MAX_EMIT)]

    def _stamps(self, counts: Sequence[int]) -> Int64s | None:
        if self.stamps is None:
            return None
        lengths = np.array(counts, np.int64)
        lengths[1:] -= lengths[:-1].copy()
        stamps = np.asarray(self.stamps[self._next : self._next + len(counts)], np.int64)
        return np.repeat(stamps, lengths)


def pull(operator: Operator, results: Iterator[Any], collector: Collector) -> Iterator[RowBatch]:
    """Add all results of one record to the collector, yielding full batches on the way."""
    while True:
        room = MAX_EMIT - len(collector.values)
        before = len(collector.values)
        operator.take(collector.values, islice(results, room))
        if len(collector.values) - before < room:
            operator.is_in_record = False
            return
        operator.is_in_record = True
        yield from collector.take(open_record=True)


class StampedCollector:
    """Collects results that each have a timestamp of their own (a window's, a pair's), in batches of about MAX_EMIT."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._stamps: list[int] = []
        self._collector = Collector(self._stamps)

    def add(self, results: Any, stamp: int) -> Iterable[RowBatch]:
        """Add the results of one call of a user function, all with this timestamp.

        Returns: full batches, mostly none. They have to be taken before the next call, and what the function has left to say runs
        meanwhile. Raises, then too: what the function raises.
        """
        collector = self._collector
        values = collector.values
        self._stamps.append(stamp)
        try:
            if type(results) is list:
                self._operator.take(values, results)
                is_through = True
            else:
                left = opened(results)
                self._operator.take(values, islice(left, max(0, MAX_EMIT - len(values))))
                is_through = len(values) < MAX_EMIT
        except BaseException:
            # What came before an error stays.
            collector.counts.append(len(values))
            raise
        if not is_through:
            return self._pulled(left)
        collector.counts.append(len(values))
        return collector.take() if len(values) >= MAX_EMIT else ()

    def _pulled(self, results: Iterator[Any]) -> Iterator[RowBatch]:
        """Batches while a call has results, of which a batch is full already."""
        collector = self._collector
        try:
            self._operator.is_in_record = True
            yield from collector.take(open_record=True)
            yield from pull(self._operator, results, collector)
        finally:
            collector.counts.append(len(collector.values))
        if len(collector.values) >= MAX_EMIT:
            yield from collector.take()

    def take(self) -> list[RowBatch]:
        """Remove and return what is left."""
        return self._collector.take()
