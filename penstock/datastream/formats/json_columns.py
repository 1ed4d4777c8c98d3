"""Many JSON objects of one flat type as columns at once, without a Python object for each. Knows no connector.

Reads only what it reads exactly as one after the other would be read; for all else it says None. Source: pyarrow.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.json

from penstock.model import types as t
from penstock.runtime.convert import arrow_schema

_B: Final = t.BasicType
_KINDS: Final = frozenset({_B.STRING, _B.BOOLEAN, _B.BYTE, _B.SHORT, _B.INT, _B.LONG, _B.DOUBLE})
# Words of Python's JSON that no JSON has, which pyarrow takes for numbers.
_STRANGE: Final = (b"NaN", b"Inf")


def json_schema_of(row_type: t.RowTypeInfo) -> pa.Schema | None:
    """The columns, if all fields are of types that are read alike; None: take the messages one by one."""
    kinds = row_type.get_field_types()
    is_flat = all(isinstance(one, t.BasicTypeInfo) and one.basic_type in _KINDS for one in kinds)
    return arrow_schema(row_type) if is_flat and kinds else None


def read_json_columns(messages: Sequence[bytes | None], schema: pa.Schema) -> pa.RecordBatch | None:
    """A row for each message. None: one of them is no plain object of these columns."""
    for message in messages:
        # What is not an object can end the process inside pyarrow, so it does not get there.
        if not message or message[0] != 0x7B or message[-1] != 0x7D:
            return None
    data = b"\n".join(messages)  # type: ignore[arg-type] # None was sent back above
    if data.count(b"\n") != len(messages) - 1 or any(word in data for word in _STRANGE):
        return None
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(data),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(messages):
            return None
        batch = table.select(schema.names).combine_chunks().to_batches()[0]
        batch.validate(full=True)  # bytes that are no text are not seen before
    except pa.ArrowInvalid:
        return None
    return batch if batch.schema.equals(schema) else None
