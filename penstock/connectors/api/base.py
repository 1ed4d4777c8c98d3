"""What connectors share: the contracts of sources and sinks, with readers and enumerators for the usual case. Who writes a
connector imports from here.

Source: pyflink.datastream.connectors.base; differs: Source and Sink are contracts for Python classes
(`penstock.engine.runtime.sources.contract`, `penstock.engine.runtime.sink`), and users may implement them.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final, Protocol, TypeVar

from penstock.engine.model.errors import RefusedForGood
from penstock.engine.model.metrics import Measured, MetricType
from penstock.engine.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.engine.runtime.operator import Accepts
from penstock.engine.runtime.records.output_copies import own_copies, own_copy
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

# ---------------------------------------------------------------------- committing reader A reader
# that acknowledges to its broker what was read, when the checkpoint that covers it is complete.
#
# Source: Flink KafkaSourceReader, PulsarSourceReader.


_NOTHING: Final[Mapping[Any, Any]] = {}
Kept = TypeVar("Kept")


class CommittingSplitReader(SplitReader):
    """Reads splits on the fetcher's thread, and commits positions to the broker. Only that thread uses the client.

    `to_commit`: the positions by split for the next `commit`; any thread sets it.
    """

    to_commit: Mapping[Any, Any] = _NOTHING
    _reported: Mapping[Any, Any] = _NOTHING

    def not_yet_reported(self) -> Mapping[Any, Any]:
        """The positions of `to_commit`, if they were not returned before.

        The attribute is not emptied here, because the other thread may be setting it.
        """
        positions = self.to_commit
        if positions is self._reported:
            return _NOTHING
        self._reported = positions
        return positions

    @abstractmethod
    def commit(self) -> None:
        """Send the positions to the broker, without waiting.

        A failure does no harm: the job restarts from its checkpoints, not from these positions.
        """


def taken_up_to(kept: dict[int, Kept], checkpoint_id: int) -> Kept | None:
    """Takes what is kept for checkpoints up to this one. Returns that of the latest; None: there is none."""
    done = sorted(one for one in kept if one <= checkpoint_id)
    found = [kept.pop(one) for one in done]
    return found[-1] if found else None


class CommittingReader(SourceReaderBase):
    """Keeps the positions after the records that `poll_next` returned, also of splits that were read to their end."""

    def __init__(self, context: ReaderContext, *, commits: bool) -> None:
        super().__init__(context)
        self._commits = commits
        self._positions: dict[Hashable, Any] = {}
        self._to_commit: dict[int, dict[Hashable, Any]] = {}
        self._split_reader: CommittingSplitReader | None = None

    @abstractmethod
    def open_split_reader(self) -> CommittingSplitReader:
        """Opens the split reader; called once, with the first split."""

    @abstractmethod
    def position_after(self, batch: SplitBatch) -> Any:
        """The position to commit once this batch was read; None: the position stays as it is."""

    def create_split_reader(self) -> SplitReader:
        self._split_reader = self.open_split_reader()
        return self._split_reader

    def note_read(self, read: SplitBatch) -> None:
        super().note_read(read)
        position = self.position_after(read)
        if position is not None:
            self._positions[read.split_id] = position

    def before_checkpoint(self, checkpoint_id: int) -> None:
        if self._commits:
            self._to_commit[checkpoint_id] = dict(self._positions)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        positions = taken_up_to(self._to_commit, checkpoint_id)
        if positions and self._split_reader is not None:
            self._split_reader.to_commit = positions
            self.run_on_fetcher(self._split_reader.commit)


# ---------------------------------------------------------------------- assigned splits
# Enumerators that know from the beginning which subtask reads which split.


class AssignedSplits(SplitEnumerator):
    """Gives each subtask its splits when it asks. Each is given once; the readers keep it in their state."""

    def __init__(self, context: EnumeratorContext, *, is_bounded: bool) -> None:
        self._context = context
        self._is_bounded = is_bounded
        self._left: dict[int, list[Any]] = {}

    def handle_split_request(self, subtask: int, host: str) -> None:
        splits = self._left.pop(subtask, [])
        if splits:
            self._context.assign_splits(subtask, splits)
        if self._is_bounded:
            self._context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Sequence[Any], subtask: int) -> None:
        """The subtask starts again, and asks for them."""
        self._left.setdefault(subtask, []).extend(splits)

    def unassigned_splits(self) -> int:
        return sum(map(len, self._left.values()))

    def left(self) -> list[Any]:
        """Return the splits that nobody has."""
        return [split for splits in self._left.values() for split in splits]

    def give(self, number: int, split: Any) -> None:
        """Keep the split for the subtask that has this number, modulo the parallelism."""
        self._left.setdefault(number % self._context.parallelism(), []).append(split)


# ---------------------------------------------------------------------- polling
# Bases for sources without splits: a client that is polled, knows its position, and is notified
# of complete checkpoints.
#
# Most message brokers are like that. A subclass supplies the client; splits, threads, checkpoints
# and rescaling are done here. Does not know any client. Source: Flink's SourceFunction,
# CheckpointListener and RMQSource; differs: on the contract of FLIP-27, so that it rescales, and
# does not block checkpoints.


PAUSE_S: Final = 0.02
MAX_ROWS: Final = 1024


@dataclass(frozen=True, slots=True)
class Shard:
    """One poller in a checkpoint. `position`: what its `position` returned last; None: it begins."""

    number: int
    position: Any = None


class Poller:
    """Reads one shard of a PollingSource. All methods but `wake_up` are called on one thread, where they may block."""

    def open(self, position: Any) -> None:
        """Begin after this position, which `position` has returned; None: at the beginning."""

    @abstractmethod
    def poll(self) -> Sequence[Any] | Batch | None:
        """Return the records that have come; empty: none for now; None: no more will come.

        An empty Batch says that what came gave no records: only the position moves.

        It may wait for up to about a second: the job's checkpoints do not wait for it, but its end does.
        """

    @abstractmethod
    def position(self) -> Any:
        """Return the position after the records that `poll` returned last, as plain data; never
        None.
        """

    def acknowledge(self, position: Any) -> None:
        """Note that what lies before this position is never asked for again.

        Called when a checkpoint with this position is complete, and after each poll if the job takes no checkpoints.
        It may fail to come: after a restart `open` gets the position.
        """

    def wake_up(self) -> None:
        """Make a waiting `poll` return soon. May be called from any thread."""

    def close(self) -> None:
        """Release connections."""


class QueuePoller(Poller):
    """A poller whose client puts what comes into `waiting`, on threads of its own. `changed` guards the state that they share."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.waiting: deque[Any] = deque()
        self._is_woken = False

    def wake_up(self) -> None:
        with self.changed:
            self._is_woken = True
            self.changed.notify_all()

    def taken(
        self, most: int, wait_s: float, has_news: Callable[[], object] = lambda: False
    ) -> list[Any]:
        """What has come, in order, at most so much. It waits for something to come, for `wake_up`, or until `has_news`."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self._is_woken or has_news(), wait_s)
            self._is_woken = False
            return [self.waiting.popleft() for _ in range(min(len(self.waiting), most))]


class PollingSource(Source):
    """A source without splits. A subclass makes its Pollers.

    `is_bounded`: whether its pollers come to an end. `shards`: how many pollers there are. They are
    spread over the subtasks, so a subtask may have several, or none. The number of pollers stays
    when the parallelism changes.

    Each record comes exactly once if `open` continues exactly after a position, and at least once
    if the other side sends again what was not acknowledged.
    """

    shards: int = 1
    is_bounded: bool = False
    default_parallelism: int | None = 1

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.of(is_bounded=self.is_bounded)

    @abstractmethod
    def create_poller(self, shard: int) -> Poller:
        """Return the poller of a shard, numbered from 0. It is made and used in a subtask."""

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        return _ShardEnumerator(context, self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _PollingReader(context, self)


class GeneratorSource(PollingSource):
    """A source that is one generator, as simple as a source can be. A subclass defines `run`.

    `batch_rows`: the largest number of records in a batch.
    """

    batch_rows: int = MAX_ROWS

    @abstractmethod
    def run(self, shard: int, skip: int) -> Iterator[Any]:
        """Yield the records of a shard after the first `skip` of them; the source ends with the
        generator.

        A record of None is none: what was yielded before it is handed on. Yield it before waiting
        for long.
        """

    def create_poller(self, shard: int) -> Poller:
        return _GeneratorPoller(self, shard)


class _GeneratorPoller(Poller):
    """The position is the number of records that were yielded."""

    def __init__(self, source: GeneratorSource, shard: int) -> None:
        self._source = source
        self._shard = shard
        self._count = 0

    def open(self, position: Any) -> None:
        self._count = position or 0
        self._records = self._source.run(self._shard, self._count)

    def poll(self) -> Sequence[Any] | Batch | None:
        found: list[Any] = []
        is_at_end = True
        # The generator may change a list that it has yielded.
        for record in map(own_copy, self._records):
            if record is None:
                is_at_end = False
                break
            found.append(record)
            self._count += 1
            if len(found) >= self._source.batch_rows:
                break
        if found:
            return RowBatch(found)
        return None if is_at_end else []

    def position(self) -> int:
        return self._count

    def close(self) -> None:
        close = getattr(getattr(self, "_records", None), "close", None)
        if close is not None:
            close()


class _ShardEnumerator(AssignedSplits):
    """Gives shard i to subtask i modulo the parallelism."""

    def __init__(self, context: EnumeratorContext, source: PollingSource) -> None:
        super().__init__(context, is_bounded=source.boundedness is Boundedness.BOUNDED)
        self._spread([Shard(number) for number in range(source.shards)])

    def snapshot_state(self) -> Any:
        return self.left()

    def restore_state(self, state: Any) -> None:
        self._left.clear()
        self._spread(state)

    def _spread(self, shards: Sequence[Shard]) -> None:
        for shard in shards:
            self.give(shard.number, shard)


class _PollingReader(CommittingReader):
    def __init__(self, context: ReaderContext, source: PollingSource) -> None:
        self._takes_checkpoints = context.takes_checkpoints()
        super().__init__(context, commits=self._takes_checkpoints)
        self._source = source

    def open_split_reader(self) -> CommittingSplitReader:
        return _PollingSplitReader(self._source, acknowledges=not self._takes_checkpoints)

    def split_id(self, split: Shard) -> int:
        return split.number

    def position_after(self, batch: SplitBatch) -> Any:
        return None if batch.after is None else batch.after.position


class _PollingSplitReader(CommittingSplitReader):
    """Polls its pollers in turn, and waits a moment if none of them has anything."""

    pause_s: ClassVar[float] = PAUSE_S

    def __init__(self, source: PollingSource, *, acknowledges: bool) -> None:
        """`acknowledges`: everything at once, because there are no checkpoints."""
        self._source = source
        self._acknowledges = acknowledges
        self._pollers: dict[int, Poller] = {}
        self._ended: dict[int, Poller] = {}
        self._turns: deque[int] = deque()
        self._woken = threading.Event()

    def add_splits(self, splits: Sequence[Any]) -> None:
        for shard in splits:
            poller = self._pollers[shard.number] = self._source.create_poller(shard.number)
            self._turns.append(shard.number)
            poller.open(shard.position)

    def fetch(self) -> Fetched:
        self._woken.clear()
        for _ in range(len(self._turns)):
            number = self._turns[0]
            poller = self._pollers[number]
            found = poller.poll()
            if found is None:
                # It may still be notified of checkpoints.
                self._ended[number] = self._pollers.pop(self._turns.popleft())
                return Fetched((), (number,))
            self._turns.rotate(-1)
            if len(found) or isinstance(found, Batch):
                position = poller.position()
                if self._acknowledges:
                    poller.acknowledge(position)
                batch = found if isinstance(found, Batch) else RowBatch(own_copies(list(found)))
                return Fetched([SplitBatch(batch, number, Shard(number, position))])
        self._woken.wait(self.pause_s)
        return Fetched()

    def commit(self) -> None:
        for number, position in self.not_yet_reported().items():
            poller = self._pollers.get(number) or self._ended.get(number)
            if poller is not None:
                poller.acknowledge(position)

    def wake_up(self) -> None:
        self._woken.set()
        for poller in list(self._pollers.values()):
            poller.wake_up()

    def close(self) -> None:
        try:
            self.commit()
        finally:
            for poller in (*self._pollers.values(), *self._ended.values()):
                poller.close()


# ---------------------------------------------------------------------- base


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
