"""A built-in aggregate of a keyed stream (sum, min, max) over column batches: one row for each key. Does not know windows or tasks.

Arrow groups the rows. The result of a group has the same columns as its rows, so results are grouped again like rows.
Input for which Arrow would give another result than the aggregate on rows is refused: nulls, NaN, -0.0, sums beyond 64 bits, keys that
are not integers, strings or booleans. The caller then uses rows. Source: see `reduce`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.runtime.elements import ColumnBatch

_FLUSH_ROWS: Final = 1 << 16
_FIRST: Final = pc.ScalarAggregateOptions(skip_nulls=False, min_count=0)


class ColumnReduction:
    """`keys`: names of the key's columns. `function`: sum, min or max of the field at `position`, a name or a number."""

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
