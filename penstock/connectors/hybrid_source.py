"""HybridSource: reads several sources one after the other, as if they were one source.

All subtasks read a source to its end before any subtask begins the next one. `HybridSource.builder(first)` makes it.
Source: pyflink.datastream.connectors.hybrid_source, Flink HybridSource, HybridSourceSplitEnumerator,
HybridSourceReader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from penstock.connectors.api.base import (
    Boundedness,
    EnumeratorContext,
    ReaderContext,
    ReaderStatus,
    Source,
    SourceReader,
    SplitBatch,
    SplitEnumerator,
    SplitFinished,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.sources.contract import Polled

# ---------------------------------------------------------------------- enumerator
# The enumerator of a HybridSource, on the driver: runs the enumerator of one source at a time,
# and switches to the next.
#
# A reader reports OPENED with a source's number when it begins to read that source, and FINISHED
# when it has read all its splits; FINISHED with -1 means that it has just started and waits for
# the source to read. The answers are splits of two special kinds: NoMoreOf and SwitchTo.
# When all readers have FINISHED, the next source's enumerator is made. Source: Flink
# HybridSourceSplitEnumerator; differs: NoMoreOf signals to a reader that its source has no more
# splits.


OPENED: Final = "opened"
FINISHED: Final = "finished"


@dataclass(frozen=True, slots=True)
class HybridSplit:
    """A split of the source with number `index`."""

    index: int
    split: Any


@dataclass(frozen=True, slots=True)
class NoMoreOf:
    """Signals to a reader that this source has no more splits for it."""

    index: int


@dataclass(frozen=True, slots=True)
class SwitchTo:
    """Makes a reader continue with this source."""

    index: int


class HybridEnumerator(SplitEnumerator):
    """Enumerates one source after the other. `index`: the current source.

    A restored reader may still have splits of an earlier source.
    """

    def __init__(self, context: EnumeratorContext, sources: Sequence[Source]) -> None:
        self.context = context
        self.sources = sources
        self.index = 0
        self.place_of: dict[int, int] = {}
        self._finished: set[int] = set()
        self._late: dict[int, list[Any]] = {}
        self._state: Any = None
        self.inner: SplitEnumerator | None = None

    # ---------------------------------------------------------- SplitEnumerator

    def unassigned_splits(self) -> int | None:
        """Of the current source."""
        return None if self.inner is None else self.inner.unassigned_splits()

    def start(self) -> None:
        self.open()

    def add_reader(self, subtask: int) -> None:
        """Only forgets the reader's place: the reader itself reports with which source it begins."""
        self._forget(subtask)

    def handle_split_request(self, subtask: int, host: str) -> None:
        """Asks the current source's enumerator. An earlier source has no splits beyond those given with NoMoreOf."""
        if self.place_of.get(subtask) == self.index:
            self.current.handle_split_request(subtask, host)

    def handle_source_event(self, subtask: int, event: object) -> None:
        assert isinstance(event, tuple), "a HybridReader sends pairs"
        kind, index = event
        if kind == OPENED:
            self._begin(subtask, index)
        elif kind == FINISHED and index < self.index:
            following = [one for one in self._late if one > index]
            self.context.assign_splits(subtask, [SwitchTo(min(following, default=self.index))])
        elif kind == FINISHED:
            self._finished.add(subtask)
            if len(self._finished) == self.context.parallelism():
                self._go_on()

    def add_splits_back(self, splits: Sequence[Any], subtask: int) -> None:
        self._forget(subtask)
        back: dict[int, list[Any]] = {}
        for one in splits:
            if isinstance(one, HybridSplit):
                back.setdefault(one.index, []).append(one.split)
        for index, found in back.items():
            if index == self.index:
                self.current.add_splits_back(found, subtask)
            else:
                self._late.setdefault(index, []).extend(found)

    def snapshot_state(self) -> Any:
        return {"index": self.index, "inner": self.current.snapshot_state(), "late": self._late}

    def restore_state(self, state: Any) -> None:
        self.index, self._state, self._late = state["index"], state, dict(state["late"])

    def close(self) -> None:
        inner, self.inner = self.inner, None
        if inner is not None:
            inner.close()

    # ---------------------------------------------------------- for the inner context

    @property
    def current(self) -> SplitEnumerator:
        assert self.inner is not None, "the enumerator was used before its start"
        return self.inner

    @property
    def is_last(self) -> bool:
        return self.index == len(self.sources) - 1

    def no_more(self, subtask: int) -> None:
        """Signal to a reader that the current source has no more splits for it."""
        if self.is_last:
            self.context.signal_no_more_splits(subtask)
        else:
            self.context.assign_splits(subtask, [NoMoreOf(self.index)])

    def open(self) -> None:
        """Makes the enumerator of the current source, from a checkpoint's state if there is one."""
        self.close()
        source, state, context = (
            self.sources[self.index],
            self._state,
            _InnerEnumeratorContext(self),
        )
        self._state = None
        if state is None:
            self.inner = source.create_enumerator(context)
        else:
            self.inner = source.restore_enumerator(context, state["inner"])
        self.inner.start()

    # ---------------------------------------------------------- private

    def _begin(self, subtask: int, index: int) -> None:
        self.place_of[subtask] = index
        self._finished.discard(subtask)
        if index == self.index:
            self.current.add_reader(subtask)
            return
        left = [HybridSplit(index, split) for split in self._late.pop(index, ())]
        self.context.assign_splits(subtask, [*left, NoMoreOf(index)])

    def _go_on(self) -> None:
        self._finished.clear()
        self.index += 1
        self.open()
        for subtask in self.context.registered_readers():
            self.context.assign_splits(subtask, [SwitchTo(self.index)])

    def _forget(self, subtask: int) -> None:
        self.place_of.pop(subtask, None)
        self._finished.discard(subtask)


