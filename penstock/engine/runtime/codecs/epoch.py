"""Columns of times as epoch milliseconds: the event times of their records. Does not know sources.

What is finer than a millisecond is cut, towards the past, also before 1970.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.runtime.elements import NO_TIMESTAMP, Int64s

_MS_PER_DAY: Final = 86_400_000
PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def epoch_ms(array: pa.Array) -> Int64s:
    """The milliseconds; NO_TIMESTAMP for a null. Of integers, which are milliseconds; of timestamps and dates in their own unit.

    Raises: TypeError: the column has another type; pa.ArrowInvalid, OverflowError: a time does not fit into 64 bits.
    """
    kind = array.type
    if pa.types.is_date32(kind):
        return _filled(array.cast(pa.int32()).cast(pa.int64()), _MS_PER_DAY)
    if pa.types.is_timestamp(kind):
        per_second = PER_SECOND[kind.unit]
        numbers = array.cast(pa.int64())
        return _filled(numbers, max(1, 1000 // per_second), max(1, per_second // 1000))
    if pa.types.is_integer(kind) or pa.types.is_date64(kind):
        return _filled(array.cast(pa.int64()))
    raise TypeError(
        f"its type is {kind}: expected epoch milliseconds as an integer, a timestamp or a date"
    )


def _filled(numbers: pa.Array, factor: int = 1, divisor: int = 1) -> Int64s:
    values: Any = numbers.fill_null(0).to_numpy()
    if factor > 1 and len(values):
        most = (2**63 - 1) // factor
        if values.max() > most or values.min() < -most:
            raise OverflowError("a time does not fit into 64 bits as milliseconds")
    made = values * factor // divisor if factor > 1 or divisor > 1 else values
    if numbers.null_count:
        made = np.where(numbers.is_null().to_numpy(zero_copy_only=False), NO_TIMESTAMP, made)
    stamps: Int64s = made
    return stamps
