"""Map, flat map and filter on rows that are not keyed. Do not know state.

The usual case is one call into C (`map`, `filter`, `compress`). If it fails, the position of the list
iterator shows which record failed. Source: Flink StreamMap, StreamFlatMap, StreamFilter, PyFlink's process functions
around them; differs: a batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import isgeneratorfunction
from itertools import chain, compress, islice
from operator import length_hint
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.types import TypeInformation
from penstock.engine.runtime.context import RuntimeContext, UserFunction
from penstock.engine.runtime.elements import Batch, ColumnBatch, Int64s, RowBatch
from penstock.engine.runtime.operator import MAX_EMIT, Emitted, Operator, OperatorContext
from penstock.engine.runtime.operators.collectors import Collector, pull
from penstock.engine.runtime.records.dead_letters import ended_at, is_exhausted
from penstock.engine.runtime.records.frozen import is_immutable
from penstock.engine.runtime.records.output_copies import (
    own_copies,
    own_copy,
    raise_if_no_results,
    refuse_one_record,
)
from penstock.engine.runtime.records.side_output import separated
from penstock.engine.runtime.row_functions.plans import Strategy
from penstock.engine.runtime.row_functions.runner import ColumnRows, FilterFunction, RowFunction

NOTHING: Final[frozenset[type]] = frozenset()
RECORDS_AT_ONCE: Final = 2048
"""With their keys and results they take less than the megabyte that a core's own cache has."""
_LISTS: Final = frozenset({list, tuple})


def rows_of(batch: Batch) -> RowBatch:
    """The batch as rows; the chain has converted it."""
    assert isinstance(batch, RowBatch), f"a row operator was fed {type(batch).__name__}"
    return batch


def whole(operator: FunctionOperator, results: Iterator[Any], rows: RowBatch) -> RowBatch:
    """The results of a function that gives one for each row, each with the row's timestamp. Raises: as `gather`."""
    made: list[Any] = []
    aside = gather(operator, results, made, operator.take)
    return RowBatch(made, without(rows.timestamps, aside))


def gather(
    operator: FunctionOperator,
    results: Iterator[Any],
    into: list[Any],
    extend: Callable[[list[Any], Iterator[Any]], None] = list.extend,
) -> list[int]:
    """Append the results of a call in C over the watched batch to a list. `extend`: does it.

    Returns: the positions of the records that were put aside, and so have no result. After an error a list has all results up to
    it, and the iterator continues after the record.
    Raises: RuntimeError: the function raised StopIteration, at which such an iterator ends without an error, and records would be
    lost silently.
    """
    aside: list[int] = []
    while True:
        try:
            extend(into, results)
            operator.check_all_were_seen()
        except Exception as error:
            aside.append(operator.put_current_aside(error))
        else:
            return aside


def without(stamps: Int64s | None, aside: list[int]) -> Int64s | None:
    """The timestamps without those at these positions."""
    return np.delete(stamps, aside) if aside and stamps is not None else stamps


def filtered(
    operator: FunctionOperator, rows: RowBatch, answers: Iterator[Any]
) -> Sequence[RowBatch]:
    """The rows whose answer is true; empty when there are none. Raises: as `gather`.

    `bool` is called while the record is the current one, because it may raise (for an array). numpy's rules of truth are not used.
    """
    mask: list[bool] = []
    values = rows.values
    keeps: Callable[[object], bool] = bool
    if not operator.reuses_objects and not is_immutable(values):
        values = values.copy()

        def copies(answer: object) -> bool:
            """Copy the record before the next call of the function, which may keep it and change it."""
            at = operator.current_index
            is_kept = bool(answer)
            values[at] = own_copy(values[at]) if is_kept else None
            return is_kept

        keeps = copies
    for place in gather(operator, map(keeps, answers), mask):
        mask.insert(place, False)
    return kept_of(RowBatch(values, rows.timestamps), mask)


def kept_of(rows: RowBatch, mask: list[bool]) -> Sequence[RowBatch]:
    """The rows where the mask is true; empty when there are none."""
    kept = list(compress(rows.values, mask))
    if not kept:
        return ()
    stamps = rows.timestamps
    return (RowBatch(kept, None if stamps is None else stamps[np.array(mask)]),)


