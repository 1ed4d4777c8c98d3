"""Running aggregates per key: reduce, sum, min, max, min_by, max_by. Do not know windows.

Source: Flink StreamGroupedReduceOperator, PyFlink's Accumulator in KeyedStream; differs: one dict per
operator, with one lookup per record; a result is copied before a function can change it, where Flink
serializes it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from operator import itemgetter
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.model.key_types import KeyType
from penstock.engine.model.row import Row, make_row, named
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.types import RowTypeInfo
from penstock.engine.runtime.codecs.convert import (
    enforce,
    is_as_declared,
    is_columnar,
    to_columns,
    travel_form,
)
from penstock.engine.runtime.context import RuntimeContext, UserFunction
from penstock.engine.runtime.elements import (
    MAX_WATERMARK,
    Batch,
    ColumnBatch,
    Int64s,
    RowBatch,
    classes_of,
)
from penstock.engine.runtime.keys import KeySelection, original_key, state_keys
from penstock.engine.runtime.keys.encoding import RefusedKey
from penstock.engine.runtime.operator import (
    MAX_EMIT,
    Accepts,
    BatchOrder,
    Combining,
    Emitted,
    OperatorContext,
)
from penstock.engine.runtime.operators.keyed import KeyTaker, new_backend, restore_backend
from penstock.engine.runtime.operators.stateless import rows_of, without
from penstock.engine.runtime.records.output_copies import own_copy, same
from penstock.engine.runtime.records.sizes import objects_size, sorting_size
from penstock.engine.runtime.row_functions.reduces import combining_proof
from penstock.engine.runtime.state.contract import KeyedStateBackend, KeyTable
from penstock.engine.runtime.state.snapshot import OperatorSnapshot, StateInfo, refuse_left

REDUCE_TABLE: Final = "reduced"
REDUCED: Final = StateInfo("Reduced")
_MOST_PARTIALS: Final = 1 << 16
_MOST_BYTES: Final = 32 << 20
_LEAST_GAIN: Final = 1.5
_COLUMNS_EMIT: Final = 1 << 14
_NO_RESULT: Final = object()


class ReduceOperator(KeyTaker):
    """Emits the running result of each record's key; the first record of a key passes unchanged.

    `combines`: its user promises that the function may combine its own results, in any order of the records.
    """

    combines = False

    def __init__(
        self, function: UserFunction, keys: KeySelection, *, combines: bool = False
    ) -> None:
        super().__init__(function, keys)
        self.combines = combines
        self._restored = OperatorSnapshot()
        self._state: KeyedStateBackend
        self.table: KeyTable

    @property
    def _own(self) -> Callable[[Any], Any]:
        """Copies a record so that only this operator has it: a function may change its first argument and return it."""
        is_aggregate = isinstance(self.function.owner, Aggregate)
        return same if is_aggregate or self.reuses_objects else own_copy

    def runtime_context(self, context: OperatorContext) -> RuntimeContext:
        self._state = new_backend(context, self.keys)
        restored, self._restored = self._restored, OperatorSnapshot()
        self.watch_kinds(context, restored)
        found = restore_backend(self._state, restored, "")
        others = {name: str(found[name]) for name in found if name != REDUCE_TABLE}
        refuse_left(context.operator_id, type(self).__name__, others)
        info = replace(REDUCED, type_info=self._state.owner.records)
        self.table = self._state.table(REDUCE_TABLE, info)
        self._call = named(self.function.call, names_in(context))
        return RuntimeContext(context, self.function)

    @property
    def state_keys(self) -> KeyType:
        return self.key_type()

    def close(self) -> None:
        super().close()
        if hasattr(self, "_state"):
            self._state.close()

    def in_batch(self) -> ReduceOperator:
        return FinalReduceOperator(self.function, self.keys, combines=self.combines)

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        _, skeys = self.state_keys_of(rows.values)
        table, call, get = self.table, self._call, self.table.get
        own = same if self.reuses_objects else self._own
        results: list[Any] = []
        aside: list[int] = []
        for skey, value in zip(skeys, self.watched(rows.values, rows.timestamps), strict=False):
            old = get(skey, _NO_RESULT)
            if old is _NO_RESULT:
                table[skey] = own(value)
                results.append(value)
                continue
            try:
                reduced = call(old, value)
            except Exception as error:  # A user's function raises anything.
                aside.append(self.put_current_aside(error))
                continue
            table[skey] = reduced
            results.append(own(reduced))
        return (RowBatch(results, without(rows.timestamps, aside)),)

    def snapshot(self) -> OperatorSnapshot:
        return OperatorSnapshot(self._state.snapshot())

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._restored = snapshot


class FinalReduceOperator(ReduceOperator):
    """Emits one result for each key, at the end of the input. A built-in aggregate processes column batches in Arrow, where Arrow gives
    the same result. Source: Flink BatchGroupedReduceOperator: its results have the timestamp of the last watermark.
    """

    batch_order = BatchOrder.BY_TIME
    _stamp: ClassVar[int | None] = MAX_WATERMARK

    def __init__(
        self,
        function: UserFunction,
        keys: KeySelection,
        *,
        combines: bool = False,
        is_paired: bool = False,
    ) -> None:
        """`is_paired`: records come as (key, value)."""
        super().__init__(function, keys, combines=combines)
        self._is_paired = is_paired
        self._reduction: ColumnReduction | None = None
        aggregate, columns = function.owner, keys.columns
        if self._keeps_keys and isinstance(aggregate, Aggregate) and aggregate.kind in _IN_ARROW:
            name, position = _IN_ARROW[aggregate.kind], aggregate.position
            self._reduction = ColumnReduction(columns or (), name, str(position))
            self.accepts = Accepts.ANY

    @property
    def _keeps_keys(self) -> bool:
        """Whether a result's own fields have the key of the records that it was made of."""
        aggregate, columns = self.function.owner, self.keys.columns
        if columns is None or not isinstance(aggregate, Aggregate):
            return False
        return isinstance(aggregate.position, str) and aggregate.position not in columns

    @property
    def _is_promised(self) -> bool:
        """Whether nothing needs to be proven of the function."""
        return self.combines or isinstance(self.function.owner, Aggregate)

    def in_batch(self) -> FinalReduceOperator:
        return self

    def before_exchange(self) -> Combining | None:
        if self._keeps_keys:
            partial = PartialReduceOperator(self.function, self.keys)
            return Combining(partial, self, self.keys, keeps_type=True)
        if not self._is_promised and not combining_proof(self.function.call, self.keys.input_type):
            return None
        by_key = KeySelection(itemgetter(0), self.keys.key_type)
        return Combining(
            PartialReduceOperator(self.function, self.keys, combines=self.combines, is_paired=True),
            FinalReduceOperator(self.function, by_key, is_paired=True),
            by_key,
            keeps_type=False,
        )

    def runtime_context(self, context: OperatorContext) -> RuntimeContext:
        self._results: dict[Any, Any] = {}
        self._type = context.input_types[0] if context.input_types else None
        self._call = named(self.function.call, names_in(context))
        return RuntimeContext(context, self.function)

    def process(self, batch: Batch, input_index: int) -> Emitted:
        if self._reduction is not None:
            if isinstance(batch, ColumnBatch) and self._reduction.add(batch):
                return ()
            held, self._reduction = self._reduction.take(), None
            for data in held:
                self._reduce_rows(self.rows_from(ColumnBatch(data, None), self._type, 0).values)
        if isinstance(batch, ColumnBatch):
            batch = self.rows_from(batch, self._type, 0)
        self._reduce_rows(batch.values)
        return ()

    def _reduce_rows(self, values: list[Any]) -> None:
        keys = self.keys_of(values)
        if self._is_paired:
            values = [value for _, value in values]
        self._reduce(keys, values)

    def _reduce(self, keys: list[Any], values: list[Any]) -> None:
        table, call, get, own = self._results, self._call, self._results.get, self._own
        skeys = self.checked_keys(keys, state_keys(keys))
        for skey, value in zip(skeys, self.watched(values), strict=False):
            old = get(skey, _NO_RESULT)
            try:
                table[skey] = own(value) if old is _NO_RESULT else call(old, value)
            except Exception as error:  # A user's function raises anything.
                self.put_current_aside(error)

    def finish(self) -> Emitted:
        for data in () if self._reduction is None else self._reduction.take():
            for start in range(0, data.num_rows, _COLUMNS_EMIT):
                piece = data.slice(start, _COLUMNS_EMIT)
                yield ColumnBatch(piece, self._stamps(piece.num_rows))
        results = self._taken()
        for start in range(0, len(results), MAX_EMIT):
            values = results[start : start + MAX_EMIT]
            yield RowBatch(values, self._stamps(len(values)))

    def _taken(self) -> list[Any]:
        results = list(self._results.values())
        self._results.clear()
        return results

    def _stamps(self, count: int) -> Int64s | None:
        return None if self._stamp is None else np.full(count, self._stamp, np.int64)


