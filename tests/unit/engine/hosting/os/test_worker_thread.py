"""WorkerThreads: order, bounds, errors, ends."""

import threading

import pytest

from penstock.engine.hosting.os.worker_thread import WorkerThreads

HANG_S = 30


class Gate:
    """A call that stands still until it is opened."""

    def __init__(self) -> None:
        self.begun, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.opened.wait(HANG_S)

    def wait(self) -> None:
        assert self.begun.wait(HANG_S)


def test_calls_are_made_in_order_on_one_thread_that_starts_with_the_first():
    before = set(threading.enumerate())
    worker, seen = WorkerThreads("tests-order"), []
    assert set(threading.enumerate()) == before
    for number in range(100):
        worker.put(lambda number=number: seen.append((number, threading.current_thread().name)))
    worker.close(HANG_S)
    assert seen == [(number, "tests-order") for number in range(100)]


def test_several_threads_start_as_they_are_needed_and_no_more():
    workers, gates = WorkerThreads("tests-many", 2), [Gate(), Gate(), Gate()]
    names = set()
    for gate in gates:
        workers.put(lambda gate=gate: (names.add(threading.current_thread().name), gate()))
    gates[0].wait()
    gates[1].wait()
    assert not gates[2].begun.is_set()
    for gate in gates:
        gate.opened.set()
    workers.close(HANG_S)
    assert names == {"tests-many-0", "tests-many-1"}


def test_what_does_not_fit_is_refused_unless_it_is_the_last_word():
    worker, gate, seen = WorkerThreads("tests-full", capacity=2), Gate(), []
    assert worker.put(gate)
    assert worker.put(lambda: seen.append("fits"))
    assert not worker.put(lambda: seen.append("does not"))
    assert worker.put(lambda: seen.append("last"), overdraws=True)
    gate.opened.set()
    worker.close(HANG_S)
    assert seen == ["fits", "last"]
    assert not worker.put(lambda: seen.append("too late"), overdraws=True)


def test_an_error_goes_where_it_should_and_the_thread_goes_on():
    errors, seen = [], []
    worker = WorkerThreads("tests-error", on_error=errors.append)
    worker.put(lambda: 1 // 0)
    worker.put(lambda: seen.append("next"))
    worker.close(HANG_S)
    assert [type(error) for error in errors] == [ZeroDivisionError]
    assert seen == ["next"]


def test_an_error_that_nobody_takes_is_logged_with_the_thread(caplog):
    worker = WorkerThreads("tests-logged")
    worker.put(lambda: 1 // 0)
    worker.close(HANG_S)
    (record,) = caplog.records
    assert record.getMessage().startswith("worker=tests-logged cause=ZeroDivisionError")
    assert record.exc_info[0] is ZeroDivisionError


def test_what_waits_is_dropped_where_the_end_does_not_wait_for_it():
    worker, gate, seen = WorkerThreads("tests-drop"), Gate(), []
    worker.put(gate)
    worker.put(lambda: seen.append("dropped"))
    gate.wait()
    worker.close(0, drops=True)
    gate.opened.set()
    worker.close(HANG_S)
    assert seen == []


def test_a_call_may_end_its_own_thread():
    worker, ended = WorkerThreads("tests-own"), threading.Event()
    worker.put(lambda: (worker.close(), ended.set()))
    assert ended.wait(HANG_S)


@pytest.mark.parametrize("interval_s", [0.001, 3600])
def test_ticks_come_from_the_start_on_and_calls_between_them(interval_s):
    ticked, called = threading.Event(), threading.Event()
    worker = WorkerThreads("tests-tick", tick=(interval_s, ticked.set))
    worker.start()
    assert ticked.wait(HANG_S)
    worker.put(called.set)
    assert called.wait(HANG_S)
    worker.close(HANG_S)


def test_a_tick_that_fails_is_made_again():
    errors, twice = [], threading.Event()

    def on_error(error: Exception) -> None:
        errors.append(error)
        if len(errors) == 2:
            twice.set()

    worker = WorkerThreads("tests-ticks", on_error=on_error, tick=(0.001, lambda: 1 // 0))
    worker.start()
    assert twice.wait(HANG_S)
    worker.close(HANG_S)
