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
from penstock.runtime.records.emissions import Emissions, as_they_are, opened, raise_if_no_results
from penstock.runtime.records.side_output import separated


def rows_of(batch: Batch) -> RowBatch:
    """The batch as rows; the chain has converted it."""
    assert isinstance(batch, RowBatch), f"a row operator was fed {type(batch).__name__}"
    return batch


def whole(operator: FunctionOperator, results: Iterator[Any], rows: RowBatch) -> RowBatch:
    """The results of a function that gives one for each row, each with the row's timestamp. Raises: as `gather`."""
    made: list[Any] = []
    aside = gather(operator, iter(operator.emissions.taken()(results)), made)
    operator.emissions.note(made)
    return RowBatch(made, without(rows.timestamps, aside))


def gather(operator: FunctionOperator, results: Iterator[Any], into: list[Any]) -> list[int]:
    """Append the results of a call in C over the watched batch to a list.

    Returns: the positions of the records that were put aside, and so have no result. After an error a list has all results up to
    it, and the iterator goes on behind the record.
    Raises: RuntimeError: the function raised StopIteration, at which such an iterator ends without an error, and records would be
    lost silently.
    """
    aside: list[int] = []
    while True:
        try:
            into.extend(results)
            operator.check_all_were_seen()
        except Exception as error:
            aside.append(operator.put_current_aside(error))
        else:
            return aside


def without(stamps: Int64s | None, aside: list[int]) -> Int64s | None:
    """The timestamps without those at these positions."""
    return np.delete(stamps, aside) if aside and stamps is not None else stamps


def ended_at(index: int) -> RuntimeError:
    """The error for a function that raised StopIteration at this record of its batch."""
    return RuntimeError(
        f"the function raised StopIteration at record {index} of its batch (a next() on an exhausted "
        "iterator?): give next() a default, or catch it"
    )


def filtered(
    operator: FunctionOperator, rows: RowBatch, answers: Iterator[Any]
) -> Sequence[RowBatch]:
    """The rows whose answer is true; empty when there are none. Raises: as `gather`.

    `bool` is called while the record is the current one, because it may raise (for an array). numpy's rules of truth are not used.
    """
    mask: list[bool] = []
    for place in gather(operator, map(bool, answers), mask):
        mask.insert(place, False)
    return kept_of(rows, mask)


def kept_of(rows: RowBatch, mask: list[bool]) -> Sequence[RowBatch]:
    """The rows where the mask is true; empty when there are none."""
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

    calls_function = True
    _watched_stamps: Int64s | None = None
    _last_aside = -1

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

    @property
    def handles_poison(self) -> bool:
        return True

    def failing_record(self) -> str | None:
        index = self.current_index
        return bounded_repr(self._values[index]) if index >= 0 else None

    @property
    def current_index(self) -> int:
        """The position of the current record in the watched batch; below 0: there is none."""
        return len(self._values) - length_hint(self._position) - 1

    @property
    def is_put_aside(self) -> bool:
        """Whether the current record was put aside."""
        return self._last_aside == self.current_index

    def put_current_aside(self, error: Exception) -> int:
        """Put the current record of the watched batch aside. Returns its position.

        Raises: the error, if the job is to fail, or if the record was put aside already: then the iteration does not go on.
        """
        index = self.current_index
        if index < 0 or index == self._last_aside:
            raise error
        stamps = self._watched_stamps
        self.put_aside(error, self._values[index], None if stamps is None else int(stamps[index]))
        self._last_aside = index
        return index

    def check_all_were_seen(self) -> None:
        """Check, after a `map` over the watched batch, that it saw all records. Raises: RuntimeError: see `whole`."""
        if not _is_exhausted(self._position):
            raise ended_at(len(self._values) - length_hint(self._position) - 1)

    def watched(self, values: list[Any], stamps: Int64s | None = None) -> Iterator[Any]:
        """An iterator over the batch whose position tells the failing record. `stamps`: the records' timestamps."""
        self._values = values
        self._position = iter(values)
        self._watched_stamps = stamps
        self._last_aside = -1
        return self._position


