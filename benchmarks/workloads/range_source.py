"""A source whose records are made from their numbers."""

from collections.abc import Callable, Iterable, Iterator

from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    PolledSplitReader,
    QueueEnumerator,
    ReaderContext,
    Source,
)
from penstock.connectors.datagen import split_range
from penstock.engine.runtime.elements import Batch

BatchesOf = Callable[[int, int], Iterable[Batch]]


class RangeSource(Source):
    """`count` records, a range of numbers for each subtask. `batches`: makes those of [low, high)."""

    def __init__(self, count: int, batches: BatchesOf) -> None:
        self._count = count
        self._batches = batches

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, context: EnumeratorContext) -> QueueEnumerator:
        return QueueEnumerator(context, split_range(0, self._count, context.parallelism()))

    def create_reader(self, context: ReaderContext) -> PolledSplitReader:
        return _RangeReader(context, self._batches)


class _RangeReader(PolledSplitReader):
    def __init__(self, context: ReaderContext, batches: BatchesOf) -> None:
        super().__init__(context)
        self._made = batches

    def read(self, split: tuple[int, int]) -> Iterator[Batch]:
        yield from self._made(*split)
