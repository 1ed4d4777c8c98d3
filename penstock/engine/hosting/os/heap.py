"""What malloc keeps of freed memory. Its arenas creep towards their largest use: 1 to 2 MiB an hour in a driver and in
TaskManagers under full load.
"""

from __future__ import annotations

import contextlib
import ctypes
from time import monotonic
from typing import Final

_EACH_S: Final = 600.0


def trim_heap() -> None:
    """Return to the system what malloc keeps and nobody uses. Threads that allocate wait meanwhile: 1 ms for 4 MiB."""
    with contextlib.suppress(OSError, AttributeError):  # Another C library than glibc.
        ctypes.CDLL(None).malloc_trim(0)


class HeapTrims:
    """Trims the heap every ten minutes, if somebody calls `tick` that often."""

    def __init__(self) -> None:
        self._next_s = monotonic() + _EACH_S

    def tick(self) -> None:
        if monotonic() >= self._next_s:
            trim_heap()
            self._next_s = monotonic() + _EACH_S
