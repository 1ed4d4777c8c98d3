"""Reduce with a function that has keyed state of its own, which it gets in `open`. Does not know windows.

Source: PyFlink's ReduceProcessKeyedProcessFunctionAdapter, which opens every reduce function so; differs: functions without
`open` take the shorter way in `reduce.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from penstock.engine.model.row import named
from penstock.engine.runtime.context import RuntimeContext, UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK, Batch, RowBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operator import Emitted, OperatorContext
from penstock.engine.runtime.operators.keyed import KEY_ENDS, KeyedOperator
from penstock.engine.runtime.operators.reduce import REDUCE_TABLE, REDUCED, names_in
from penstock.engine.runtime.operators.stateless import rows_of, whole
from penstock.engine.runtime.records.output_copies import own_copy
from penstock.engine.runtime.state.contract import KeyTable

_MISSING: Final = object()


class StatefulReduceOperator(KeyedOperator):
    """Emits the running result of each record's key; with `is_final` one result for each key, when the key ends.

    Does not combine before an exchange, because the function would then have its state in two places.
    """

    def __init__(
        self, function: UserFunction, keys: KeySelection, *, is_final: bool = False
    ) -> None:
        super().__init__(function, keys)
        self.ends_keys = is_final
        self._final: dict[Any, Any] = {}
        self._results: KeyTable = self._final

    def in_batch(self) -> StatefulReduceOperator:
        return StatefulReduceOperator(self.function, self.keys, is_final=True)

    def runtime_context(self, context: OperatorContext) -> RuntimeContext:
        made = super().runtime_context(context)
        self._call = named(self.function.call, names_in(context))
        if not self.ends_keys:
            info = replace(REDUCED, type_info=self.state.owner.records)
            self._results = self.state.table(REDUCE_TABLE, info)
        return made

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        if self.ends_keys:
            return self._ended(rows)
        return (whole(self, map(self._reduced, self.entering(rows)), rows),)

    def _ended(self, rows: RowBatch) -> Iterator[RowBatch]:
        """The results of the keys that end within these records."""
        ended: list[Any] = []
        for value in self.entering(rows):
            if value is KEY_ENDS:
                ended += self._take_final()
                continue
            try:
                self._reduced(value)
            except Exception as error:
                self.put_current_aside(error)
        if ended:
            yield _stamped(ended)

    def finish(self) -> Emitted:
        if values := self._take_final():
            yield _stamped(values)

    def _take_final(self) -> list[Any]:
        """Remove and return the result of the current key, the only one held."""
        values = list(self._final.values())
        self._final.clear()
        return values

    def _reduced(self, value: Any) -> Any:
        skey = self.state.skey
        old = self._results.get(skey, _MISSING)
        if old is _MISSING:
            self._results[skey] = own_copy(value)
            return value
        self._results[skey] = reduced = self._call(old, value)
        return reduced


def _stamped(values: list[Any]) -> RowBatch:
    return RowBatch(values, np.full(len(values), MAX_WATERMARK, np.int64))