class MapOperator(FunctionOperator):
    """One result per record. `side_tags`: ids of the tags that are read."""

    side_tags: tuple[str, ...] = ()

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        results = map(self.function.call, self.watched(rows.values, rows.timestamps))
        return separated((whole(self, results, rows),), self.side_tags)


class FilterOperator(FunctionOperator):
    """Keeps the records for which the function is true."""

    keeps_records = True

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        position = self.watched(rows.values, rows.timestamps)
        if rows.timestamps is not None:
            return filtered(self, rows, map(self.function.call, position))
        kept: list[Any] = []
        gather(self, filter(self.function.call, position), kept)
        return (RowBatch(kept),) if kept else ()


class FlatMapOperator(FunctionOperator):
    """Any number of results per record. Lists are taken whole, other iterables are pulled step by step.

    `side_tags`: ids of the tags that are read.
    """

    side_tags: tuple[str, ...] = ()

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        call = self.function.call
        results = map(call, self.watched(rows.values, rows.timestamps))
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
    elif operator.poison is None:
        made = _expand(operator, results, Collector(stamps), takes_none=takes_none)
    else:
        made = _expand_on(operator, results, Collector(stamps), takes_none=takes_none)
    for batch in made:
        operator.emissions.note(batch.values)
        yield batch


def _expand(
    operator: FunctionOperator, results: Iterator[Any], collector: Collector, *, takes_none: bool
) -> Iterator[RowBatch]:
    taken, stamps = operator.emissions.taken(), collector.stamps
    out = collector.values
    room = max(0, MAX_EMIT - len(out))
    for result in results:
        if type(result) is list:
            out += taken(result)
        elif result is not None or not takes_none:
            try:
                iterator = iter(taken(result))
            except TypeError:
                raise_if_no_results(result)
                raise
            out += islice(iterator, room)
            # The iterable may have more results.
            if len(out) >= MAX_EMIT:
                yield from pull(operator, iterator, collector)
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


def _expand_on(
    operator: FunctionOperator, results: Iterator[Any], collector: Collector, *, takes_none: bool
) -> Iterator[RowBatch]:
    """As `_expand`, and goes on behind records that are put aside. What such a record has given before stays."""
    while True:
        try:
            yield from _expand(operator, results, collector, takes_none=takes_none)
        except Exception as error:
            operator.put_current_aside(error)
            operator.is_in_record = False
            if collector.stamps is not None:
                collector.counts.append(len(collector.values))
        else:
            return


def _expand_generators(operator: FunctionOperator, results: Iterator[Any]) -> Iterator[RowBatch]:
    """As `_expand` or `_expand_on`, for generator functions, without a step in Python per record."""
    taken = operator.emissions.taken()
    flat = iter(taken(chain.from_iterable(results)))
    values: list[Any] = []
    while True:
        try:
            values.extend(islice(flat, MAX_EMIT - len(values)))
            if len(values) < MAX_EMIT:
                operator.check_all_were_seen()
                break
        except Exception as error:
            operator.put_current_aside(error)
            # The former chain may have ended with the error.
            flat = iter(taken(chain.from_iterable(results)))
            continue
        # The batch may also end right behind a record, which cannot be told apart.
        operator.is_in_record = True
        yield RowBatch(values)
        values = []
    operator.is_in_record = False
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
        try:
            if type(results) is list:
                collector.values += as_they_are(results)
            else:
                yield from pull(self._operator, opened(results), collector)
        finally:
            # What came before an error stays.
            collector.counts.append(len(collector.values))
        if len(collector.values) >= MAX_EMIT:
            yield from collector.take()

    def take(self) -> list[RowBatch]:
        """Remove and return what is left."""
        return self._collector.take()
