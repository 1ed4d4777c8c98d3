"""NumberSequenceSource: whole numbers, split into ranges.

Source: pyflink.datastream.connectors.number_seq.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from penstock.common.typeinfo import TypeInformation, Types
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    PolledSplitReader,
    QueueEnumerator,
    ReaderContext,
    Source,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.elements import Batch, RowBatch

ROWS_PER_BATCH: Final = 4096


class NumberSequenceSource(Source):
    """Emits the numbers from `start` to `end`, both included; each subtask emits one range."""

    boundedness = Boundedness.BOUNDED
    gives_rows = True

    def __init__(self, start: int, end: int) -> None:
        if start > end:
            raise ConfigurationError(
                f"'from' must be <= 'to': got start={start}, end={end}. Swap the bounds."
            )
        self._start = start
        self._end = end

    @property
    def produced_type(self) -> TypeInformation:
        return Types.LONG()

    def create_enumerator(self, context: EnumeratorContext) -> QueueEnumerator:
        return QueueEnumerator(context, self._splits(context.parallelism()))

    def create_reader(self, context: ReaderContext) -> PolledSplitReader:
        return _NumberReader(context)

    def _splits(self, parts: int) -> list[tuple[int, int]]:
        return split_range(self._start, self._end + 1, parts)


def split_range(start: int, stop: int, parts: int) -> list[tuple[int, int]]:
    """[start, stop) in at most `parts` ranges of nearly equal size, none empty."""
    size = stop - start
    bounds = [start + size * part // parts for part in range(parts + 1)]
    return [(low, high) for low, high in pairwise(bounds) if low < high]


class _NumberReader(PolledSplitReader):
    counts_records = False

    def read(self, split: Any) -> Iterator[Batch]:
        low, high = split
        for start in range(low, high, ROWS_PER_BATCH):
            yield RowBatch(list(range(start, min(start + ROWS_PER_BATCH, high))))

    def read_from(self, split: Any, rows: int) -> Iterator[Batch]:
        low, high = split
        return self.read((low + rows, high))
