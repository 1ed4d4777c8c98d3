"""Arrow's encoding of record batches, without copying values: for columns of fixed width and without nulls.

`RecordBatch.serialize` copies each value once. In a batch of such columns only the number of rows
decides what stands before the values and between the columns. So this is taken from Arrow once for
each number of rows, and checked once against what Arrow makes.
Source: Arrow's IPC format, "Encapsulated message format" and "RecordBatch message".
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from penstock.engine.runtime.codecs.events import Part, Parts

LEAST_BYTES: Final = 1 << 16
"""Of smaller batches, many parts cost more than a copy."""
_MOST_SIZES: Final = 64
_ALIGNMENTS: Final = (8, 64)


class FlatBatches:
    """Encodes the batches of one schema. Remembers at most `_MOST_SIZES` numbers of rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._widths = [_width(kind) for kind in schema.types]
        self._is_flat = bool(self._widths) and all(self._widths)
        self._known: dict[int, tuple[bytes, bytes] | None] = {}

    def parts(self, data: pa.RecordBatch) -> Parts | None:
        """Return the bytes of the message, as parts that refer to the columns; None: not of this batch."""
        rows = data.num_rows
        if not self._is_flat or rows * sum(self._widths) < LEAST_BYTES:
            return None
        columns = data.columns
        if any(column.null_count for column in columns):
            return None
        values = [_values(*both) for both in zip(columns, self._widths, strict=True)]
        if rows not in self._known:
            if len(self._known) >= _MOST_SIZES:
                return None
            self._known[rows] = _layout(data, values)
        layout = self._known[rows]
        return None if layout is None else _laid_out(layout[0], values, layout[1])


def _width(kind: pa.DataType) -> int:
    """Return the bytes of a value; 0: the type is not of fixed width, or its values are smaller than a byte."""
    return kind.bit_width // 8 if pa.types.is_primitive(kind) else 0


def _values(column: pa.Array, width: int) -> pa.Buffer:
    whole = column.buffers()[1]
    at, size = column.offset * width, len(column) * width
    return whole if whole.size == size else whole.slice(at, size)


def _layout(data: pa.RecordBatch, values: list[pa.Buffer]) -> tuple[bytes, bytes] | None:
    """Return what stands before the values, and the most padding behind a column; None: Arrow does it otherwise.

    Behind a slice Arrow pads with what follows it. Our padding is zeros, as behind a whole column.
    """
    kinds, rows = data.schema.types, data.num_rows
    columns = [
        pa.Array.from_buffers(kind, rows, [None, buffer])
        for kind, buffer in zip(kinds, values, strict=True)
    ]
    arrows = pa.RecordBatch.from_arrays(columns, schema=data.schema).serialize().to_pybytes()
    for align in _ALIGNMENTS:
        padding = bytes(align)
        body = sum(buffer.size + -buffer.size % align for buffer in values)
        head = arrows[: len(arrows) - body]
        if b"".join(map(bytes, _laid_out(head, values, padding))) == arrows:
            return head, padding
    return None


def _laid_out(head: bytes, values: list[pa.Buffer], padding: bytes) -> Parts:
    parts: list[Part] = [head]
    for buffer in values:
        parts.append(buffer)
        missing = -buffer.size % len(padding)
        if missing:
            parts.append(padding[:missing])
    return parts