class PartialReduceOperator(FinalReduceOperator):
    """Runs before the exchange to a `FinalReduceOperator`: sends one combined record for several records of a key.

    The function then combines its own results. So it is marked by its user (`combines`), or a built-in aggregate or proven to, for the
    records of the batch. Other records pass, and do not overtake those before them. Records with timestamps pass, too, because
    the records of a key are reduced in the order of time. When there are too many keys for combining to be of use, everything passes. Records
    are converted to the declared type first, as an exchange does.

    `is_paired`: emits (key, value), because the selector may give another key for a result. Source: Spark's map-side
    combine; Flink's ReduceCombineDriver of its former DataSet API, which trusted the user's function.
    """

    accepts = Accepts.ANY
    _stamp = None

    def runtime_context(self, context: OperatorContext) -> RuntimeContext:
        self._rows_in = self._bytes_in = 0
        self._is_of_use = True
        made = super().runtime_context(context)
        self._proof = None if self._is_promised else combining_proof(self.function.call, self._type)
        return made

    def process(self, batch: Batch, input_index: int) -> Emitted:
        if self._is_of_use and batch.timestamps is None and self._took(batch):
            self._rows_in += len(batch)
            self._bytes_in += sorting_size(batch)
            held = len(self._results) + (0 if self._reduction is None else self._reduction.groups)
            if held >= _MOST_PARTIALS or self._are_large():
                self._is_of_use = self._rows_in >= _LEAST_GAIN * held
                self._rows_in = 0
                yield from self.finish()
            return
        yield from self.finish()
        yield self._passed(batch)

    def _took(self, batch: Batch) -> bool:
        """Combine a batch with what is held. False: nothing was done, for it has to pass."""
        if self._reduction is not None and self._type is not None and is_columnar(self._type):
            columns = batch if isinstance(batch, ColumnBatch) else to_columns(batch, self._type)
            return is_as_declared(columns.schema, self._type) and self._reduction.add(columns)
        rows = self._converted_rows(batch)
        if not self._may_combine(rows.values):
            return False
        for _ in super().process(rows, 0):
            raise AssertionError("results are only kept")
        return True

    def _may_combine(self, values: Sequence[Any]) -> bool:
        """Whether the result is the same however these records are grouped."""
        if self.combines:
            return True
        aggregate = self.function.owner
        if isinstance(aggregate, Aggregate):
            return aggregate.may_combine(values)
        return self._proof is not None and self._proof.holds_for(values)

    def _converted_rows(self, batch: Batch) -> RowBatch:
        batch = self._converted(batch)
        return self.rows_from(batch, self._type, 0) if isinstance(batch, ColumnBatch) else batch

    def _converted(self, batch: Batch) -> Batch:
        if isinstance(batch, ColumnBatch) or travel_form(self._type) is None:
            return batch
        return enforce(rows_of(batch), self._type)

    def _are_large(self) -> bool:
        """Whether the held results are too large, since results may grow with each record. Measured only after as many bytes
        of input as they may have.
        """
        if self._bytes_in < _MOST_BYTES:
            return False
        self._bytes_in = 0
        return objects_size(self._results.values()) > _MOST_BYTES

    def _passed(self, batch: Batch) -> Batch:
        if not self._is_paired:
            return batch
        values = self._converted_rows(batch).values
        keys = self.keys_of(values)
        return RowBatch(list(zip(keys, values, strict=True)), batch.timestamps)

    def _reduce_rows(self, values: list[Any]) -> None:
        keys = self.keys_of(values)
        with self._explaining_refused_key(keys, values):
            self._reduce(keys, values)

    @contextmanager
    def _explaining_refused_key(self, keys: Sequence[Any], values: list[Any]) -> Generator[None]:
        """Before the exchange this is the first to see the keys."""
        try:
            yield
        except RefusedKey as error:
            # This record is the one that the error is about.
            place = next(place for place, key in enumerate(keys) if key is error.key)
            next(self.watched(values[place : place + 1]))
            raise self.keys.refused_key(error, keys, values) from None

    def _taken(self) -> list[Any]:
        if not self._is_paired:
            return super()._taken()
        results = [(original_key(skey), value) for skey, value in self._results.items()]
        self._results.clear()
        return results


