"""Which thread gets which time slice, and that Linux takes it."""

import errno
import os
import platform
import re
import threading
from pathlib import Path

import pytest

from penstock.hosting.taskmanager import thread_times
from penstock.hosting.taskmanager.thread_times import Spans, keep
from penstock.hosting.taskmanager.time_slices import (
    COMPUTES_NS,
    KERNELS_OWN_NS,
    RUNS_BRIEFLY_NS,
    TimeSlices,
    give_slice,
)

PASSED = 1_000_000


def spans(**shares: float) -> Spans:
    ran = {thread: int(share * PASSED) for thread, share in shares.items()}
    return Spans(PASSED, ran, dict.fromkeys(ran, 0))


def slice_of(thread: int) -> int | None:
    """What the kernel says in nanoseconds; None: it has no slices of threads."""
    text = Path(f"/proc/self/task/{thread}/sched").read_text()
    found = re.search(r"^se\.slice\s*:\s*(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def test_a_thread_that_computes_gets_a_long_slice_and_one_that_runs_briefly_a_short_one():
    given = []
    TimeSlices(lambda *what: given.append(what)).look(spans(a=0.9, b=0.01, c=0.3))
    assert given == [("a", COMPUTES_NS), ("b", RUNS_BRIEFLY_NS), ("c", KERNELS_OWN_NS)]


def test_where_no_thread_computes_all_have_the_kernels_own_slice():
    given = []
    slices = TimeSlices(lambda *what: given.append(what))
    own = [("a", KERNELS_OWN_NS), ("b", KERNELS_OWN_NS)]
    slices.look(spans(a=0.4, b=0.01))
    slices.look(spans(a=0.9, b=0.01))
    slices.look(spans(a=0.4, b=0.01))
    slices.look(spans())
    assert given == [*own, ("a", COMPUTES_NS), ("b", RUNS_BRIEFLY_NS), *own]


def test_what_a_thread_has_is_not_given_again():
    given = []
    slices = TimeSlices(lambda *what: given.append(what))
    for share in (0.9, 0.8, 0.01, 0.02, 0.3):
        slices.look(spans(a=share, computes=1.0))
    given = [what for what in given if what[0] == "a"]
    assert given == [("a", COMPUTES_NS), ("a", RUNS_BRIEFLY_NS), ("a", KERNELS_OWN_NS)]


def test_a_thread_with_the_number_of_one_that_has_ended_gets_its_own():
    given = []
    slices = TimeSlices(lambda *what: given.append(what))
    slices.look(spans(a=0.9, b=0.9))
    slices.look(spans(a=0.9))
    slices.look(spans(a=0.9, b=0.9))
    assert given == [("a", COMPUTES_NS), ("b", COMPUTES_NS), ("b", COMPUTES_NS)]


def test_a_system_that_refuses_is_asked_once(monkeypatch):
    asked = []

    def refuse(thread: str, slice_ns: int) -> None:
        asked.append(thread)
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(thread_times, "_TICK_S", 0)
    keep([TimeSlices(refuse)])
    assert len(asked) == 1


def test_linux_takes_a_slice_and_leaves_the_nice_value():
    """A thread's own nice value is what /proc says, also where the process has another one."""
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    thread = other.native_id
    assert thread is not None
    try:
        os.setpriority(os.PRIO_PROCESS, thread, 5)
        own = slice_of(thread)
        give_slice(str(thread), COMPUTES_NS)
        assert os.getpriority(os.PRIO_PROCESS, thread) == 5
        assert os.sched_getscheduler(thread) == os.SCHED_OTHER
        if own is not None and tuple(map(int, platform.release().split(".")[:2])) >= (6, 12):
            assert slice_of(thread) == COMPUTES_NS
            give_slice(str(thread), KERNELS_OWN_NS)
            assert slice_of(thread) == own
    finally:
        stop.set()
        other.join()


def test_a_thread_with_another_policy_keeps_its_own():
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        os.sched_setscheduler(other.native_id, os.SCHED_BATCH, os.sched_param(0))
        give_slice(str(other.native_id), COMPUTES_NS)
        assert os.sched_getscheduler(other.native_id) == os.SCHED_BATCH
        assert slice_of(other.native_id) != COMPUTES_NS
    finally:
        stop.set()
        other.join()


def test_a_thread_that_has_ended_is_left():
    ended = threading.Thread(target=int)
    ended.start()
    ended.join()
    give_slice(str(ended.native_id), COMPUTES_NS)


def test_an_unknown_machine_is_refused(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    with pytest.raises(OSError, match="pdp11"):
        give_slice("1", COMPUTES_NS)
