"""Sources that compute their records from an index or from a batch of indexes, with a rate limit if wanted.

Does not know files and has no clock of its own (the reader's context has one). Source: Flink DataGeneratorSource and
RateLimiterStrategy; differs: whole Arrow batches can be generated too.

The rate is for the whole source: each subtask gets its share, and releases records in step with the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import TypeInformation, Types
from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    PolledSplitReader,
    QueueEnumerator,
    ReaderContext,
    ReaderStatus,
    Source,
    SourceReader,
    SplitBatch,
    SplitFinished,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.setting_checks import check_whole
from penstock.engine.runtime.codecs.convert import coerce_collection
from penstock.engine.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.engine.runtime.records.output_copies import own_copies, take
from penstock.engine.runtime.sources.contract import Polled

# ---------------------------------------------------------------------- number seq
# NumberSequenceSource: whole numbers, split into ranges.
#
# Source: pyflink.datastream.connectors.number_seq.


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


# ---------------------------------------------------------------------- collection
# A source of values that the program holds in memory. Source: Flink fromCollection.
#
# The values travel with the operator's code, once per TaskManager, and are read in one split. Does not know files.


ONLY_SPLIT: Final = "collection"
_REFUSALS: Final = (TypeError, ValueError, AssertionError, OverflowError)


class CollectionSource(Source):
    """The source of `env.from_collection`, which programs call."""

    boundedness = Boundedness.BOUNDED
    gives_rows = True

    def __init__(self, values: list[Any], type_info: TypeInformation | None) -> None:
        self._values = values
        self._type_info = type_info

    @classmethod
    def of(cls, values: Iterable[Any], type_info: TypeInformation | None) -> CollectionSource:
        """The values converted to the declared type: tuples become Rows, numbers wrap to its width."""
        if not isinstance(values, Iterable):
            raise TypeError(f"from_collection takes a list of values, got {values!r:.200}.")
        copied = list(values)
        if type_info is not None:
            try:
                copied = list(coerce_collection(copied, type_info))
            except _REFUSALS as error:
                kind = next(kind for kind in _REFUSALS if isinstance(error, kind))
                raise kind(f"from_collection: {error}") from error
        return cls(copied, type_info)

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type_info

    def create_enumerator(self, context: EnumeratorContext) -> QueueEnumerator:
        return QueueEnumerator(context, [ONLY_SPLIT])

    def create_reader(self, context: ReaderContext) -> PolledSplitReader:
        return _CollectionReader(context, self._values)


class _CollectionReader(PolledSplitReader):
    counts_records = False

    def __init__(self, context: ReaderContext, values: list[Any]) -> None:
        super().__init__(context)
        self._values = values

    def read(self, split: Any) -> Iterator[Batch]:
        return self.read_from(split, 0)

    def read_from(self, split: Any, rows: int) -> Iterator[Batch]:
        for start in range(rows, len(self._values), ROWS_PER_BATCH):
            yield RowBatch(own_copies(self._values[start : start + ROWS_PER_BATCH]))


# ---------------------------------------------------------------------- datagen


COLUMN_ROWS_PER_BATCH: Final = 65_536
# A source with a rate limit wakes this often: batches are small at a low rate, and the rate is
# even.
TICK_MS: Final = 5
ENDLESS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The indexes `first + k * stride` for k in [0, count), which one split generates.

    If an index stands for a block of rows, the first `skip` rows of the first block are already done.
    """

    first: int
    stride: int
    count: int
    skip: int = 0


class RateLimiter:
    """Computes how many records may be released by now, counted from a start on the monotonic
    clock.
    """

    __slots__ = ("_per_second", "_released", "_started_ms")

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._started_ms: int | None = None
        self._released = 0

    def allowance(self, now_ms: int, wanted: int) -> int:
        """How many records may be released now, at most `wanted`; they count as released."""
        if self._started_ms is None:
            self._started_ms = now_ms
        due = int((now_ms - self._started_ms) * self._per_second / 1000.0) + 1
        given = max(0, min(wanted, due - self._released))
        self._released += given
        return given

    def next_ms(self, now_ms: int) -> int:
        """The time at which to ask again."""
        assert self._started_ms is not None
        at = self._started_ms + int(self._released * 1000.0 / self._per_second)
        return max(at, now_ms + TICK_MS)


