"""When a TaskManager stays on one cpu_core, and that it can be put there."""

import os
import threading
from types import SimpleNamespace

import pytest

from penstock.hosting.taskmanager import cpu_core
from penstock.hosting.taskmanager.cpu_core import CoreKeeper, Load, Policy
from penstock.hosting.taskmanager.thread_times import ThreadTimes

BUSY = Load(busy=0.95, lost=0.02)
CROWDED = Load(busy=0.5, lost=0.5)
PARALLEL = Load(busy=1.8, lost=0.0)
QUIET = Load(busy=0.1, lost=0.0)


def policy() -> Policy:
    return Policy(lambda: 0.0)


def test_busy_threads_that_take_turns_are_kept():
    assert policy().is_kept(BUSY)


@pytest.mark.parametrize("load", [QUIET, PARALLEL])
def test_little_work_and_parallel_work_are_left_free(load):
    assert not policy().is_kept(load)


def test_a_crowded_core_is_left_for_longer_each_time():
    decided = policy()
    free = []
    for _ in range(3):
        assert decided.is_kept(BUSY)
        assert not decided.is_kept(CROWDED)
        ticks = 0
        while not decided.is_kept(BUSY):
            ticks += 1
        assert decided.is_kept(BUSY)
        assert not decided.is_kept(CROWDED)
        free.append(ticks)
        while not decided.is_kept(BUSY):
            pass
    assert free == sorted(free)
    assert free[0] < free[-1]


def test_a_pause_sets_free_at_once_and_costs_nothing():
    decided = policy()
    assert decided.is_kept(BUSY)
    assert not decided.is_kept(QUIET)
    assert decided.is_kept(BUSY)


def test_now_and_then_it_is_free_to_show_that_it_would_use_more():
    decided = policy()
    kept = 0
    while decided.is_kept(BUSY):
        kept += 1
    assert kept > 10
    assert not decided.is_kept(PARALLEL)
    assert not decided.is_kept(PARALLEL)


def test_all_threads_are_placed_and_freed():
    allowed = os.sched_getaffinity(0)
    decisions = iter([True, True, False])
    keeper = CoreKeeper(SimpleNamespace(is_kept=lambda load: next(decisions)))
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        keeper.look(ThreadTimes().look())
        (core,) = os.sched_getaffinity(other.native_id)
        assert os.sched_getaffinity(0) == {core}
        keeper.look(ThreadTimes().look())
        assert os.sched_getaffinity(0) == {core}
        keeper.look(ThreadTimes().look())
        assert os.sched_getaffinity(other.native_id) == allowed == os.sched_getaffinity(0)
    finally:
        stop.set()
        other.join()
        os.sched_setaffinity(0, allowed)


def test_a_thread_that_ends_while_it_is_looked_at_is_looked_at_again(monkeypatch):
    allowed = os.sched_getaffinity(0)
    keeper = CoreKeeper(SimpleNamespace(is_kept=lambda load: True))
    places = iter([None, min(allowed)])
    monkeypatch.setattr(cpu_core, "_core_of", lambda thread: next(places))
    try:
        keeper.look(ThreadTimes().look())
        assert os.sched_getaffinity(0) == allowed
        keeper.look(ThreadTimes().look())
        assert os.sched_getaffinity(0) == {min(allowed)}
    finally:
        for thread in threading.enumerate():
            os.sched_setaffinity(thread.native_id, allowed)


def test_a_thread_that_has_ended_is_on_no_core():
    assert cpu_core._core_of("0") is None
