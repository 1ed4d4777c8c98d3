"""Operators on columns: select, filter, and the user's function on whole RecordBatches. Do not know rows.

Source: none in Flink's DataStream API; PyFlink's vectorized functions come nearest.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.model.types import TypeInformation, taking_tuples
from penstock.engine.runtime.codecs.convert import ROW_KIND_COLUMN, arrow_schema, to_columns
from penstock.engine.runtime.context import RuntimeContext, UserFunction
from penstock.engine.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.engine.runtime.operator import Accepts, Emitted, Operator, OperatorContext
from penstock.engine.runtime.records.columns import Column
from penstock.engine.runtime.records.parts import in_parts
from penstock.engine.runtime.watermarks.strategy import ColumnTimestamps


def columns_of(batch: Batch) -> ColumnBatch:
    """The batch as columns; the chain has converted it."""
    assert isinstance(batch, ColumnBatch), f"a column operator was fed {type(batch).__name__}"
    return batch


def of_parts(
    operator: Operator, batch: Batch, processed: Callable[[Batch], Sequence[ColumnBatch]]
) -> Iterator[ColumnBatch]:
    """The results for the batch, or for the parts of it for which the call does not fail; other rows are put aside."""
    for made in in_parts(processed, batch, operator.put_aside):
        yield from made


class ToSchemaOperator(Operator):
    """Converts batches of any kind to columns of exactly one schema, for a consumer that has a fixed schema, such as a table."""

    accepts = Accepts.ANY

    def __init__(self, type_info: TypeInformation) -> None:
        """Raises: TypeError: records of this type have no columns."""
        self._type = taking_tuples(type_info)
        self._schema = arrow_schema(type_info)

    @property
    def handles_poison(self) -> bool:
        return True

    def process(self, batch: Batch, input_index: int) -> Emitted:
        return of_parts(self, batch, self._processed)

    def _processed(self, batch: Batch) -> Sequence[ColumnBatch]:
        columns = to_columns(batch, self._type) if isinstance(batch, RowBatch) else batch
        names = columns.data.schema.names
        if ROW_KIND_COLUMN in names:
            raise TypeError(
                "the stream has a record of another kind than +I (an update or a delete), which a "
                "DataFrame cannot hold. Keep only the last state of each key before, or run the job "
                "in runtime mode BATCH."
            )
        missing = [name for name in self._schema.names if name not in names]
        if missing:
            raise TypeError(
                f"columns {missing} of the declared type {self._type} are not in the stream, whose columns are {names}"
            )
        data = columns.data.select(self._schema.names)
        if data.schema != self._schema:
            data = data.cast(self._schema)
        return (ColumnBatch(data, columns.timestamps),)


class _ColumnsOperator(Operator):
    """One call for a whole batch of columns."""

    accepts = Accepts.COLUMNS

    @property
    def handles_poison(self) -> bool:
        return True

    def process(self, batch: Batch, input_index: int) -> Emitted:
        return (
            self._processed(batch)
            if self.poison is None
            else of_parts(self, batch, self._processed)
        )

    @abstractmethod
    def _processed(self, batch: Batch) -> Sequence[ColumnBatch]:
        """Raises: whatever the user's part raises."""


class MapBatchesOperator(_ColumnsOperator):
    """The user's `RecordBatch -> RecordBatch`. Timestamps stay if the number of rows stays.

    A function that changes the number of rows of a stream with timestamps must give the new timestamps in
    `timestamp_column` (epoch ms) of its result, because only the function knows which old row belongs to which new row.
    """

    def __init__(self, function: UserFunction, timestamp_column: str | None = None) -> None:
        self.function = function
        self.timestamps = None if timestamp_column is None else ColumnTimestamps(timestamp_column)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self.function.open(RuntimeContext(context, self.function))

    def close(self) -> None:
        self.function.close()

    def _processed(self, batch: Batch) -> Sequence[ColumnBatch]:
        columns = columns_of(batch)
        result = self.function.call(columns.data)
        if isinstance(result, pa.Table):
            result = _one_batch(result)
        if not isinstance(result, pa.RecordBatch):
            raise TypeError(
                "the function of map_batches must return a pyarrow.RecordBatch, got "
                f"{type(result).__qualname__}"
            )
        if self.timestamps is not None and result.num_rows:
            return (ColumnBatch(result, self.timestamps.of_columns(result)),)
        stamps = columns.timestamps
        if stamps is not None and result.num_rows != len(stamps):
            raise ValueError(
                f"the function of map_batches made {result.num_rows} rows of {len(stamps)} that have "
                "timestamps: keep the number of rows, name the result's own timestamps with "
                "map_batches(..., timestamp_column=...), or call it before "
                "assign_timestamps_and_watermarks"
            )
        return (ColumnBatch(result, stamps),) if result.num_rows else ()


class SelectOperator(_ColumnsOperator):
    """New columns from expressions, in order, each under its `output_name`."""

    def __init__(self, selections: Sequence[Column]) -> None:
        names = [expression.output_name for expression in selections]
        if not names or len(set(names)) != len(names):
            raise ValueError(
                f"select needs columns with different names, got {names}; use .alias('name')"
            )
        self.selections = tuple(selections)

    def _processed(self, batch: Batch) -> Sequence[ColumnBatch]:
        columns = columns_of(batch)
        arrays = [expression.array(columns.data) for expression in self.selections]
        names = [expression.output_name for expression in self.selections]
        return (ColumnBatch(pa.RecordBatch.from_arrays(arrays, names=names), columns.timestamps),)


class ColumnFilterOperator(_ColumnsOperator):
    """Keeps rows for which the expression is true; null counts as false."""

    def __init__(self, condition: Column) -> None:
        self.condition = condition

    def _processed(self, batch: Batch) -> Sequence[ColumnBatch]:
        columns = columns_of(batch)
        mask = self.condition.array(columns.data)
        if not pa.types.is_boolean(mask.type):
            raise TypeError(
                f"filter needs a boolean column, got {self.condition} of type {mask.type}"
            )
        if mask.null_count:
            mask = pc.fill_null(mask, False)
        kept = columns.filter(mask)
        return (kept,) if len(kept) else ()


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
