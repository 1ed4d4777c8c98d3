"""Finds the rows of a batch at which a call for a whole batch fails: the batch is cut into halves until single rows are
left.

Only for calls that change nothing before they fail. Does not know operators. Source: none in Flink, which processes
single records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from penstock.engine.runtime.codecs.convert import to_shown_rows
from penstock.engine.runtime.elements import NO_TIMESTAMP, Batch, ColumnBatch

T = TypeVar("T")
PutAside = Callable[[Exception, Any, int | None], None]


def in_parts(apply: Callable[[Batch], T], batch: Batch, put_aside: PutAside) -> Iterator[T]:
    """The results of `apply` for the batch, or for the parts of it that it takes, in order.

    Args: put_aside: takes (error, record, timestamp) of each row that `apply` refuses; what it raises passes through.
    """
    try:
        result = apply(batch)
    except Exception as error:
        if len(batch) <= 1:
            put_aside(error, *_only_record(batch))
            return
    else:
        yield result
        return
    middle = len(batch) // 2
    yield from in_parts(apply, batch.slice(0, middle), put_aside)
    yield from in_parts(apply, batch.slice(middle, len(batch)), put_aside)


def _only_record(batch: Batch) -> tuple[Any, int | None]:
    """The record of a batch with one row, and its timestamp. Of a batch without rows: the batch."""
    if not len(batch):
        return batch, None
    rows = to_shown_rows(batch, None) if isinstance(batch, ColumnBatch) else batch
    stamp = NO_TIMESTAMP if batch.timestamps is None else int(batch.timestamps[0])
    return rows.values[0], None if stamp == NO_TIMESTAMP else stamp