class AggregateKind(StrEnum):
    """Built-in aggregates of a keyed stream."""

    SUM = "SUM"
    MIN = "MIN"
    MAX = "MAX"
    MIN_BY = "MIN_BY"
    MAX_BY = "MAX_BY"


class KeyedAggregateOperator(ReduceOperator):
    """SUM, MIN and MAX change one field of the first record. MIN_BY and MAX_BY keep a whole record."""

    def __init__(self, kind: AggregateKind | str, position: int | str, keys: KeySelection) -> None:
        aggregate = Aggregate(AggregateKind(kind), position)
        super().__init__(UserFunction(aggregate, aggregate), keys)


_ADDED: Final = {int, bool, float}
_ORDERED: Final = {*_ADDED, str, bytes, Decimal, date, datetime, time, timedelta}


class Aggregate:
    """A built-in aggregate as a reduce function."""

    def __init__(self, kind: AggregateKind, position: int | str) -> None:
        self.kind = kind
        self.position = position
        self._combine: Callable[[Any, Any], Any] = _COMBINE[kind]

    def __call__(self, first: Any, second: Any) -> Any:
        old, new = self._field(first), self._field(second)
        if self.kind is AggregateKind.MIN_BY:
            return second if _is_less(new, old) else first
        if self.kind is AggregateKind.MAX_BY:
            return second if _is_less(old, new) else first
        return self._with_field(first, self._combine(old, new))

    def may_combine(self, records: Sequence[Any]) -> bool:
        """Whether grouping changes nothing for these records: their sums are not rounded, except those of floats, or their values
        have one order.
        """
        try:
            values = list(map(self._field, records))
        except Exception:  # The aggregate itself says what is wrong with a record.
            return False
        return classes_of(values) <= (_ADDED if self.kind is AggregateKind.SUM else _ORDERED)

    def _field(self, record: Any) -> Any:
        position = self.position
        if isinstance(record, tuple | list) and isinstance(position, int):
            return record[position]
        if isinstance(record, Row | dict):
            return record[position]
        if position == 0:
            return record
        raise TypeError(
            f"{self.kind.lower()}({position!r}): a record of type {type(record).__qualname__} has no "
            f"such field: {bounded_repr(record, 200)}; use a position on tuples, a name on "
            "named Rows"
        )

    def _with_field(self, record: Any, value: Any) -> Any:
        position = self.position
        if isinstance(record, Row):
            index = position if isinstance(position, int) else _index(record, position)
            values = list(record)
            values[index] = value
            return make_row(record._fields, values, record.get_row_kind())
        if isinstance(record, tuple) and isinstance(position, int):
            fields = list(record)
            fields[position] = value
            return type(record)(*fields) if hasattr(record, "_fields") else tuple(fields)
        if isinstance(record, list | dict):
            copied: Any = record.copy()
            copied[position] = value
            return copied
        return value