class BatchEnumerator(HybridEnumerator):
    """The enumerator of a BATCH job. All splits are assigned before readers start.

    So a reader that gets the signal that there are no more splits counts as finished.
    """

    def __init__(self, context: EnumeratorContext, sources: Sequence[Source]) -> None:
        super().__init__(context, sources)
        self._ended: dict[int, str] = {}

    def add_reader(self, subtask: int) -> None:
        self.place_of[subtask] = self.index
        self.current.add_reader(subtask)

    def handle_split_request(self, subtask: int, host: str) -> None:
        self._ended.pop(subtask, None)
        self._host = host
        self.current.handle_split_request(subtask, host)
        if len(self._ended) == self.context.parallelism() and not self.is_last:
            asked, self._ended = self._ended, {}
            self.index += 1
            self.open()
            for one in asked:
                self.add_reader(one)
            for one, its_host in asked.items():
                self.handle_split_request(one, its_host)

    def no_more(self, subtask: int) -> None:
        if self.is_last:
            super().no_more(subtask)
        else:
            self._ended[subtask] = self._host


class _InnerEnumeratorContext:
    """The `EnumeratorContext` of one source's enumerator. It has an effect only while that source is the current one."""

    def __init__(self, hybrid: HybridEnumerator) -> None:
        self._hybrid = hybrid
        self._index = hybrid.index

    @property
    def _is_current(self) -> bool:
        return self._hybrid.index == self._index

    def parallelism(self) -> int:
        return self._hybrid.context.parallelism()

    def registered_readers(self) -> Sequence[int]:
        there = self._hybrid.context.registered_readers()
        return [one for one in there if self._hybrid.place_of.get(one) == self._index]

    def assign_splits(self, subtask: int, splits: Sequence[Any]) -> None:
        if self._is_current:
            wrapped = [HybridSplit(self._index, split) for split in splits]
            self._hybrid.context.assign_splits(subtask, wrapped)

    def signal_no_more_splits(self, subtask: int) -> None:
        if self._is_current:
            self._hybrid.no_more(subtask)

    def call_periodically(self, period_ms: int, call: Callable[[], None]) -> None:
        def call_if_current() -> None:
            if self._is_current and self._hybrid.inner is not None:
                call()

        self._hybrid.context.call_periodically(period_ms, call_if_current)


# ---------------------------------------------------------------------- reader


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
        """Notify the current reader; the readers of earlier sources are closed."""
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
        inner = self._inner = self._sources[index].create_reader(
            cast("ReaderContext", _InnerReaderContext(self.context))
        )
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outer, name)

    def send_source_event(self, event: object) -> None:
        raise NotImplementedError(
            "HybridSource: a source inside it cannot send events to its enumerator. Read that "
            "source as a stream of its own, and unite the streams with union()."
        )


# ---------------------------------------------------------------------- hybrid source


__all__ = ["HybridSource", "HybridSourceBuilder"]


class HybridSource(Source):
    """Reads several sources one after the other. Build it with `HybridSource.builder`.

    All sources have the same type of records; all but the last are bounded.
    """

    def __init__(self, sources: Sequence[Source], *, is_batch: bool = False) -> None:
        self._sources = tuple(sources)
        self._is_batch = is_batch

    @staticmethod
    def builder(first_source: Source) -> HybridSourceBuilder:
        """Return a builder whose first source is the given one."""
        return HybridSourceBuilder(first_source)

    @property
    def boundedness(self) -> Boundedness:
        return self._sources[-1].boundedness

    @property
    def produced_type(self) -> Any:
        return self._sources[0].produced_type

    def in_batch(self) -> Source:
        return HybridSource([source.in_batch() for source in self._sources], is_batch=True)

    def validate(self) -> None:
        for source in self._sources:
            source.validate()

    def create_enumerator(self, context: EnumeratorContext) -> HybridEnumerator:
        kind = BatchEnumerator if self._is_batch else HybridEnumerator
        return kind(context, self._sources)

    def create_reader(self, context: ReaderContext) -> HybridReader:
        return HybridReader(context, self._sources)


class HybridSourceBuilder:
    """Builds a HybridSource from sources in the order in which they are read."""

    def __init__(self, first_source: Source) -> None:
        self._sources: list[Source] = []
        self.add_source(first_source)

    def add_source(self, source: Source) -> Self:
        """Add the next source."""
        if not isinstance(source, Source):
            raise TypeError(
                f"HybridSource takes Sources of penstock.datastream.connectors, got {type(source).__name__}."
            )
        if self._sources:
            number, before = len(self._sources), self._sources[-1]
            if before.boundedness is not Boundedness.BOUNDED:
                raise ConfigurationError(
                    f"HybridSource: source {number} ({type(before).__name__}) has no end, so no "
                    "source can follow it. Make it bounded, or add it last."
                )
            if before.produced_type != source.produced_type:
                raise ConfigurationError(
                    f"HybridSource: all sources need the same type of records, but source {number} "
                    f"has {before.produced_type} and source {number + 1} ({type(source).__name__}) "
                    f"has {source.produced_type}."
                )
        self._sources.append(source)
        return self

    def build(self) -> HybridSource:
        """Return the source."""
        return HybridSource(self._sources)
