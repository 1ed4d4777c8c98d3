"""SourceReaderBase: hand-over, positions, the end. Expectations:
docs/spec/sources-and-sinks.md#sources.
"""

import pytest

from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.sources.contract import (
    Fetched,
    ReaderStatus,
    SplitBatch,
    SplitFinished,
    SplitReader,
)
from penstock.engine.runtime.sources.reader_base import SourceReaderBase
from tests.tools.connectors.played_by_hand import FakeReaderContext

NOTHING, END = ReaderStatus.NOTHING_AVAILABLE, ReaderStatus.END_OF_INPUT


class FakeFetcher:
    def __init__(self) -> None:
        self.results, self.splits, self.paused = [], [], []
        self.is_closed = False

    def add_splits(self, splits):
        self.splits += splits

    def pause_or_resume_splits(self, to_pause, to_resume):
        self.paused.append((to_pause, to_resume))

    def poll(self):
        result = self.results.pop(0) if self.results else None
        if isinstance(result, Exception):
            raise result
        return result

    def close(self):
        self.is_closed = True


class Context(FakeReaderContext):
    def __init__(self) -> None:
        super().__init__()
        self.fetcher = FakeFetcher()

    def start_fetcher(self, split_reader):
        return self.fetcher


class Reader(SourceReaderBase):
    """A split: (id, position)."""

    def create_split_reader(self):
        return None

    def split_id(self, split):
        return split[0]

    def advanced(self, split, batch):
        return split[0], split[1] + len(batch)


def started(*results):
    context = Context()
    reader = Reader(context)
    reader.start()
    reader.add_splits([("a", 0), ("b", 0)])
    context.fetcher.results += results
    return reader, context


def rows(split, count):
    return SplitBatch(RowBatch(list(range(count))), split)


def test_batches_come_one_by_one_and_a_finished_split_behind_its_records():
    reader, context = started(Fetched([rows("a", 2), rows("b", 3)], ["a"]))
    polled = [reader.poll_next() for _ in range(4)]
    assert [p.split_id for p in polled[:3]] == ["a", "b", "a"]
    assert polled[2:] == [SplitFinished("a"), NOTHING]
    assert context.fetcher.splits == [("a", 0), ("b", 0)]


def test_the_end_needs_the_notice_and_no_open_split_and_an_empty_queue():
    reader, context = started(Fetched([], ["a"]), Fetched([rows("b", 1)], ["b"]))
    reader.notify_no_more_splits()
    polled = [reader.poll_next() for _ in range(5)]
    assert [p if p is END else type(p) for p in polled] == [
        SplitFinished, SplitBatch, SplitFinished, END, END,
    ]  # fmt: skip
    idle = Reader(Context())
    assert idle.poll_next() is NOTHING
    idle.notify_no_more_splits()
    assert idle.poll_next() is END


def test_the_next_split_is_asked_for_when_none_is_open():
    reader, context = started(Fetched([], ["a"]), Fetched([], ["b"]))
    assert context.requests == 1
    reader.poll_next()
    assert context.requests == 1
    reader.poll_next()
    assert context.requests == 2


def test_a_snapshot_has_the_positions_behind_what_was_given_out():
    reader, _ = started(Fetched([rows("a", 2), rows("b", 3)]), Fetched([rows("a", 5)]))
    reader.poll_next()
    assert list(reader.snapshot_state()) == [("a", 2), ("b", 0)]
    reader.poll_next()
    reader.poll_next()
    assert list(reader.snapshot_state()) == [("a", 7), ("b", 3)]


def test_an_error_of_the_fetcher_comes_up_in_poll_and_pausing_goes_down():
    reader, context = started(OSError("gone"))
    reader.pause_or_resume_splits(["a"], [])
    assert context.fetcher.paused == [(["a"], [])]
    with pytest.raises(OSError, match="gone"):
        reader.poll_next()
    reader.close()
    assert context.fetcher.is_closed


def test_a_split_reader_that_cannot_pause_is_told_to_the_caller_and_not_to_its_thread():
    class Unpausable(SplitReader):
        def fetch(self):
            return Fetched()

        def add_splits(self, splits):
            return

    class OfUnpausable(Reader):
        def create_split_reader(self):
            return Unpausable()

    context = Context()
    reader = OfUnpausable(context)
    reader.add_splits([("a", 0)])
    with pytest.raises(NotImplementedError, match="allow-unaligned-source-splits"):
        reader.pause_or_resume_splits(["a"], [])
    assert context.fetcher.paused == []
