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

from penstock.engine.hosting.taskmanager.child import PROCESS_NAME

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


def supervisors(mark: str) -> list[psutil.Process]:
    """Of TaskManagers: Spark's Python workers that started them."""
    found = []
    for one in taskmanagers(mark):
        with contextlib.suppress(psutil.Error):
            parent = one.parent()
            if parent is not None and parent not in found:
                found.append(parent)
    return found


def drivers(mark: str) -> list[psutil.Process]:
    """The Python processes, without their JVMs."""
    return _called(of_run(mark), "audit.driver")


def driver_jvms(mark: str) -> list[psutil.Process]:
    """Of Spark, each the child of a driver."""
    found = []
    for driver in drivers(mark):
        with contextlib.suppress(psutil.Error):
            found += [one for one in driver.children() if one.name() == "java"]
    return found


def _called(processes: Sequence[psutil.Process], name: str) -> list[psutil.Process]:
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and name in " ".join(process.cmdline()):
                found.append(process)
    return found


def is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


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


def starve_of_descriptors(process: psutil.Process, seconds: float) -> threading.Timer | None:
    """It can open nothing more for a while: no file, no connection; whatever it has open stays. Linux. None: it has ended."""
    try:
        open_ones = {int(name) for name in os.listdir(f"/proc/{process.pid}/fd")}
        before = process.rlimit(resource.RLIMIT_NOFILE)
        # The limit is on the number, and the next one that is opened gets the first that is free.
        first_free = next(number for number in range(len(open_ones) + 1) if number not in open_ones)
        process.rlimit(resource.RLIMIT_NOFILE, (first_free, before[1]))
    except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
        return None

    def restore() -> None:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            process.rlimit(resource.RLIMIT_NOFILE, before)

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
    with contextlib.suppress(OSError), socket_of(pid, number) as connection:
        connection.getpeername()  # who listens has no peer
        connection.shutdown(socket.SHUT_RDWR)
        return True
    return False


def socket_of(pid: int, number: int) -> socket.socket:
    """The socket behind a descriptor of another process, as a descriptor of ours. Both share how it is set, so it must not
    be told to block or not to. Linux. Raises: OSError: it is no more, or not ours to take.
    """
    if sys.platform != "linux":
        raise NotImplementedError("sockets of other processes can be reached on Linux only")
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(pid)
    try:
        mine = libc.syscall(_SYS_PIDFD_GETFD, handle, number, 0)
    finally:
        os.close(handle)
    if mine < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return socket.socket(fileno=mine)
