"""Bases for sources without splits: a client that is polled, knows its position, and is told what is safe.

Most message brokers are like that. What is left to write is the client; splits, threads, checkpoints and rescaling are
done here. Does not know any client. Source: Flink's SourceFunction, CheckpointListener and RMQSource; differs: on the
contract of FLIP-27, so that it rescales, and does not block checkpoints.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from penstock.connectors.api.assigned_splits import AssignedSplits
from penstock.connectors.api.committing_reader import CommittingReader, CommittingSplitReader
from penstock.engine.runtime.elements import Batch, RowBatch
from penstock.engine.runtime.records.output_copies import own_copies, own_copy
from penstock.engine.runtime.sources.contract import (
    Boundedness,
    EnumeratorContext,
    Fetched,
    ReaderContext,
    Source,
    SourceReader,
    SplitBatch,
    SplitEnumerator,
)

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
        """Begin behind this position, which `position` has returned; None: at the beginning."""

    @abstractmethod
    def poll(self) -> Sequence[Any] | Batch | None:
        """Return the records that have come; empty: none for now; None: no more will come.

        An empty Batch says that what came gave no records: only the position moves.

        It may wait for up to about a second: the job's checkpoints do not wait for it, but its end does.
        """

    @abstractmethod
    def position(self) -> Any:
        """Return where to go on behind the records that `poll` returned last, as plain data; never None."""

    def acknowledge(self, position: Any) -> None:
        """Note that what lies before this position is never asked for again.

        Called when a checkpoint with this position is complete, and after each poll if the job takes no checkpoints.
        It may fail to come: after a restart `open` gets the position.
        """

    def wake_up(self) -> None:
        """Make a waiting `poll` return soon. May be called from any thread."""

    def close(self) -> None:
        """Release connections."""


class PollingSource(Source):
    """A source without splits. A subclass makes its Pollers.

    `shards`: how many pollers there are. They are spread over the subtasks, so a subtask may have several, or none; their
    number stays when the parallelism changes.

    Each record comes exactly once if `open` goes on exactly behind a position, and at least once if the other side sends
    again what was not acknowledged.
    """

    shards: int = 1
    default_parallelism: int | None = 1

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    @abstractmethod
    def create_poller(self, shard: int) -> Poller:
        """Return the poller of a shard, numbered from 0. It is made and used in a subtask."""

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        return _ShardEnumerator(context, self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _PollingReader(context, self)


class GeneratorSource(PollingSource):
    """A source that is one generator, as simple as a source can be. A subclass defines `run`.

    `batch_rows`: at most so many records are handed on at once.
    """

    batch_rows: int = MAX_ROWS

    @abstractmethod
    def run(self, shard: int, skip: int) -> Iterator[Any]:
        """Yield the records of a shard behind the first `skip` of them; the source ends with the generator.

        A record of None is none: what was yielded before it is handed on. Yield it before waiting for long.
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

    def position_behind(self, batch: SplitBatch) -> Any:
        return None if batch.behind is None else batch.behind.position


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
                # It may still be told what is safe.
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
        for number, position in self.not_yet_told().items():
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
