"""What connectors share: the contracts of sources and sinks, with readers and enumerators for the usual case. Who writes a
connector imports from here.

Source: pyflink.datastream.connectors.base; differs: Source and Sink are contracts for Python classes
(`penstock.engine.runtime.sources.contract`, `penstock.engine.runtime.sink`), and users may implement them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol

from penstock.connectors.api.committing_reader import CommittingReader, CommittingSplitReader
from penstock.connectors.api.polling import GeneratorSource, Poller, PollingSource
from penstock.engine.model.errors import RefusedForGood
from penstock.engine.model.metrics import Measured, MetricType
from penstock.engine.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.engine.runtime.operator import Accepts
from penstock.engine.runtime.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.engine.runtime.sources.contract import (
    Boundedness,
    EnumeratorContext,
    Fetched,
    Polled,
    ReaderContext,
    ReaderStatus,
    Source,
    SourceReader,
    SplitBatch,
    SplitEnumerator,
    SplitFinished,
    SplitReader,
)
from penstock.engine.runtime.sources.reader_base import QueueEnumerator, SourceReaderBase

__all__ = [
    "Accepts",
    "Batch",
    "Boundedness",
    "ColumnBatch",
    "Committer",
    "CommittingReader",
    "CommittingSplitReader",
    "DeliveryGuarantee",
    "EnumeratorContext",
    "Fetched",
    "GeneratorSource",
    "PolledSplitReader",
    "Poller",
    "PollingSource",
    "QueueEnumerator",
    "ReaderContext",
    "ReaderStatus",
    "RefusedForGood",
    "RowBatch",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceReader",
    "SourceReaderBase",
    "SplitBatch",
    "SplitEnumerator",
    "SplitFinished",
    "SplitReader",
    "StreamTransformer",
    "SupportsPreprocessing",
    "WriterContext",
]


class DeliveryGuarantee(Enum):
    """What a sink guarantees about records when a job is restored."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class EndableStream(Protocol):
    """The part of a DataStream that `sink_to` needs, so that connectors do not depend on that class."""

    def sink_to(self, sink: Sink) -> Any: ...


class StreamTransformer(ABC):
    """Transforms a sink's stream before the sink writes it."""

    @abstractmethod
    def apply(self, ds: Any) -> EndableStream:
        """Return the transformed DataStream."""


class SupportsPreprocessing(ABC):
    """A sink that transforms its stream; `sink_to` asks it for the transformer."""

    @abstractmethod
    def get_transformer(self) -> StreamTransformer | None:
        """Return the transformer; None: the sink writes the stream as it is."""


@dataclass(frozen=True, slots=True)
class SplitInHand:
    """A split in a checkpoint whose first `rows` rows were read."""

    split: Any
    rows: int


class PolledSplitReader(SourceReader):
    """Reads one split after the other; a subclass opens a split as an iterator of batches.

    It asks for the next split only when the current one is finished. Otherwise the first reader would take a second
    split before the last reader has its first. Checkpoints hold a split with the number of rows read, so a split must
    give the same rows in the same order each time.
    """

    counts_records: ClassVar[bool] = True
    """Whether its records count in numRecordsIn. Sources that make their records do not count them, as in Flink."""

    def __init__(self, context: ReaderContext) -> None:
        self.context = context
        self._splits: deque[Any] = deque()
        self._current: Any = None
        self._rows = 0
        self._batches: Iterator[Batch] | None = None
        self._no_more = False
        self._splits_processed = 0

    def measured(self) -> Iterable[Measured]:
        yield Measured("numSplitsProcessed", MetricType.COUNTER, self._splits_processed)

    @abstractmethod
    def read(self, split: Any) -> Iterator[Batch]:
        """Yield the batches of one split, each of at most about 4,096 rows or 4 MiB of columns."""

    def read_from(self, split: Any, rows: int) -> Iterator[Batch]:
        """Yield one split's batches without its first rows; by default it reads these rows and drops them."""
        left = rows
        for batch in self.read(split):
            if left >= len(batch):
                left -= len(batch)
                continue
            yield batch.slice(left, len(batch)) if left else batch
            left = 0

    def split_id(self, split: Any) -> Any:
        return split

    def start(self) -> None:
        self.context.send_split_request()

    def poll_next(self) -> Polled:
        if self._batches is None and not self._open_next():
            return ReaderStatus.END_OF_INPUT if self._no_more else ReaderStatus.NOTHING_AVAILABLE
        assert self._batches is not None
        batch = next(self._batches, None)
        if batch is not None:
            self._rows += len(batch)
            if self.counts_records:
                self.records_read += len(batch)
            return SplitBatch(batch, self.split_id(self._current))
        finished, self._current, self._batches = self._current, None, None
        self._splits_processed += 1
        if not self._splits and not self._no_more:
            self.context.send_split_request()
        return SplitFinished(self.split_id(finished))

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._splits.extend(splits)

    def notify_no_more_splits(self) -> None:
        self._no_more = True

    def snapshot_state(self) -> Sequence[Any]:
        waiting = list(self._splits)
        if self._batches is None:
            return waiting
        return [SplitInHand(self._current, self._rows), *waiting]

    def close(self) -> None:
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()
        self._batches = None

    def _open_next(self) -> bool:
        if not self._splits:
            return False
        split = self._splits.popleft()
        if isinstance(split, SplitInHand):
            self._current, self._rows = split.split, split.rows
            self._batches = self.read_from(split.split, split.rows)
        else:
            self._current, self._rows = split, 0
            self._batches = self.read(split)
        return True