def names_in(context: OperatorContext) -> tuple[str, ...] | None:
    """The names of the declared type, for `named`. The result has the type of the records. Where records come with keys, one of the two
    types is not declared.
    """
    kinds = [k for k in (context.output_type, *context.input_types) if isinstance(k, RowTypeInfo)]
    return tuple(kinds[0].get_field_names()) if kinds else None


def _index(record: Row, name: str) -> int:
    assert record._fields is not None
    return record._fields.index(name)


def _sum(old: Any, new: Any) -> Any:
    return old + new


def _min(old: Any, new: Any) -> Any:
    return new if _is_less(new, old) else old


def _max(old: Any, new: Any) -> Any:
    return new if _is_less(old, new) else old


def _is_less(one: Any, other: Any) -> bool:
    """Whether one value stands before the other. NaN stands after all others, as in Java's Double.compareTo.

    Without an order of all values the result would depend on which two of them meet first.
    """
    return bool(one < other or (_is_nan(other) and not _is_nan(one)))


def _is_nan(value: Any) -> bool:
    return bool(value != value)  # ruff: ignore[comparison-with-itself]


_IN_ARROW: Final = {
    AggregateKind.SUM: "sum",
    AggregateKind.MIN: "min",
    AggregateKind.MAX: "max",
}
_COMBINE: Final[dict[AggregateKind, Callable[[Any, Any], Any]]] = {
    AggregateKind.SUM: _sum,
    AggregateKind.MIN: _min,
    AggregateKind.MAX: _max,
    AggregateKind.MIN_BY: _min,
    AggregateKind.MAX_BY: _max,
}


_FLUSH_ROWS: Final = 1 << 16
_FIRST: Final = pc.ScalarAggregateOptions(skip_nulls=False, min_count=0)


