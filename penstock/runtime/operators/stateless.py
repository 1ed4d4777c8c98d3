"""Map, flat map and filter on rows that are not keyed. Do not know state.

The usual case is one call into C (`map`, `filter`, `compress`). If it fails, the position of the list
iterator tells which record failed. Source: Flink StreamMap, StreamFlatMap, StreamFilter, PyFlink's process functions
around them; differs: a batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import isgeneratorfunction
from itertools import chain, compress, islice
from operator import length_hint
from typing import Any

import numpy as np

from penstock.model.bounded_text import bounded_repr
from penstock.runtime.context import RuntimeContext, UserFunction
from penstock.runtime.elements import Batch, Int64s, RowBatch
from penstock.runtime.operator import MAX_EMIT, Emitted, Operator, OperatorContext
from penstock.runtime.records.emissions import Emissions, as_they_are
from penstock.runtime.records.side_output import separated


def rows_of(batch: Batch) -> RowBatch:
    """The batch as rows; the chain has converted it."""
    assert isinstance(batch, RowBatch), f"a row operator was fed {type(batch).__name__}"
    return batch


def whole(operator: FunctionOperator, results: Iterator[Any], count: int) -> list[Any]:
    """All results of a function over a batch.

    Raises: RuntimeError when there are fewer: `map` ends without an error if the function raises StopIteration,
    and records would be lost silently.
    """
    made = list(operator.emissions.taken()(results))
    if len(made) != count:
        raise ended_at(len(made))
    operator.emissions.note(made)
    return made


def ended_at(index: int) -> RuntimeError:
    """The error for a function that raised StopIteration at this record of its batch."""
    return RuntimeError(
        f"the function raised StopIteration at record {index} of its batch (a next() on an exhausted "
        "iterator?): give next() a default, or catch it"
    )


def kept_of(rows: RowBatch, answers: Iterator[Any]) -> Sequence[RowBatch]:
    """The rows whose answer is true; empty when there are none.

    `bool` is called while the record is the current one, because it may raise (for an array). numpy's rules of truth are not used.
    """
    mask = [bool(answer) for answer in answers]
    if len(mask) != len(rows.values):
        raise ended_at(len(mask))
    kept = list(compress(rows.values, mask))
    if not kept:
        return ()
    stamps = rows.timestamps
    return (RowBatch(kept, None if stamps is None else stamps[np.array(mask)]),)


def _is_exhausted(position: Iterator[Any]) -> bool:
    """Whether a list iterator was asked for more items than it has; it then pickles without its list.

    Its length hint cannot tell this: it is 0 as soon as the last record was handed out.
    """
    return len(position.__reduce__()) < 3


class FunctionOperator(Operator):
    """Opens and closes its user function, and knows which record is being processed."""

    def __init__(self, function: UserFunction) -> None:
        self.function = function
        self.emissions = Emissions()
        self._values: list[Any] = []
        self._position: Iterator[Any] = iter(())
        self._is_open = False

    def open(self, context: OperatorContext) -> None:
        self._is_open = True
        self.function.open(self.runtime_context(context))

    def end_input(self, input_index: int) -> Emitted:
        # No record is to be named for errors from here on.
        self.watched([])
        return ()

    def close(self) -> None:
        self.watched([])
        if self._is_open:
            self._is_open = False
            self.function.close()

    def runtime_context(self, context: OperatorContext) -> RuntimeContext:
        """The context for `open`, without keyed state. Keyed operators override this."""
        return RuntimeContext(context)

    def failing_record(self) -> str | None:
        index = len(self._values) - length_hint(self._position) - 1
        if 0 <= index < len(self._values):
            return bounded_repr(self._values[index])
        return None

    def check_all_were_seen(self) -> None:
        """Check, after a `map` over the watched batch, that it saw all records. Raises: RuntimeError: see `whole`."""
        if not _is_exhausted(self._position):
            raise ended_at(len(self._values) - length_hint(self._position) - 1)

    def watched(self, values: list[Any]) -> Iterator[Any]:
        """An iterator over the batch whose position tells the failing record."""
        self._values = values
        self._position = iter(values)
        return self._position


class MapOperator(FunctionOperator):
    """One result per record. `side_tags`: ids of the tags that are read."""

    side_tags: tuple[str, ...] = ()

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        results = whole(self, map(self.function.call, self.watched(rows.values)), len(rows.values))
        return separated((RowBatch(results, rows.timestamps),), self.side_tags)


class FilterOperator(FunctionOperator):
    """Keeps the records for which the function is true."""

    keeps_records = True

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        position = self.watched(rows.values)
        if rows.timestamps is not None:
            return kept_of(rows, map(self.function.call, position))
        kept = list(filter(self.function.call, position))
        self.check_all_were_seen()
        return (RowBatch(kept),) if kept else ()


class FlatMapOperator(FunctionOperator):
    """Any number of results per record. Lists are taken whole, other iterables are pulled step by step.

    `side_tags`: ids of the tags that are read.
    """

    side_tags: tuple[str, ...] = ()

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        call = self.function.call
        results = map(call, self.watched(rows.values))
        made = expand(self, results, rows.timestamps, is_generator=isgeneratorfunction(call))
        return separated(made, self.side_tags)


def expand(
    operator: FunctionOperator,
    results: Iterator[Any],
    stamps: Int64s | list[int] | None,
    *,
    takes_none: bool = False,
    is_generator: bool = False,
) -> Iterator[RowBatch]:
    """The results of a function for each record (`map` over the watched batch), in batches of about MAX_EMIT.

    An iterable that is still open when a batch is full leaves `operator.is_in_record` set.
    Raises: TypeError ('NoneType' object is not iterable) where the function returned None, unless
    `takes_none`. RuntimeError: as `whole`.
    Args: stamps: of each result, as in a Collector. is_generator: the function is a generator function, so each result is an iterator.
    """
    if stamps is None and is_generator:
        made = _expand_generators(operator, results)
    else:
        made = _expand(operator, results, stamps, takes_none=takes_none)
    for batch in made:
        operator.emissions.note(batch.values)
        yield batch


def _expand(
    operator: FunctionOperator,
    results: Iterator[Any],
    stamps: Int64s | list[int] | None,
    *,
    takes_none: bool,
) -> Iterator[RowBatch]:
    collector, taken = Collector(stamps), operator.emissions.taken()
    out = collector.values
    room = MAX_EMIT
    for result in results:
        if type(result) is list:
            out += taken(result)
        elif result is not None or not takes_none:
            opened = iter(taken(result))
            out += islice(opened, room)
            # The iterable may have more results.
            if len(out) >= MAX_EMIT:
                yield from pull(operator, opened, collector)
                out = collector.values
        if stamps is not None:
            collector.counts.append(len(out))
        room = MAX_EMIT - len(out)
        if room <= 0:
            yield from collector.take()
            out = collector.values
            room = MAX_EMIT
    operator.check_all_were_seen()
    yield from collector.take()


def _expand_generators(operator: FunctionOperator, results: Iterator[Any]) -> Iterator[RowBatch]:
    """As `_expand`, for generator functions, without a step in Python per record."""
    flat = iter(operator.emissions.taken()(chain.from_iterable(results)))
    while len(values := list(islice(flat, MAX_EMIT))) == MAX_EMIT:
        # The batch may also end right behind a record, which cannot be told apart.
        operator.is_in_record = True
        yield RowBatch(values)
    operator.is_in_record = False
    operator.check_all_were_seen()
    if values:
        yield RowBatch(values)


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
        collector.values.extend(islice(results, room))
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

    def add(self, results: Any, stamp: int) -> Iterator[RowBatch]:
        """Add the results of one call of a user function, all with this timestamp. Yields full batches."""
        collector = self._collector
        self._stamps.append(stamp)
        if type(results) is list:
            collector.values += as_they_are(results)
        else:
            yield from pull(self._operator, iter(as_they_are(results)), collector)
        collector.counts.append(len(collector.values))
        if len(collector.values) >= MAX_EMIT:
            yield from collector.take()

    def take(self) -> list[RowBatch]:
        """Remove and return what is left."""
        return self._collector.take()
