"""The reader of a HybridSource, in the tasks: reads one source at a time. `hybrid/enumerator.py` tells it when to
switch.

Source: Flink HybridSourceReader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any

from penstock.connectors.api.base import (
    ReaderContext,
    ReaderStatus,
    Source,
    SourceReader,
    SplitBatch,
    SplitFinished,
    SplitReader,
)
from penstock.connectors.hybrid.enumerator import FINISHED, OPENED, HybridSplit, NoMoreOf, SwitchTo
from penstock.engine.runtime.sources.contract import Polled, SplitFetcher


class HybridReader(SourceReader):
    """Reads one source after the other. A split's id is the pair of the source's number and the id in that source."""

    def __init__(self, context: ReaderContext, sources: Sequence[Source]) -> None:
        self.context = context
        self._sources = sources
        self._index = -1
        self._inner: SourceReader | None = None
        self._waiting: dict[int, list[Any]] = {}
        self._read: set[Hashable] = set()
        self._done: deque[SplitFinished] = deque()
        self._has_started = False
        self._has_no_more = False

    def start(self) -> None:
        self._has_started = True
        if not self._open_waiting() and not self._has_no_more:
            self.context.send_source_event((FINISHED, self._index))

    def add_splits(self, splits: Sequence[Any]) -> None:
        for one in splits:
            if isinstance(one, SwitchTo):
                self._open(one.index)
            elif isinstance(one, NoMoreOf):
                if self._inner is not None and one.index == self._index:
                    self._give_waiting(self._inner)
                    self._inner.notify_no_more_splits()
            else:
                self._waiting.setdefault(one.index, []).append(one.split)
        if self._inner is not None:
            self._give_waiting(self._inner)
        elif self._has_started:
            self._open_waiting()

    def notify_no_more_splits(self) -> None:
        self._has_no_more = True
        if self._inner is not None:
            self._inner.notify_no_more_splits()

    def poll_next(self) -> Polled:
        if self._done:
            return self._done.popleft()
        if self._inner is None:
            is_over = self._has_no_more and not self._waiting
            return ReaderStatus.END_OF_INPUT if is_over else ReaderStatus.NOTHING_AVAILABLE
        polled = self._inner.poll_next()
        if isinstance(polled, SplitBatch):
            split_id = (self._index, polled.split_id)
            self._read.add(split_id)
            return SplitBatch(polled.batch, split_id)
        if isinstance(polled, SplitFinished):
            split_id = (self._index, polled.split_id)
            self._read.discard(split_id)
            return SplitFinished(split_id)
        if polled is ReaderStatus.END_OF_INPUT:
            self._end_inner()
            return self.poll_next()
        return polled

    def split_ids(self, splits: Sequence[Any]) -> Sequence[Any]:
        if self._inner is None:
            return ()
        own = [one for one in splits if isinstance(one, HybridSplit) and one.index == self._index]
        ids = [
            (self._index, split_id)
            for split_id in self._inner.split_ids([one.split for one in own])
        ]
        self._read.update(ids)
        return ids

    def pause_or_resume_splits(self, to_pause: Sequence[Any], to_resume: Sequence[Any]) -> None:
        """Passes the ids of the current source on; splits of an earlier source no longer exist."""
        pause, resume = (
            [split_id for index, split_id in ids if index == self._index]
            for ids in (to_pause, to_resume)
        )
        if self._inner is not None:
            self._inner.pause_or_resume_splits(pause, resume)

    def before_checkpoint(self, checkpoint_id: int) -> None:
        if self._inner is not None:
            self._inner.before_checkpoint(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tells the current reader; the readers of earlier sources are closed."""
        if self._inner is not None:
            self._inner.notify_checkpoint_complete(checkpoint_id)

    def snapshot_state(self) -> Sequence[Any]:
        open_ones = [] if self._inner is None else self._inner.snapshot_state()
        waiting = [
            HybridSplit(index, one) for index, splits in self._waiting.items() for one in splits
        ]
        return [*(HybridSplit(self._index, one) for one in open_ones), *waiting]

    def close(self) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.close()

    # ---------------------------------------------------------- private

    def _open_waiting(self) -> bool:
        """Opens the first source that has waiting splits. Returns whether a source is open."""
        if self._waiting:
            self._open(min(self._waiting))
        return self._inner is not None

    def _open(self, index: int) -> None:
        self.close()
        self._index = index
        inner = self._inner = self._sources[index].create_reader(_InnerReaderContext(self.context))
        self.context.send_source_event((OPENED, index))
        self._give_waiting(inner)
        inner.start()
        if self._has_no_more:
            inner.notify_no_more_splits()

    def _give_waiting(self, inner: SourceReader) -> None:
        splits = self._waiting.pop(self._index, None)
        if splits:
            inner.add_splits(splits)

    def _end_inner(self) -> None:
        """Reports all open splits as finished, because unfinished ones would hold the watermark back."""
        self._done.extend(map(SplitFinished, self._read))
        self._read.clear()
        self.close()
        if not self._open_waiting() and not self._has_no_more:
            self.context.send_source_event((FINISHED, self._index))


class _InnerReaderContext:
    """The `ReaderContext` of one source's reader."""

    def __init__(self, outer: ReaderContext) -> None:
        self._outer = outer
        self.subtask = outer.subtask
        self.parallelism = outer.parallelism
        self.now_ms = outer.now_ms
        self.monotonic_ms = outer.monotonic_ms
        self.takes_checkpoints = outer.takes_checkpoints
        self.send_split_request = outer.send_split_request
        self.wake_at = outer.wake_at
        self.wake = outer.wake

    def start_fetcher(self, split_reader: SplitReader) -> SplitFetcher:
        return self._outer.start_fetcher(split_reader)

    def send_source_event(self, event: object) -> None:
        raise NotImplementedError(
            "HybridSource: a source inside it cannot send events to its enumerator. Read that "
            "source as a stream of its own, and unite the streams with union()."
        )
