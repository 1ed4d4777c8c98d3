"""Lets threads that were woken run before one that computes.

Since 6.12, Linux has a time slice for each thread. A thread that is woken displaces one with a longer
slice at once. Where the slices are equal, it may have to wait for the kernel's next tick, up to 4 ms,
and so do the records that it was woken for. So threads that compute get a long slice here, and threads
that run briefly a short one. This changes when a thread runs, not how much of the time it gets, nor what
other processes get. Older kernels take the values and do not use them.

Source: Linux, sched(7), sched_setattr(2); no library of Python has the call.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable
from typing import Final

from penstock.hosting.taskmanager.thread_times import Spans

COMPUTES_NS: Final = 10_000_000
RUNS_BRIEFLY_NS: Final = 100_000
"""The least that Linux takes."""
KERNELS_OWN_NS: Final = 0

_COMPUTES: Final = 0.5  # Of one core.
_RUNS_BRIEFLY: Final = 0.1

_CALLS: Final = {"x86_64": 314, "aarch64": 274, "ppc64le": 355, "s390x": 345, "riscv64": 274}
"""Numbers of the call sched_setattr, for processes of 64 bits."""
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
"""struct sched_attr: size, policy, flags, nice, priority, runtime (the slice), deadline, period."""


class TimeSlices:
    """Gives each thread its slice. `give(thread, ns)` raises OSError if the system refuses."""

    def __init__(self, give: Callable[[str, int], None] | None = None) -> None:
        self._give = give or give_slice
        self._given: dict[str, int] = {}

    def look(self, spans: Spans) -> None:
        """Do one tick. Raises OSError: the system refuses."""
        slices = _slices(spans)
        for thread, slice_ns in slices.items():
            # A new thread has the slice of the one that started it.
            if self._given.get(thread) != slice_ns:
                self._give(thread, slice_ns)
        self._given = slices

    def release(self) -> None:
        """Leave the slices: they do no harm."""


def _slices(spans: Spans) -> dict[str, int]:
    """The slice of each thread. Where none computes, all have the kernel's own."""
    shares = {thread: ran / spans.passed for thread, ran in spans.ran.items()}
    if max(shares.values(), default=0) <= _COMPUTES:
        return dict.fromkeys(shares, KERNELS_OWN_NS)
    return {thread: _slice_of(share) for thread, share in shares.items()}


def _slice_of(share: float) -> int:
    if share > _COMPUTES:
        return COMPUTES_NS
    return RUNS_BRIEFLY_NS if share < _RUNS_BRIEFLY else KERNELS_OWN_NS


def give_slice(thread: str, slice_ns: int) -> None:
    """Give a thread a slice, or its kernel's own by 0. Raises OSError: the system refuses."""
    number = _CALLS.get(platform.machine())
    if number is None or sys.maxsize < 1 << 32:
        raise OSError(f"the number of sched_setattr is not known on {platform.machine()}")
    try:
        policy = os.sched_getscheduler(int(thread))
        nice = os.getpriority(os.PRIO_PROCESS, int(thread))
    except ProcessLookupError:
        return  # The thread has ended.
    if policy != os.SCHED_OTHER:
        return  # Somebody chose otherwise.
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, policy, 0, nice, 0, slice_ns, 0, 0)
    call = ctypes.PyDLL(None, use_errno=True).syscall
    if call(ctypes.c_long(number), int(thread), attributes, 0) != 0:
        error = ctypes.get_errno()
        if error != errno.ESRCH:  # The thread has ended.
            raise OSError(error, os.strerror(error))