class _GeneratedSource(Source):
    """Args: count: None is without end. rate_per_second: None is as fast as possible."""

    def __init__(
        self,
        count: int | None,
        rate_per_second: float | None,
        batch_size: int,
        type_info: TypeInformation | None,
    ) -> None:
        if count is not None and count < 0:
            raise ConfigurationError(f"count must be 0 or more, or None for no end; got {count}.")
        if rate_per_second is not None and rate_per_second <= 0:
            raise ConfigurationError(f"rate_per_second must be above 0, got {rate_per_second}.")
        check_whole("batch_size", batch_size, 1)
        self._count = count
        self._rate_per_second = rate_per_second
        self._batch_size = batch_size
        self._type_info = type_info

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.of(is_bounded=self._count is not None)

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type_info

    def create_enumerator(self, context: EnumeratorContext) -> QueueEnumerator:
        return QueueEnumerator(context, self._splits(context.parallelism()))

    def create_reader(self, context: ReaderContext) -> SourceReader:
        limiter = self._limiter(context)
        return _GeneratorReader(context, self._generate, self._batch_size, limiter)

    def _limiter(self, context: ReaderContext) -> RateLimiter | None:
        """The subtask's share of the rate."""
        rate = self._rate_per_second
        return None if rate is None else RateLimiter(rate / context.parallelism())

    def _splits(self, parts: int) -> list[IndexRange]:
        """Without end or with a rate limit, subtasks take turns at the indexes. Otherwise each gets one range."""
        if self._count is None:
            return [IndexRange(part, parts, ENDLESS) for part in range(parts)]
        if self._rate_per_second is not None:
            counts = [len(range(part, self._count, parts)) for part in range(parts)]
            return [IndexRange(part, parts, n) for part, n in enumerate(counts) if n]
        ranges = split_range(0, self._count, parts)
        return [IndexRange(low, 1, high - low) for low, high in ranges]

    def _generate(self, indexes: range) -> Batch:
        raise NotImplementedError


def _check_whole(what: str, made: int, indexes: range) -> None:
    """Raises: RuntimeError when `map` took a StopIteration for the end of the indexes."""
    if made != len(indexes):
        raise RuntimeError(
            f"the {what} raised StopIteration at index {indexes[made]} (a next() on an exhausted "
            "iterator?): give next() a default, or catch it"
        )


class DataGeneratorSource(_GeneratedSource):
    """Generates records: `generator(index)` returns the record of each index in [0, count)."""

    gives_rows = True

    def __init__(
        self,
        generator: Callable[[int], Any],
        count: int | None,
        rate_per_second: float | None = None,
        type_info: TypeInformation | None = None,
        timestamp: Callable[[int], int] | None = None,
        batch_size: int = ROWS_PER_BATCH,
    ) -> None:
        """Check the arguments. Raises ConfigurationError if one is out of range.

        Args:
            generator: `generator(index)` returns the record of an index.
            count: the number of records; None: without end.
            rate_per_second: the largest number of records per second, of all subtasks together;
                None: no limit.
            type_info: the type of the records.
            timestamp: `timestamp(index)` returns the record's event time in epoch ms.
            batch_size: the largest number of records in a batch.
        """
        super().__init__(count, rate_per_second, batch_size, type_info)
        self._generator = generator
        self._timestamp = timestamp

    def _generate(self, indexes: range) -> Batch:
        stamps = None
        if self._timestamp is not None:
            stamps = np.fromiter(map(self._timestamp, indexes), np.int64)
            _check_whole("timestamp function", len(stamps), indexes)
        # It may return a list that it keeps, or the same list for many indexes.
        values: list[Any] = []
        take(values, map(self._generator, indexes))
        _check_whole("generator", len(values), indexes)
        return RowBatch(values, stamps)


