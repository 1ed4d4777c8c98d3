"""A function that fails when it is told to: what a correct engine has to get over. Shared by all threads of a MiniCluster."""

import threading


class Sabotage(Exception):
    """On purpose."""


class _Trap:
    def __init__(self) -> None:
        self.armed = 0
        self.lock = threading.Lock()
        self.numbers: set[int] = set()


_TRAP = _Trap()


def arm() -> None:
    """The next record fails its task."""
    with _TRAP.lock:
        _TRAP.armed += 1


def arm_once(number: int) -> None:
    """As `arm`, but once for each number."""
    with _TRAP.lock:
        if number not in _TRAP.numbers:
            _TRAP.numbers.add(number)
            _TRAP.armed += 1


def disarm() -> None:
    with _TRAP.lock:
        _TRAP.armed = 0
        _TRAP.numbers.clear()


def trip(record):
    """Passes records on. The tasks get it by its name, so that they look at the trap of this process."""
    trap = _TRAP
    if trap.armed:
        with trap.lock:
            if trap.armed:
                trap.armed -= 1
                raise Sabotage("a task is to fail here")
    return record