class FunctionOperator(Operator):
    """Opens and closes its user function, and knows which record is being processed."""

    def __init__(self, function: UserFunction) -> None:
        self.function = function
        self._values: list[Any] = []
        self._position: Iterator[Any] = iter(())
        self._is_open = False

    calls_function = True
    runs_on_columns: ClassVar[bool] = False
    """Whether it calls its function with each record once and nothing else, so that the function may run on columns."""
    row_function_class: ClassVar[type[RowFunction]] = RowFunction
    row_function: RowFunction | None = None
    functions_as_columns: bool = True
    """Whether its function may run on columns. Source: `penstock.task.functions-as-columns`; the driver sets it."""
    _viewed: ColumnRows | None = None
    _watched_stamps: Int64s | None = None
    _last_aside = -1

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self.open_function(context)

    def open_function(self, context: OperatorContext) -> None:
        """Open the function of the user, and make what runs it."""
        self._is_open = True
        self.function.open(self.runtime_context(context))
        if self.runs_on_columns:
            self.row_function = self.row_function_class(
                self.function.call, self.functions_as_columns
            )

    def rows_from(
        self, batch: ColumnBatch, type_info: TypeInformation | None, input_index: int
    ) -> RowBatch:
        if self.row_function is None:
            return super().rows_from(batch, type_info, input_index)
        return self.row_function.rows(batch, type_info)

    def on_columns(self, rows: ColumnRows) -> tuple[RowBatch, list[Any] | None]:
        """The records that the function has to be called with, and what it returns for each record if it need not be called."""
        self.watched([])  # No record is to be named where they cannot be made.
        if rows.plan.strategy is Strategy.FIELDS or self.row_function is None:
            return rows, None
        results = self.row_function.results(rows)
        return (rows.made(), None) if results is None else (rows, results)

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
        return RuntimeContext(context, self.function)

    @property
    def handles_poison(self) -> bool:
        return True

    def failing_record(self) -> str | None:
        index = self.current_index
        return bounded_repr(self._record_at(index)) if index >= 0 else None

    def _record_at(self, index: int) -> Any:
        return self._values[index] if self._viewed is None else self._viewed.record_at(index)

    @property
    def current_index(self) -> int:
        """The position of the current record in the watched batch; below 0: there is none."""
        return len(self._values) - length_hint(self._position) - 1

    @property
    def is_put_aside(self) -> bool:
        """Whether the current record was put aside."""
        return self._last_aside == self.current_index

    def put_current_aside(self, error: BaseException) -> int:
        """Put the current record of the watched batch aside. Returns its position.

        Raises: the error, if the job is to fail, or if the record was put aside already: then the iteration does not go on.
        """
        index = self.current_index
        if index < 0 or index == self._last_aside:
            raise error
        stamps = self._watched_stamps
        self.put_aside(
            error, self._record_at(index), None if stamps is None else int(stamps[index])
        )
        self._last_aside = index
        return index

    def check_all_were_seen(self) -> None:
        """Check, after a `map` over the watched batch, that it saw all records. Raises: RuntimeError: see `whole`."""
        if not is_exhausted(self._position):
            raise ended_at(len(self._values) - length_hint(self._position) - 1)

    def watched(self, values: list[Any], stamps: Int64s | None = None) -> Iterator[Any]:
        """An iterator over the batch whose position shows the failing record. `stamps`: the records' timestamps."""
        self._values = values
        self._viewed = None
        self._position = iter(values)
        self._watched_stamps = stamps
        self._last_aside = -1
        return self._position

    def watched_rows(self, rows: RowBatch) -> Iterator[Any]:
        """`watched` for a batch. The function gets tuples of the fields that it reads where it cannot distinguish them from the records."""
        if not isinstance(rows, ColumnRows):
            return self.watched(rows.values, rows.timestamps)
        self.watched([])
        position = self.watched(list(rows.plan.records(rows.batch, rows.known)), rows.timestamps)
        self._viewed = rows
        return position

    def watched_nothing(self) -> None:
        """No record is the current one, and none is left: the results come from columns."""
        for _ in self.watched([]):
            pass


class MapOperator(FunctionOperator):
    """One result per record. `side_tags`: ids of the tags that are read."""

    side_tags: tuple[str, ...] = ()
    runs_on_columns = True

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        if isinstance(rows, ColumnRows):
            rows, made = self.on_columns(rows)
            if made is not None:
                self.watched_nothing()
                # Only these may hold a list that somebody else has.
                is_shared = isinstance(rows, ColumnRows) and rows.plan.is_shared
                values = own_copies(made) if is_shared else made
                return separated((RowBatch(values, rows.timestamps),), self.side_tags)
        results = map(self.function.call, self.watched_rows(rows))
        return separated((whole(self, results, rows),), self.side_tags)


