"""The format in which Spark gives a DataFrame's partition: Arrow messages without schema, one
record batch each.

Source: Spark ArrowConverters.toBatchIterator.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.model.types import RowTypeInfo
from penstock.engine.runtime.codecs.convert import arrow_schema
from penstock.engine.runtime.codecs.time_columns import epoch_ms
from penstock.engine.runtime.elements import ColumnBatch, Int64s


@dataclass(frozen=True, slots=True)
class FrameFormat:
    """`has_large_types`: Spark writes strings and bytes with 64 bit offsets. `timestamp_column`:
    the column with the records' time; None: they have no time.
    """

    type_info: RowTypeInfo
    has_large_types: bool = False
    timestamp_column: str | None = None


class MessageDecoder:
    """Decodes messages of one DataFrame to batches."""

    def __init__(self, form: FrameFormat) -> None:
        self._wanted = arrow_schema(form.type_info)
        self._written = _large(self._wanted) if form.has_large_types else self._wanted
        self._column = form.timestamp_column

    def batch(self, message: bytes | bytearray) -> ColumnBatch:
        """Raises: ValueError: a record has no time."""
        data = pa.ipc.read_record_batch(pa.py_buffer(message), self._written)
        if self._written is not self._wanted:
            data = data.cast(self._wanted)
        stamps = None if self._column is None else _epoch_ms(data, self._column)
        return ColumnBatch(data, stamps)


def _epoch_ms(data: pa.RecordBatch, name: str) -> Int64s:
    column = data.column(name)
    if column.null_count:
        row = pc.index(column.is_null(), value=True).as_py()
        record = data.slice(row, 1).to_pylist()[0]
        raise ValueError(
            f"the timestamp column {name!r} is NULL in {record}, but every record needs a "
            "time. Filter out such rows, or give them a time with coalesce."
        )
    return epoch_ms(column)


def _large(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, _large_type(field.type)) for field in schema])


def _large_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_map(kind):
        return pa.map_(_large_type(kind.key_type), _large_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_large_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _large_type(one.type)) for one in kind])
    return kind