class BatchGeneratorSource(_GeneratedSource):
    """Generates columns: `make_batch(start, stop)` returns a RecordBatch of these indexes.

    The indexes are [start, stop). A source with a rate limit asks for small batches.

    Args:
        timestamps: the int64 column with each record's event time in epoch ms, or None.
    """

    def __init__(
        self,
        make_batch: Callable[[int, int], pa.RecordBatch],
        count: int | None,
        batch_size: int = COLUMN_ROWS_PER_BATCH,
        rate_per_second: float | None = None,
        timestamps: str | None = None,
        type_info: TypeInformation | None = None,
    ) -> None:
        super().__init__(count, rate_per_second, batch_size, type_info)
        self._make_batch = make_batch
        self._timestamps = timestamps

    def _splits(self, parts: int) -> list[IndexRange]:
        """Blocks of consecutive indexes, so that event time advances in all subtasks at once."""
        blocks = -(-(ENDLESS if self._count is None else self._count) // self._batch_size)
        return [
            IndexRange(part, parts, -(-(blocks - part) // parts))
            for part in range(parts)
            if blocks > part
        ]

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _BlockReader(context, self._block, self._limiter(context))

    def _block(self, block: int, offset: int, rows: int | None) -> tuple[Batch, int, bool]:
        """A block's batch from index `offset` on, of at most `rows` indexes; how many indexes; whether it is the last
        batch.

        `make_batch` may leave indexes out, so that the batch may be shorter.
        """
        start = block * self._batch_size
        stop = start + self._batch_size
        if self._count is not None:
            stop = min(stop, self._count)
        first = start + offset
        last = stop if rows is None else min(stop, first + rows)
        data = self._make_batch(first, last)
        stamps = None
        if self._timestamps is not None:
            stamps = data.column(self._timestamps).to_numpy(zero_copy_only=False)
            stamps = stamps.astype(np.int64, copy=False)
        return ColumnBatch(data, stamps), last - first, last == stop


class _LimitedReader(SourceReader):
    """Keeps splits, position and rate; a subclass makes the batches."""

    def __init__(self, context: ReaderContext, limiter: RateLimiter | None) -> None:
        self._context = context
        self._limiter = limiter
        self._splits: deque[IndexRange] = deque()
        self._position = 0
        self._no_more = False

    def start(self) -> None:
        self._context.send_split_request()

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._splits.extend(splits)

    def notify_no_more_splits(self) -> None:
        self._no_more = True

    def poll_next(self) -> Polled:
        if not self._splits:
            return ReaderStatus.END_OF_INPUT if self._no_more else ReaderStatus.NOTHING_AVAILABLE
        split = self._splits[0]
        if self._position >= split.count:
            self._splits.popleft()
            self._position = 0
            if not self._splits and not self._no_more:
                self._context.send_split_request()
            return SplitFinished(split)
        return self._next(split)

    def snapshot_state(self) -> Sequence[Any]:
        """The splits that are not yet generated, the first one from its position on."""
        rest = list(self._splits)
        if rest:
            at, done = rest[0], self._position
            first = at.first + done * at.stride
            rest[0] = IndexRange(first, at.stride, at.count - done, self._skipped())
        return rest

    def _next(self, split: IndexRange) -> Polled:
        raise NotImplementedError

    def _skipped(self) -> int:
        return 0

    def _allowance(self, wanted: int) -> int:
        """How many records may be made now. 0: wait, the context will poll again."""
        if self._limiter is None:
            return wanted
        now_ms = self._context.monotonic_ms()
        rows = self._limiter.allowance(now_ms, wanted)
        if rows == 0:
            self._context.wake_at(self._limiter.next_ms(now_ms))
        return rows


class _GeneratorReader(_LimitedReader):
    def __init__(
        self,
        context: ReaderContext,
        generate: Callable[[range], Batch],
        batch_size: int,
        limiter: RateLimiter | None,
    ) -> None:
        super().__init__(context, limiter)
        self._generate = generate
        self._batch_size = batch_size

    def _next(self, split: IndexRange) -> Polled:
        rows = self._allowance(min(self._batch_size, split.count - self._position))
        if rows == 0:
            return ReaderStatus.NOTHING_AVAILABLE
        first = split.first + self._position * split.stride
        self._position += rows
        return SplitBatch(
            self._generate(range(first, first + rows * split.stride, split.stride)), split
        )


class _BlockReader(_LimitedReader):
    def __init__(
        self,
        context: ReaderContext,
        block: Callable[[int, int, int | None], tuple[Batch, int, bool]],
        limiter: RateLimiter | None,
    ) -> None:
        super().__init__(context, limiter)
        self._block = block
        self._offset = 0

    def _next(self, split: IndexRange) -> Polled:
        rows = None if self._limiter is None else self._allowance(COLUMN_ROWS_PER_BATCH)
        if rows == 0:
            return ReaderStatus.NOTHING_AVAILABLE
        if self._position == 0 and self._offset == 0:
            self._offset = split.skip
        number = split.first + self._position * split.stride
        batch, indexes, is_last = self._block(number, self._offset, rows)
        self._offset += indexes
        if is_last:
            self._offset = 0
            self._position += 1
        return SplitBatch(batch, split) if len(batch) else ReaderStatus.NOTHING_AVAILABLE

    def _skipped(self) -> int:
        if self._position == 0 and self._offset == 0:
            return self._splits[0].skip  # nothing of it was read since it was restored
        return self._offset
