"""Functions of two connected streams: co-map, co-flat-map, co-process, each also with keyed state and timers.

The operator's watermark is the lower one of its inputs' watermarks. The gate decides which input is read next. Source: Flink
CoProcessOperator, KeyedCoProcessOperator, IndexedCombinedWatermarkStatus; differs: a batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import Batch, Element, RowBatch, Watermark, WatermarkStatus
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operator import Emitted, Operator, OperatorContext
from penstock.engine.runtime.operators.keyed import KeyedOperator
from penstock.engine.runtime.operators.process import KeyedProcessOperator, ProcessOperator
from penstock.engine.runtime.operators.stateless import (
    FunctionOperator,
    expand,
    kept_of,
    rows_of,
    whole,
)
from penstock.engine.runtime.records.side_output import separated
from penstock.engine.runtime.watermarks.valve import CombinedWatermark


class TwoInputs(Operator):
    """Mixed into an operator: combines the watermarks and statuses of both inputs."""

    _combined: CombinedWatermark

    def open(self, context: OperatorContext) -> None:
        self._combined = CombinedWatermark(2)
        super().open(context)

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        return self._advance(self._combined.input_watermark(watermark.timestamp_ms, input_index))

    def process_status(self, status: WatermarkStatus, input_index: int) -> Emitted:
        return self._advance(self._combined.input_status(status, input_index))

    def _advance(self, outputs: Any) -> Iterator[Any]:
        element: Element
        for element in outputs:
            if isinstance(element, Watermark):
                yield from super().process_watermark(element, 0)
            else:
                yield element


class CoFunctionOperator(TwoInputs, FunctionOperator):
    """An operator with a user's object that has a method for each input."""

    methods: ClassVar[tuple[str, str]]

    def entered(self, rows: RowBatch, input_index: int) -> Iterator[Any]:
        """The records, one after the other. `input_index`: their input."""
        return self.watched(rows.values, rows.timestamps)

    def call_of(self, input_index: int) -> Callable[..., Any]:
        """The method for this input."""
        found = self.function.method(self.methods[input_index])
        assert found is not None, self.methods
        return found


class CoMapOperator(CoFunctionOperator):
    """One result per record. A result of None emits nothing, unlike with `map`. `side_tags`: ids of the tags that are read."""

    side_tags: tuple[str, ...] = ()

    methods = ("map1", "map2")

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        calls = map(self.call_of(input_index), self.entered(rows, input_index))
        made = whole(self, calls, rows)
        kept = kept_of(made, [result is not None for result in made.values])
        return separated(kept, self.side_tags)


class CoFlatMapOperator(CoFunctionOperator):
    """Any number of results per record; a result of None emits nothing. `side_tags`: ids of the tags that are read."""

    side_tags: tuple[str, ...] = ()

    methods = ("flat_map1", "flat_map2")

    def process(self, batch: Batch, input_index: int) -> Emitted:
        rows = rows_of(batch)
        entered = self.entered(rows, input_index)
        results = map(self.call_of(input_index), entered)
        made = expand(self, results, rows.timestamps, takes_none=True)
        return separated(made, self.side_tags)


class CoProcessOperator(CoFunctionOperator, ProcessOperator):
    """`process_element1(value, ctx)` and `process_element2(value, ctx)`, without a key."""

    methods = ("process_element1", "process_element2")

    def process(self, batch: Batch, input_index: int) -> Emitted:
        return self.processed(rows_of(batch), self.call_of(input_index))


class KeyedCoOperator(KeyedOperator):
    """Both inputs have keys of one type, and share state and timers."""

    def __init__(self, function: UserFunction, keys: tuple[KeySelection, KeySelection]) -> None:
        super().__init__(function, keys[0])
        self.selections = keys

    def entered(self, rows: RowBatch, input_index: int) -> Iterator[Any]:
        """The records. Before each is yielded, its key and timestamp become the context."""
        self.keys = self.selections[input_index]
        return self.entering(rows)


class KeyedCoMapOperator(KeyedCoOperator, CoMapOperator):
    """Co-map with keyed state."""


class KeyedCoFlatMapOperator(KeyedCoOperator, CoFlatMapOperator):
    """Co-flat-map with keyed state."""


class KeyedCoProcessOperator(KeyedCoOperator, CoFunctionOperator, KeyedProcessOperator):
    """Both methods and `on_timer`, with state and timers of the key."""

    may_get_fields = False

    methods = ("process_element1", "process_element2")

    def process(self, batch: Batch, input_index: int) -> Emitted:
        self.keys = self.selections[input_index]
        return self.processed(rows_of(batch), self.call_of(input_index))
