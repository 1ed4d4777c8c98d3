"""FetcherThread: orders, bounded hand-over, errors, close. Real threads, no sleeping."""

import threading

import pytest

from penstock.engine.hosting.program.settings import HOST_DEFAULTS
from penstock.engine.hosting.taskmanager.task import source_input
from penstock.engine.hosting.taskmanager.task.source_input import CAPACITY, FetcherThread
from penstock.engine.runtime.sources.contract import Fetched, SplitReader

WAIT_S = 30


class Numbers(SplitReader):
    """Each fetch gives the next number; a split ends with `last`."""

    def __init__(self, last):
        self.last = last
        self.given = 0
        self.splits = []
        self.calls = []
        self.closed_on = None

    def add_splits(self, splits):
        self.splits += splits

    def pause_or_resume_splits(self, to_pause, to_resume):
        self.calls.append((to_pause, to_resume))

    def fetch(self):
        self.given += 1
        if self.last == "error":
            raise OSError("broken")
        return Fetched([self.given], ["s"] if self.given == self.last else [])

    def close(self):
        self.closed_on = threading.get_ident()


class Fetching:
    def __init__(self, reader):
        self.reader = reader
        self.woken = threading.Semaphore(0)
        self.fetcher = FetcherThread(reader, self.woken.release, "fetcher")

    def next(self):
        assert self.woken.acquire(timeout=WAIT_S)
        return self.fetcher.poll()


def test_results_come_in_order_and_at_most_two_are_fetched_ahead():
    fetching = Fetching(Numbers(last=5))
    assert fetching.fetcher.poll() is None
    fetching.fetcher.add_splits(["s"])
    for _ in range(CAPACITY):
        assert fetching.woken.acquire(timeout=WAIT_S)
    assert fetching.reader.given == CAPACITY
    fetching.woken.release(CAPACITY)
    results = [fetching.next() for _ in range(5)]
    assert [result.batches for result in results] == [[1], [2], [3], [4], [5]]
    assert [result.finished for result in results][-1] == ["s"]
    assert fetching.fetcher.poll() is None
    fetching.fetcher.close()
    assert fetching.reader.closed_on not in {None, threading.get_ident()}


def test_an_error_comes_up_in_poll():
    fetching = Fetching(Numbers(last="error"))
    fetching.fetcher.add_splits(["s"])
    with pytest.raises(OSError, match="broken"):
        fetching.next()
    fetching.fetcher.close()


def test_an_error_comes_up_in_poll_although_the_reader_does_not_close():
    class Hanging(Numbers):
        def __init__(self):
            super().__init__(last="error")
            self.freed = threading.Event()

        def close(self):
            assert self.freed.wait(WAIT_S)
            super().close()

    fetching = Fetching(Hanging())
    fetching.fetcher.add_splits(["s"])
    with pytest.raises(OSError, match="broken"):
        fetching.next()
    fetching.reader.freed.set()
    fetching.fetcher.close()


def test_orders_reach_the_reader_also_while_the_hand_over_is_full():
    fetching = Fetching(Numbers(last=100))
    fetching.fetcher.add_splits(["s"])
    for _ in range(CAPACITY):
        assert fetching.woken.acquire(timeout=WAIT_S)
    fetching.fetcher.pause_or_resume_splits(["s"], [])
    fetching.fetcher.close()
    assert fetching.reader.splits == ["s"]


def test_a_fetch_that_does_not_wake_up_is_left_behind_and_closes_its_reader_later(monkeypatch):
    class Blocking(Numbers):
        def __init__(self):
            super().__init__(last=1)
            self.begun, self.may_return, self.closed = (threading.Event() for _ in range(3))

        def fetch(self):
            self.begun.set()
            self.may_return.wait(WAIT_S)
            return super().fetch()

        def close(self):
            self.closed.set()

    monkeypatch.setattr(source_input, "CLOSE_TIMEOUT_S", 0.01)
    fetching = Fetching(Blocking())
    fetching.fetcher.add_splits(["s"])
    assert fetching.reader.begun.wait(WAIT_S)
    fetching.fetcher.close()
    assert not fetching.reader.closed.is_set()
    fetching.reader.may_return.set()
    assert fetching.reader.closed.wait(WAIT_S)


def test_closing_ends_before_a_cancelled_task_counts_as_stuck():
    seconds = float(str(HOST_DEFAULTS["task.cancellation.timeout"]).removesuffix(" s"))
    assert seconds > source_input.CLOSE_TIMEOUT_S


def test_an_order_is_carried_out_on_the_thread_also_without_a_split():
    fetching = Fetching(Numbers(last=5))
    done, seen = threading.Event(), []

    def order():
        seen.append(threading.get_ident())
        done.set()

    fetching.fetcher.run(order)
    assert done.wait(WAIT_S)
    assert seen[0] != threading.get_ident()
    fetching.fetcher.close()
    assert fetching.reader.closed_on == seen[0]
