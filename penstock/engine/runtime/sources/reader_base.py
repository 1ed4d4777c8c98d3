"""SourceReaderBase: a reader whose splits are read by a blocking SplitReader on a fetcher's thread.

It takes over the fetcher's results (at most two ahead), gives them out batch by batch, keeps each
split's position, and ends when no split can come and none is left. Does not know threads: the fetcher is
a port of the ReaderContext. Source: Flink SourceReaderBase, SingleThreadFetcherManager
(docs/spec/sources-and-sinks.md#sources); differs: whole batches, one fetcher.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from penstock.engine.model.metrics import Measured
from penstock.engine.runtime.elements import Batch
from penstock.engine.runtime.sources.contract import (
    EnumeratorContext,
    Polled,
    ReaderContext,
    ReaderStatus,
    SourceReader,
    SplitBatch,
    SplitEnumerator,
    SplitFetcher,
    SplitFinished,
    SplitReader,
)


class SourceReaderBase(SourceReader):
    """Reads splits with a SplitReader on a thread of its own. A subclass creates the SplitReader.

    For positions in checkpoints it also defines `advanced`, or its SplitReader sets
    `SplitBatch.after`.
    """

    def __init__(self, context: ReaderContext) -> None:
        self.context = context
        self._fetcher: SplitFetcher | None = None
        self._splits: SplitReader | None = None
        self._can_pause = True
        self._open: dict[Hashable, Any] = {}
        self._ready: deque[SplitBatch | SplitFinished] = deque()
        self._has_no_more = False

    @abstractmethod
    def create_split_reader(self) -> SplitReader:
        """Return a new SplitReader; called once, with the first split."""

    def split_id(self, split: Any) -> Hashable:
        """Return the id that the SplitReader uses for a split; by default the split itself."""
        found: Hashable = split
        return found

    def advanced(self, split: Any, batch: Batch) -> Any:
        """Return the split with its position after `batch`. By default its position is the start."""
        return split

    def start(self) -> None:
        self.context.send_split_request()

    def poll_next(self) -> Polled:
        while self._ready or self._take_over():
            element = self._ready.popleft()
            if isinstance(element, SplitFinished):
                self._open.pop(element.split_id, None)
                if not self._open and not self._has_no_more:
                    self.context.send_split_request()
                return element
            self.note_read(element)
            if rows := len(element.batch):
                self.records_read += rows
                return element
        is_over = self._has_no_more and not self._open
        return ReaderStatus.END_OF_INPUT if is_over else ReaderStatus.NOTHING_AVAILABLE

    def note_read(self, read: SplitBatch) -> None:
        """Note that this batch is handed out.

        An empty batch is not handed out; it only moves the position.
        """
        split = self._open.get(read.split_id)
        if split is not None:
            after = read.after
            self._open[read.split_id] = self.advanced(split, read.batch) if after is None else after

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._open.update((self.split_id(split), split) for split in splits)
        if self._fetcher is None:
            self._splits = split_reader = self.create_split_reader()
            pause = getattr(type(split_reader), "pause_or_resume_splits", None)
            self._can_pause = pause is not SplitReader.pause_or_resume_splits
            self._fetcher = self.context.start_fetcher(split_reader)
        self._fetcher.add_splits(splits)

    def split_ids(self, splits: Sequence[Any]) -> Sequence[Any]:
        return [self.split_id(split) for split in splits]

    def notify_no_more_splits(self) -> None:
        self._has_no_more = True

    def pause_or_resume_splits(self, to_pause: Sequence[Any], to_resume: Sequence[Any]) -> None:
        """Pause and resume splits. Batches that were fetched already still come.

        Raises:
            NotImplementedError: the SplitReader cannot pause splits. This is raised here, where the caller may accept it,
                and not on the fetcher's thread.
        """
        if not self._can_pause:
            super().pause_or_resume_splits(to_pause, to_resume)
        if self._fetcher is not None:
            self._fetcher.pause_or_resume_splits(to_pause, to_resume)

    @property
    def bytes_read(self) -> int:  # type: ignore[override] # the SplitReader counts it
        return 0 if self._splits is None else self._splits.bytes_read

    def measured(self) -> Iterable[Measured]:
        return () if self._splits is None else self._splits.measured()

    def run_on_fetcher(self, order: Callable[[], None]) -> None:
        """Run `order` on the fetcher's thread between two fetches, if there is a SplitReader."""
        if self._fetcher is not None:
            self._fetcher.run(order)

    def snapshot_state(self) -> Sequence[Any]:
        """Return the open splits after what `poll_next` returned, not what was fetched ahead."""
        return list(self._open.values())

    def close(self) -> None:
        fetcher, self._fetcher = self._fetcher, None
        if fetcher is not None:
            fetcher.close()

    def _take_over(self) -> bool:
        """Take a result over from the fetcher. Returns whether there is something to hand out now."""
        fetched = self._fetcher.poll() if self._fetcher is not None else None
        if fetched is None:
            return False
        self.fetched_at_ms = self.context.now_ms()
        self._ready.extend(fetched.batches)
        self._ready.extend(SplitFinished(split_id) for split_id in fetched.finished)
        return bool(self._ready)


class QueueEnumerator(SplitEnumerator):
    """The usual SplitEnumerator: a queue of splits. Does not know kinds of splits. Source: similar to Flink
    SimpleSplitAssigner.

    Assigns a known set of splits, one per request, in order; returned splits come first.

    With `is_final` False, `add` may add splits; requests wait for them.
    """

    def __init__(
        self, context: EnumeratorContext, splits: Iterable[Any], *, is_final: bool = True
    ) -> None:
        self._context = context
        self._splits = deque(splits)
        self._is_final = is_final
        self._waiting: dict[int, str] = {}

    def handle_split_request(self, subtask: int, host: str) -> None:
        if self._splits:
            self._context.assign_splits(subtask, [self._take(host)])
        elif self._is_final:
            self._context.signal_no_more_splits(subtask)
        else:
            self._waiting[subtask] = host

    def add_splits_back(self, splits: Sequence[Any], subtask: int) -> None:
        # The subtask's new attempt asks again, so an older request of the subtask is dropped.
        self._waiting.pop(subtask, None)
        self._splits.extendleft(reversed(splits))
        self._serve_waiting()

    def add(self, splits: Iterable[Any]) -> None:
        """Add splits, for readers that wait and for later requests."""
        self._splits.extend(splits)
        self._serve_waiting()

    def unassigned_splits(self) -> int:
        return len(self._splits)

    def snapshot_state(self) -> Any:
        return list(self._splits)

    def restore_state(self, state: Any) -> None:
        """Take the splits of a snapshot, instead of those given at the start."""
        self._splits = deque(state)

    def _serve_waiting(self) -> None:
        """Serve the waiting readers. Requests of readers that are gone are dropped: splits assigned to them would be lost."""
        there = set(self._context.registered_readers())
        self._waiting = {one: host for one, host in self._waiting.items() if one in there}
        while self._splits and self._waiting:
            subtask = next(iter(self._waiting))
            self.handle_split_request(subtask, self._waiting.pop(subtask))

    def _take(self, host: str) -> Any:
        return self._splits.popleft()
