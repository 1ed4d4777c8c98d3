"""How long threads ran is measured, and who decides by it is called until /proc gives nothing."""

import errno
import threading
import time
from pathlib import Path

from penstock.hosting.taskmanager import thread_times
from penstock.hosting.taskmanager.thread_times import Spans, ThreadTimes, keep, threads


def test_a_thread_that_computes_ran_and_one_that_waits_did_not():
    stop = threading.Event()
    waiting = threading.Thread(target=stop.wait)
    waiting.start()
    try:
        times = ThreadTimes()
        times.look()
        began_ns = time.thread_time_ns()
        while time.thread_time_ns() - began_ns < 20_000_000:
            pass
        spans = times.look()
    finally:
        stop.set()
        waiting.join()
    ran = spans.ran[str(threading.get_native_id())]
    assert ran >= 20_000_000 <= spans.passed
    assert spans.ran[str(waiting.native_id)] < ran
    assert set(spans.ran) == set(spans.waited)


def test_threads_of_this_process_are_found():
    assert str(threading.get_native_id()) in threads()


def test_a_thread_that_has_ended_has_no_times():
    assert thread_times._times_of("0") is None


def test_a_thread_that_ends_while_it_is_read_has_no_times(monkeypatch):
    def ends(*_: object) -> str:
        raise ProcessLookupError(errno.ESRCH, "No such process")

    monkeypatch.setattr(Path, "read_text", ends)
    assert thread_times._times_of("1") is None


def test_all_are_called_each_tick_and_released_when_proc_lacks_the_values(monkeypatch):
    monkeypatch.setattr(thread_times, "_TICK_S", 0)
    known = Spans(passed=1, ran={"1": 1}, waited={"1": 0})
    looks = iter([known, known])

    class Times:
        def look(self) -> Spans:
            try:
                return next(looks)
            except StopIteration:
                raise IndexError("/proc/self/task/1/schedstat is empty") from None

    class Noted:
        def __init__(self) -> None:
            self.calls: list[object] = []

        def look(self, spans: Spans) -> None:
            self.calls.append(spans)

        def release(self) -> None:
            self.calls.append("released")

    monkeypatch.setattr(thread_times, "ThreadTimes", Times)
    keepers = [Noted(), Noted()]
    keep(keepers)
    assert [keeper.calls for keeper in keepers] == [[known, known, "released"]] * 2


def test_one_that_is_refused_is_released_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr(thread_times, "_TICK_S", 0)
    calls: list[str] = []

    class Refused:
        def __init__(self, name: str, last: int) -> None:
            self.name, self.last = name, last

        def look(self, spans: Spans) -> None:
            calls.append(self.name)
            if calls.count(self.name) == self.last:
                raise PermissionError(errno.EPERM, "Operation not permitted")

        def release(self) -> None:
            calls.append(f"{self.name} is released")

    keep([Refused("first", 1), Refused("second", 2)])
    assert calls == ["first", "first is released", "second", "second", "second is released"]


def test_nobody_to_call_is_the_end():
    keep([])
