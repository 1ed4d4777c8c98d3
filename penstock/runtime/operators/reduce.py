"""Running aggregates per key: reduce, sum, min, max, min_by, max_by. Know no window.

Source: Flink StreamGroupedReduceOperator, PyFlink's Accumulator in KeyedStream; differs: one dict per
operator, looked up once per record; what was emitted is copied before a function can change it, where Flink
serializes it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import numpy as np

from penstock.model.row import Row, copied, make_row
from penstock.runtime.checkpoint.snapshot import OperatorSnapshot, StateInfo
from penstock.runtime.context import RuntimeContext, UserFunction
from penstock.runtime.elements import MAX_WATERMARK, Batch, RowBatch
from penstock.runtime.keys import KeySelection, state_keys
from penstock.runtime.operator import MAX_EMIT, Emitted, OperatorContext
from penstock.runtime.operators.keyed import new_backend, restore_backend
from penstock.runtime.operators.stateless import FunctionOperator, rows_of
from penstock.runtime.state import KeyedStateBackend, KeyTable

REDUCE_TABLE: Final = "reduced"
REDUCED: Final = StateInfo("Reduced")
_MISSING: Final = object()


class ReduceOperator(FunctionOperator):
    """Emits the running result of each record's key; the first record of a key passes unchanged."""

    def __init__(self, function: UserFunction, keys: KeySelection) -> None:
        super().__init__(function)
        self.keys = keys
        self._restored = OperatorSnapshot()
        self._state: KeyedStateBackend
        self._table: KeyTable

    @property
    def _own(self) -> Callable[[Any], Any]:
        """What makes a record ours: a function may change its first argument in place and return that."""
        return _same if isinstance(self.function.owner, Aggregate) else copied

    def runtime_context(self, context: OperatorContext) -> RuntimeContext:
        self._state = new_backend(context, self.keys)
        restored, self._restored = self._restored, OperatorSnapshot()
        restore_backend(self._state, restored, "")
        self._table = self._state.table(REDUCE_TABLE, REDUCED)
        return RuntimeContext(context)

    def close(self) -> None:
        super().close()
        if hasattr(self, "_state"):
            self._state.close()

    def in_batch(self) -> ReduceOperator:
        return FinalReduceOperator(self.function, self.keys)

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        skeys = state_keys(self.keys.keys_of_rows(self.watched(rows.values)))
        table, call = self._table, self.function.call
        get, missing, own = table.get, _MISSING, self._own
        results: list[Any] = []
        append = results.append
        for skey, value in zip(skeys, self.watched(rows.values), strict=False):
            old = get(skey, missing)
            if old is missing:
                table[skey] = own(value)
                append(value)
                continue
            table[skey] = reduced = call(old, value)
            append(own(old) if reduced is old else reduced)
        return (RowBatch(results, rows.timestamps),)

    def snapshot(self) -> OperatorSnapshot:
        return OperatorSnapshot(self._state.snapshot())

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._restored = snapshot


class FinalReduceOperator(ReduceOperator):
    """Emits one result for each key, at the end of the input. Source: Flink BatchGroupedReduceOperator: its results have the
    timestamp of the last watermark.
    """

    def runtime_context(self, context: OperatorContext) -> RuntimeContext:
        self._results: dict[Any, Any] = {}
        return RuntimeContext(context)

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        skeys = state_keys(self.keys.keys_of_rows(self.watched(rows.values)))
        results, call = self._results, self.function.call
        get, missing, own = results.get, _MISSING, self._own
        for skey, value in zip(skeys, self.watched(rows.values), strict=False):
            old = get(skey, missing)
            results[skey] = own(value) if old is missing else call(old, value)
        return ()

    def finish(self) -> Emitted:
        results = list(self._results.values())
        for start in range(0, len(results), MAX_EMIT):
            values = results[start : start + MAX_EMIT]
            yield RowBatch(values, np.full(len(values), MAX_WATERMARK, np.int64))


class AggregateKind(StrEnum):
    """Built-in aggregates of a keyed stream."""

    SUM = "SUM"
    MIN = "MIN"
    MAX = "MAX"
    MIN_BY = "MIN_BY"
    MAX_BY = "MAX_BY"


class KeyedAggregateOperator(ReduceOperator):
    """SUM, MIN and MAX change one field of the first record; MIN_BY and MAX_BY keep a whole record."""

    def __init__(self, kind: AggregateKind | str, position: int | str, keys: KeySelection) -> None:
        aggregate = Aggregate(AggregateKind(kind), position)
        super().__init__(UserFunction(aggregate, aggregate), keys)


class Aggregate:
    """One aggregate as a reduce function."""

    def __init__(self, kind: AggregateKind, position: int | str) -> None:
        self.kind = kind
        self.position = position
        self._combine: Callable[[Any, Any], Any] = _COMBINE[kind]

    def __call__(self, first: Any, second: Any) -> Any:
        old, new = self._field(first), self._field(second)
        if self.kind is AggregateKind.MIN_BY:
            return second if new < old else first
        if self.kind is AggregateKind.MAX_BY:
            return second if new > old else first
        return self._with_field(first, self._combine(old, new))

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
            f"such field: {record!r:.200}; use a position on tuples, a name on named Rows"
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


def _index(record: Row, name: str) -> int:
    assert record._fields is not None
    return record._fields.index(name)


def _same(record: Any) -> Any:
    return record


def _sum(old: Any, new: Any) -> Any:
    return old + new


def _min(old: Any, new: Any) -> Any:
    return new if new < old else old


def _max(old: Any, new: Any) -> Any:
    return new if new > old else old


_COMBINE: Final[dict[AggregateKind, Callable[[Any, Any], Any]]] = {
    AggregateKind.SUM: _sum,
    AggregateKind.MIN: _min,
    AggregateKind.MAX: _max,
    AggregateKind.MIN_BY: _min,
    AggregateKind.MAX_BY: _max,
}
