"""A source of the audit's log, which grows while it is read: a split is a file and a position in it.

Each subtask reads several splits side by side, and a split ends when the log is complete. Records are tuples
(source, sequence, key, value) with their event time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from audit.event_log import end_of, read_records
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
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.sources.contract import Polled

POLL_MS = 20
ROWS_PER_BATCH = 512


@dataclass(frozen=True, slots=True)
class LogSplit:
    """What is left of one file: records from number `position`."""

    source: int
    position: int = 0


class LogSource(Source):
    """`sources`: numbers of the files; those of `folder`/log. Unbounded as long as the log is not complete."""

    def __init__(self, folder: str, sources: Sequence[int]) -> None:
        self.folder = folder
        self.sources = tuple(sources)

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        return _Enumerator(context, [LogSplit(source) for source in self.sources])

    def restore_enumerator(self, context: EnumeratorContext, state: Any) -> SplitEnumerator:
        return _Enumerator(context, state)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _Reader(context, self.folder)


class _Enumerator(SplitEnumerator):
    """Each split belongs to one subtask; there will be no others."""

    def __init__(self, context: EnumeratorContext, splits: Sequence[LogSplit]) -> None:
        self._context = context
        self._splits = list(splits)

    def handle_split_request(self, subtask: int, host: str) -> None:
        parallelism = self._context.parallelism()
        mine = [split for split in self._splits if split.source % parallelism == subtask]
        self._splits = [split for split in self._splits if split not in mine]
        if mine:
            self._context.assign_splits(subtask, mine)
        self._context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Sequence[Any], subtask: int) -> None:
        self._splits.extend(splits)

    def snapshot_state(self) -> list[LogSplit]:
        return list(self._splits)


class _Reader(SourceReader):
    """Takes turns among its splits."""

    def __init__(self, context: ReaderContext, folder: str) -> None:
        self._context = context
        self._folder = folder
        self._splits: list[LogSplit] = []
        self._paused: set[int] = set()
        self._turn = 0
        self._end: dict[int, int] | None = None
        self._no_more = False

    def start(self) -> None:
        self._context.send_split_request()

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._splits.extend(splits)

    def split_ids(self, splits: Sequence[Any]) -> Sequence[Any]:
        return [split.source for split in splits]

    def pause_or_resume_splits(self, to_pause: Sequence[Any], to_resume: Sequence[Any]) -> None:
        self._paused = self._paused.union(to_pause).difference(to_resume)

    def notify_no_more_splits(self) -> None:
        self._no_more = True

    def snapshot_state(self) -> Sequence[Any]:
        return list(self._splits)

    def poll_next(self) -> Polled:
        if not self._splits:
            return ReaderStatus.END_OF_INPUT if self._no_more else ReaderStatus.NOTHING_AVAILABLE
        for _ in self._splits:
            self._turn = (self._turn + 1) % len(self._splits)
            polled = self._poll(self._turn)
            if polled is not None:
                return polled
        self._context.wake_at(self._context.monotonic_ms() + POLL_MS)
        return ReaderStatus.NOTHING_AVAILABLE

    def _poll(self, place: int) -> Polled | None:
        """None: this split has nothing for now."""
        split = self._splits[place]
        if split.source in self._paused:
            return None
        if self._end is None:  # before the records: what it counts is there then
            self._end = end_of(self._folder)
        records = read_records(self._folder, split.source, split.position, ROWS_PER_BATCH)
        if not len(records):
            if self._end is None or split.position < self._end[split.source]:
                return None
            del self._splits[place]
            return SplitFinished(split.source)
        sequences = range(split.position, split.position + len(records))
        source = [split.source] * len(records)
        columns = (source, sequences, records["key"].tolist(), records["value"].tolist())
        self._splits[place] = replace(split, position=split.position + len(records))
        batch = RowBatch(list(zip(*columns, strict=True)), records["event_ms"].copy())
        return SplitBatch(batch, split.source)
