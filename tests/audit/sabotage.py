"""A function that fails when it is told to: what a correct engine has to get over. Shared by all threads of a MiniCluster."""

import threading


class Sabotage(Exception):
    """On purpose."""


class _Trap:
    def __init__(self) -> None:
        self.armed = 0
        self.lock = threading.Lock()


_TRAP = _Trap()


def arm() -> None:
    """The next record fails its task."""
    with _TRAP.lock:
        _TRAP.armed += 1


def disarm() -> None:
    with _TRAP.lock:
        _TRAP.armed = 0


def trip(record):
    """Passes records on. The tasks get it by its name, so that they look at the trap of this process."""
    trap = _TRAP
    if trap.armed:
        with trap.lock:
            if trap.armed:
                trap.armed -= 1
                raise Sabotage("a task is to fail here")
    return record
