"""Map, flat map and filter on rows that are not keyed. Do not know state.

The usual case is one call into C (`map`, `filter`, `compress`). If it fails, the position of the list
iterator tells which record failed. Source: Flink StreamMap, StreamFlatMap, StreamFilter, PyFlink's process functions
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

from penstock.model.texts.bounded_text import bounded_repr
from penstock.model.types import TypeInformation
from penstock.runtime.context import RuntimeContext, UserFunction
from penstock.runtime.elements import Batch, ColumnBatch, Int64s, RowBatch
from penstock.runtime.operator import MAX_EMIT, Emitted, Operator, OperatorContext, told_to_nobody
from penstock.runtime.operators.collectors import Collector, pull
from penstock.runtime.records.emissions import (
    own_copies,
    own_copy,
    raise_if_no_results,
    refuse_one_record,
)
from penstock.runtime.records.failed_at import ended_at, is_exhausted
from penstock.runtime.records.frozen import is_immutable
from penstock.runtime.records.side_output import separated
from penstock.runtime.row_functions.objects import ObjectFunction
from penstock.runtime.row_functions.plans import Way
from penstock.runtime.row_functions.runner import (
    ColumnRows,
    FilterFunction,
    FlatFunction,
    FusedFunctions,
    InKernels,
    RowFunction,
)

NOTHING: Final[frozenset[type]] = frozenset()
LEAST_OBJECTS: Final = 512
"""Fewer are called as quickly as it is seen whether they have to be."""
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
    it, and the iterator goes on behind the record.
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
    fused: FusedFunctions | None = None
    """Its function and those of the operators behind it, if they can run as one."""
    kernels: InKernels | None = None
    """Its function on whole columns, if its results are wanted as columns."""
    functions_as_columns: bool = True
    """Whether its function may run on columns. Source: `penstock.task.functions-as-columns`; the driver sets it."""
    complain: Callable[[str], None] = staticmethod(told_to_nobody)
    """That of the context: logs a line for the people who run the job."""
    _lent: ColumnRows | None = None
    _watched_stamps: Int64s | None = None
    _last_aside = -1

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self.complain = context.complain
        self.open_function(context)

    def open_function(self, context: OperatorContext) -> None:
        """Open the function of the user, and make what runs it."""
        self._is_open = True
        self.function.open(self.runtime_context(context))
        if self.runs_on_columns:
            call, is_on = self.function.call, self.functions_as_columns
            name = f"{context.operator_name} of {context.task_name}"
            self.row_function = self.row_function_class(call, name, is_on)
            if is_on:
                self.row_function.on_objects = ObjectFunction(call, is_filter=self.keeps_records)

    def run_fused(self, functions: FusedFunctions) -> None:
        """From now on its function and those of the operators behind it run as one, where they can. The chain decides it once all are open."""
        self.fused = functions

    def run_in_kernels(self, kernels: InKernels) -> None:
        """From now on its function runs on whole columns, where it can. The chain decides it once all are open."""
        self.kernels = kernels

    def rows_from(
        self, batch: ColumnBatch, type_info: TypeInformation | None, input_index: int
    ) -> RowBatch:
        if self.row_function is None:
            return super().rows_from(batch, type_info, input_index)
        return self.row_function.rows(batch, type_info)

    def run_in_columns(self, rows: ColumnRows) -> Batch | None:
        """What comes out of the last of the operators that run as one with this one, or its own results as columns; None: neither."""
        made: Batch | None = None if self.fused is None else self.fused.run(rows)
        if made is None and self.kernels is not None:
            made = self.kernels.run(rows, rows.plan)
        if made is not None:
            self.watched_nothing()
        return made

    def on_objects(self, rows: RowBatch) -> list[Any] | None:
        """What the function returns for each record, without a call for each; None: it has to be called."""
        function = self.row_function
        if function is None or function.on_objects is None:
            return None
        made = function.on_objects.results(rows.values)
        if made is None:
            return None
        self.watched_nothing()
        return own_copies(made) if function.on_objects.is_changeable else made

    def on_columns(self, rows: ColumnRows) -> tuple[RowBatch, list[Any] | None]:
        """The records that the function has to be called with, and what it returns for each record if it need not be called."""
        if rows.plan.way is Way.FIELDS or self.row_function is None:
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
        return RuntimeContext(context)

    @property
    def handles_poison(self) -> bool:
        return True

    def failing_record(self) -> str | None:
        index = self.current_index
        return bounded_repr(self._record_at(index)) if index >= 0 else None

    def _record_at(self, index: int) -> Any:
        return self._values[index] if self._lent is None else self._lent.record_at(index)

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
        """An iterator over the batch whose position tells the failing record. `stamps`: the records' timestamps."""
        self._values = values
        self._lent = None
        self._position = iter(values)
        self._watched_stamps = stamps
        self._last_aside = -1
        return self._position

    def watched_rows(self, rows: RowBatch) -> Iterator[Any]:
        """`watched` for a batch. The function gets tuples of the fields that it reads where it cannot tell them from the records."""
        if not isinstance(rows, ColumnRows):
            return self.watched(rows.values, rows.timestamps)
        position = self.watched(list(rows.plan.records(rows.batch, rows.known)), rows.timestamps)
        self._lent = rows
        return position

    def watched_all(self) -> None:
        """All records of the watched batch have passed, although nobody has asked for them."""
        position: Any = self._position
        position.__setstate__(len(self._values))
        next(position, None)

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
            columns = self.run_in_columns(rows)
            if columns is not None:
                return (columns,)
            rows, made = self.on_columns(rows)
            if made is not None:
                self.watched_nothing()
                # Only these may hold a list that somebody else has.
                is_shared = isinstance(rows, ColumnRows) and rows.plan.is_shared
                values = own_copies(made) if is_shared else made
                return separated((RowBatch(values, rows.timestamps),), self.side_tags)
        elif len(rows.values) >= LEAST_OBJECTS and (made := self.on_objects(rows)) is not None:
            return separated((RowBatch(made, rows.timestamps),), self.side_tags)
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
            columns = self.run_in_columns(rows)
            if columns is not None:
                return (columns,) if len(columns) else ()
            rows, made = self.on_columns(rows)
            if isinstance(rows, ColumnRows):
                return self._kept_columns(rows, made)
        elif len(rows.values) >= LEAST_OBJECTS:
            mask = self.on_objects(rows)
            if mask is not None:
                return kept_of(rows, mask)
        position = self.watched(rows.values, rows.timestamps)
        if rows.timestamps is not None or not is_immutable(rows.values):
            return filtered(self, rows, map(self.function.call, position))
        left: list[Any] = []
        gather(self, filter(self.function.call, position), left)
        return (RowBatch(left),) if left else ()

    def _kept_columns(self, rows: ColumnRows, made: list[Any] | None) -> Emitted:
        """The records stay columns."""
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
            return (rows.batch,) if kept else ()
        return (rows.batch.filter(pa.array(mask, pa.bool_())),) if kept else ()


class FlatMapOperator(FunctionOperator):
    """Any number of results per record. Lists are taken whole, other iterables are pulled step by step.

    `side_tags`: ids of the tags that are read.
    """

    side_tags: tuple[str, ...] = ()
    runs_on_columns = True
    row_function_class = FlatFunction

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows, lists = rows_of(batch), None
        if isinstance(rows, ColumnRows):
            rows, lists = self.on_columns(rows)
        if lists is not None and isinstance(rows, ColumnRows) and FlatFunction.is_flat(rows):
            self.watched_nothing()
            return [RowBatch(lists[at : at + MAX_EMIT]) for at in range(0, len(lists), MAX_EMIT)]
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
    """As `_expand`, and goes on behind records that are put aside. What such a record has given before stays."""
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
        # The batch may also end right behind a record, which cannot be told apart.
        operator.is_in_record = True
        yield RowBatch(values)
        values = []
    operator.is_in_record = False
    if values:
        yield RowBatch(values)
