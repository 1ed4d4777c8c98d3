"""Waking a thread: no wake is lost, and held ones come once, at the end."""

import threading

import pytest

from penstock.engine.hosting.os.interrupts import Waker, held_wakes

HANG_S = 20


def is_awake(waker):
    """Takes the wake, if there is one."""
    return waker._lock.acquire(blocking=False)


def test_a_wake_before_the_wait_is_not_lost_and_two_are_one():
    waker = Waker()
    waker.wake()
    waker.wake()
    waker.wait(None)
    assert not is_awake(waker)


def test_held_wakes_come_once_at_the_end_also_after_an_error():
    one, other = Waker(), Waker()
    with pytest.raises(ValueError, match="broken"), held_wakes():
        one.wake()
        one.wake()
        other.wake()
        assert not is_awake(one)
        raise ValueError("broken")
    assert is_awake(one)
    assert is_awake(other)
    one.wake()
    assert is_awake(one)


def test_only_the_thread_that_holds_wakes_holds_them():
    waker, woken = Waker(), threading.Event()

    def waits():
        waker.wait(HANG_S)
        woken.set()

    thread = threading.Thread(target=waits)
    thread.start()
    with held_wakes():
        another = threading.Thread(target=waker.wake)
        another.start()
        assert woken.wait(HANG_S)
        another.join()
    thread.join()