class ColumnReduction:
    """A built-in aggregate of a keyed stream (sum, min, max) over column batches: one row for each key. Does not know
    windows or tasks.

    Arrow groups the rows. The result of a group has the same columns as its rows, so results are grouped again like
    rows. Input for which Arrow would give another result than the aggregate on rows is refused: nulls, NaN, -0.0, sums
    beyond 64 bits, keys that are not integers, strings or booleans. The caller then uses rows. Source: see `reduce`.

    `keys`: names of the key's columns. `function`: sum, min or max of the field at `position`, a name or a number.
    """

    def __init__(self, keys: tuple[str, ...], function: str, position: int | str) -> None:
        self._keys = list(keys)
        self._function = function
        self._position = position
        self._groups: pa.Table | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._reach = 0
        self._held = 0
        self.rows_in = 0

    def add(self, batch: ColumnBatch) -> bool:
        """Add rows. False: Arrow would give another result for these rows, or for all rows together; nothing was added."""
        data = batch.data
        if not self._is_ours(data):
            return False
        self._waiting.append(data)
        self._rows += data.num_rows
        self.rows_in += data.num_rows
        if self._rows >= max(_FLUSH_ROWS, self.groups):
            self._group()
        return True

    @property
    def groups(self) -> int:
        """How many keys the rows grouped so far have."""
        return 0 if self._groups is None else int(self._groups.num_rows)

    def take(self) -> Sequence[pa.RecordBatch]:
        """Remove and return all results."""
        self._group()
        table, self._groups, self.rows_in, self._held = self._groups, None, 0, 0
        return () if table is None else table.combine_chunks().to_batches()

    def _group(self) -> None:
        if not self._waiting:
            return
        rows = pa.Table.from_batches(self._waiting)
        if self._groups is not None:
            rows = pa.concat_tables([self._groups, rows])
        self._waiting, self._rows, self._reach = [], 0, 0
        names, wanted = rows.column_names, self._field(rows.schema)
        aggregates = [
            (name, self._function, None) if name == wanted else (name, "first", _FIRST)
            for name in names
            if name not in self._keys
        ]
        grouped = rows.group_by(self._keys, use_threads=False).aggregate(aggregates)
        of_column = {name: f"{name}_{function}" for name, function, _ in aggregates}
        arrays = [grouped.column(of_column.get(name, name)) for name in names]
        self._groups = pa.Table.from_arrays(arrays, names=names).cast(rows.schema)
        if self._function == "sum" and pa.types.is_integer(rows.schema.field(wanted).type):
            self._held = _largest(self._groups.column(wanted))

    # ------------------------------------------------------------------ what is left to Arrow

    def _field(self, schema: pa.Schema) -> str:
        """The name of the aggregated column; empty: there is no such column."""
        names = schema.names
        if isinstance(self._position, int):
            return names[self._position] if self._position < len(names) else ""
        return self._position if self._position in names else ""

    def _is_ours(self, data: pa.RecordBatch) -> bool:
        field = self._field(data.schema)
        first = self._waiting[0] if self._waiting else self._groups
        if not field or field in self._keys or not set(self._keys) <= set(data.schema.names):
            return False
        if first is not None and first.schema != data.schema:
            return False
        keys_are_ours = all(_is_key(data.column(name)) for name in self._keys)
        return keys_are_ours and self._is_safe(data.column(field))

    def _is_safe(self, values: pa.Array) -> bool:
        if values.null_count:
            return False
        if pa.types.is_floating(values.type):
            numbers = values.to_numpy(zero_copy_only=False)
            is_negative_zero = np.signbit(numbers) & (numbers == 0)
            return not bool((np.isnan(numbers) | is_negative_zero).any())
        if not pa.types.is_signed_integer(values.type):
            return False
        if self._function != "sum" or not len(values):
            return True
        return self._fits(values)

    def _fits(self, values: pa.Array) -> bool:
        """Whether no sum of these values and those held can leave the column's type, however the rows are spread over keys."""
        limit = (1 << (values.type.bit_width - 1)) - 1
        reach = _largest(values) * len(values)
        if self._held + self._reach + reach > limit:
            # After grouping the largest sum is known more precisely.
            self._group()
        self._reach += reach
        fits: bool = self._held + self._reach <= limit
        return fits


def _largest(values: pa.Array | pa.ChunkedArray) -> int:
    numbers = values.to_numpy()
    return max(abs(int(numbers.min())), abs(int(numbers.max()))) if len(numbers) else 0


def _is_key(array: pa.Array) -> bool:
    kind = array.type
    is_known = (
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_boolean(kind)
    )
    return is_known and not int(array.null_count)
