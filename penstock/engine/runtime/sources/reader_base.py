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
    Polled,
    ReaderContext,
    ReaderStatus,
    SourceReader,
    SplitBatch,
    SplitFetcher,
    SplitFinished,
    SplitReader,
)


class SourceReaderBase(SourceReader):
    """Reads splits with a SplitReader on a thread of its own. A subclass creates the SplitReader.

    For positions in checkpoints it also defines `advanced`, or its SplitReader sets
    `SplitBatch.behind`.
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
            behind = read.behind
            self._open[read.split_id] = (
                self.advanced(split, read.batch) if behind is None else behind
            )

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
