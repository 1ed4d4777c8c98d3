"""Holds off Python's garbage collector while very many objects are made that all stay."""

from __future__ import annotations

import gc
import threading


class HeldOff:
    """A context, for any thread; several may overlap.

    The collector would examine all of the objects again and again, which takes nearly half of the
    time of a restore.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._was_enabled = True

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            enables = not self._inside and self._was_enabled
        # Garbage may be collected at once. Its finalizers are the user's, and must not run while the lock is held.
        if enables:
            gc.enable()


COLLECTOR_HELD_OFF = HeldOff()
"""One for all threads, because a process has one collector."""
