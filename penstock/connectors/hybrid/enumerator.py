"""The enumerator of a HybridSource, on the driver: runs the enumerator of one source at a time, and switches to the
next.

A reader reports OPENED with a source's number when it begins to read that source, and FINISHED when it has read all its
splits; FINISHED with -1 means that it has just started and waits to be told which source to read. The answers are
splits of two special kinds: NoMoreOf and SwitchTo. When all readers have FINISHED, the next source's enumerator is
made.
Source: Flink HybridSourceSplitEnumerator; differs: NoMoreOf tells a reader that its source has no more splits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.connectors.api.base import EnumeratorContext, Source, SplitEnumerator

OPENED: Final = "opened"
FINISHED: Final = "finished"


@dataclass(frozen=True, slots=True)
class HybridSplit:
    """A split of the source with number `index`."""

    index: int
    split: Any


@dataclass(frozen=True, slots=True)
class NoMoreOf:
    """Tells a reader that this source has no more splits for it."""

    index: int


@dataclass(frozen=True, slots=True)
class SwitchTo:
    """Tells a reader to continue with this source."""

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
        told, index = event
        if told == OPENED:
            self._begin(subtask, index)
        elif told == FINISHED and index < self.index:
            following = [one for one in self._late if one > index]
            self.context.assign_splits(subtask, [SwitchTo(min(following, default=self.index))])
        elif told == FINISHED:
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
        """Tells a reader that the current source has no more splits for it."""
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

    A reader that is told that there are no more splits therefore counts as finished.
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
