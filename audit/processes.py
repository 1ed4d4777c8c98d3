"""The processes of a run, found by a mark in their environment, and what can be done to them from outside.

Nothing here reaches into Penstock but for the name of its processes: signals, limits and file descriptors are the operating system's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Sequence

import psutil

from penstock.hosting.taskmanager.child import PROCESS_NAME

MARK = "PENSTOCK_AUDIT"
_SYS_PIDFD_GETFD = 438
"""Of Linux, on every architecture."""


def of_run(mark: str) -> list[psutil.Process]:
    """All that carry the mark."""
    found = []
    for process in psutil.process_iter():
        # One may end while we look at it.
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


def taskmanagers(mark: str) -> list[psutil.Process]:
    return _called(of_run(mark), PROCESS_NAME)


def executors(mark: str) -> list[psutil.Process]:
    """Spark's executor JVMs."""
    return _called(of_run(mark), "CoarseGrainedExecutorBackend")


def _called(processes: Sequence[psutil.Process], name: str) -> list[psutil.Process]:
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and name in " ".join(process.cmdline()):
                found.append(process)
    return found


def kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def end_all(mark: str) -> int:
    """Kill what is left. Returns: how many."""
    left = of_run(mark)
    for process in left:
        kill(process)
    psutil.wait_procs(left, timeout=10)
    return len(left)


def freeze(process: psutil.Process, seconds: float) -> threading.Timer:
    """Stop it, and let it go on later."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGSTOP)

    def go_on() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)

    timer = threading.Timer(seconds, go_on)
    timer.start()
    return timer


def fail_writes(process: psutil.Process, seconds: float) -> threading.Timer:
    """No file of it can grow for a while: every such write fails, as on a full disk. Linux."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)  # all of a run have inherited ours
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        process.rlimit(resource.RLIMIT_FSIZE, (0, before[1]))

    def restore() -> None:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            process.rlimit(resource.RLIMIT_FSIZE, before)

    timer = threading.Timer(seconds, restore)
    timer.start()
    return timer


def cut_connections(process: psutil.Process, share: float, choose: Sequence[float]) -> int:
    """Shut down some of its connections, to the driver and to its peers, as a broken network does. Linux. Returns: how many.

    `choose`: a number in [0, 1) for each connection, which is cut if that is below `share`; used in turns.
    """
    cut = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        # TaskManagers of one machine talk over Unix sockets, whose state is not told.
        places = sorted(one.fd for one in process.net_connections("all") if one.fd >= 0)
        for place, number in enumerate(places):
            if choose[place % len(choose)] < share and _shut_down(process.pid, number):
                cut += 1
    return cut


def _shut_down(pid: int, number: int) -> bool:
    """The connection behind a descriptor of another process. False: it is none, or it was closed meanwhile."""
    if sys.platform != "linux":
        raise NotImplementedError("connections of other processes can be cut on Linux only")
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(pid)
    try:
        mine = libc.syscall(_SYS_PIDFD_GETFD, handle, number, 0)
    finally:
        os.close(handle)
    if mine < 0:
        return False
    with socket.socket(fileno=mine) as connection, contextlib.suppress(OSError):
        connection.getpeername()  # who listens has no peer
        connection.shutdown(socket.SHUT_RDWR)
        return True
    return False