class FilterOperator(FunctionOperator):
    """Keeps the records for which the function is true."""

    keeps_records = True
    runs_on_columns = True
    row_function_class = FilterFunction

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        if isinstance(rows, ColumnRows):
            return self._kept_columns(rows.batch, *self.on_columns(rows))
        position = self.watched(rows.values, rows.timestamps)
        if rows.timestamps is not None or not is_immutable(rows.values):
            return filtered(self, rows, map(self.function.call, position))
        left: list[Any] = []
        gather(self, filter(self.function.call, position), left)
        return (RowBatch(left),) if left else ()

    def _kept_columns(self, batch: ColumnBatch, rows: RowBatch, made: list[Any] | None) -> Emitted:
        """The records stay columns. `rows`: the same, for the function; `made`: what it returns for them, if that is known."""
        mask: list[bool] = []
        if made is not None:
            self.watched_nothing()
            mask += map(bool, made)
        else:
            answers = map(bool, map(self.function.call, self.watched_rows(rows)))
            for place in gather(self, answers, mask):
                mask.insert(place, False)
        kept = sum(mask)
        if kept == len(mask):
            return (batch,) if kept else ()
        return (batch.filter(pa.array(mask, pa.bool_())),) if kept else ()


class FlatMapOperator(FunctionOperator):
    """Any number of results per record. Lists are taken whole, other iterables are pulled step by step.

    `side_tags`: ids of the tags that are read.
    """

    side_tags: tuple[str, ...] = ()
    runs_on_columns = True

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows, lists = rows_of(batch), None
        if isinstance(rows, ColumnRows):
            rows, lists = self.on_columns(rows)
        call = self.function.call
        if lists is not None and _LISTS.issuperset(map(type, lists)):
            self.watched_nothing()
            made = expand(self, iter(lists), rows.timestamps)
        else:
            rows = rows.made() if lists is not None and isinstance(rows, ColumnRows) else rows
            results = map(call, self.watched_rows(rows))
            made = expand(self, results, rows.timestamps, is_generator=isgeneratorfunction(call))
        return separated(made, self.side_tags)


def expand(
    operator: FunctionOperator,
    results: Iterator[Any],
    stamps: Int64s | list[int] | None,
    *,
    takes_none: bool = False,
    is_generator: bool = False,
    refused: frozenset[type] = NOTHING,
) -> Iterator[RowBatch]:
    """The results of a function for each record (`map` over the watched batch), in batches of about MAX_EMIT.

    An iterable that is still open when a batch is full leaves `operator.is_in_record` set.
    Raises: TypeError ('NoneType' object is not iterable) where the function returned None, unless
    `takes_none`. RuntimeError: as `whole`.
    Args: stamps: of each result, as in a Collector. is_generator: the function is a generator function, so each result is an iterator.
        refused: kinds of results that are one record; a TypeError says that `yield` is missing.
    """
    if stamps is None and is_generator:
        return _expand_generators(operator, results)
    way = _expand if operator.poison is None else _expand_on
    return way(operator, results, Collector(stamps), refused, takes_none=takes_none)


def _expand(
    operator: FunctionOperator,
    results: Iterator[Any],
    collector: Collector,
    refused: frozenset[type],
    *,
    takes_none: bool,
) -> Iterator[RowBatch]:
    take, stamps = operator.take, collector.stamps
    out = collector.values
    room = max(0, MAX_EMIT - len(out))
    for result in results:
        if type(result) is list:
            take(out, result)
        elif result is not None or not takes_none:
            if type(result) in refused:
                refuse_one_record(result)
            try:
                iterator = iter(result)
            except TypeError:
                raise_if_no_results(result)
                raise
            take(out, islice(iterator, room))
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
    operator: FunctionOperator,
    results: Iterator[Any],
    collector: Collector,
    refused: frozenset[type],
    *,
    takes_none: bool,
) -> Iterator[RowBatch]:
    """As `_expand`, and continues after records that are put aside. What such a record has given before stays."""
    while True:
        try:
            yield from _expand(operator, results, collector, refused, takes_none=takes_none)
        except Exception as error:
            operator.put_current_aside(error)
            operator.is_in_record = False
            if collector.stamps is not None:
                collector.counts.append(len(collector.values))
        else:
            return


def _expand_generators(operator: FunctionOperator, results: Iterator[Any]) -> Iterator[RowBatch]:
    """As `_expand` or `_expand_on`, for generator functions, without a step in Python per record."""
    take = operator.take
    flat = chain.from_iterable(results)
    values: list[Any] = []
    while True:
        try:
            take(values, islice(flat, MAX_EMIT - len(values)))
            if len(values) < MAX_EMIT:
                operator.check_all_were_seen()
                break
        except Exception as error:
            operator.put_current_aside(error)
            # The former chain may have ended with the error.
            flat = chain.from_iterable(results)
            continue
        # The batch may also end right after a record, which cannot be distinguished.
        operator.is_in_record = True
        yield RowBatch(values)
        values = []
    operator.is_in_record = False
    if values:
        yield RowBatch(values)
