"""The two clocks of Penstock, in milliseconds. Machines use the monotonic one; records, timers and
people the wall clock.
"""

from __future__ import annotations

import time
from typing import Final

_WAKING_S: Final = 0.00005


def monotonic_ms() -> int:
    """Since an arbitrary moment of this machine; never set back. For durations, deadlines, and events of machines."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Since 1970, roughly equal on all machines. It may be set back."""
    return time.time_ns() // 1_000_000


def give_way() -> None:
    """Let a thread that waits for the interpreter go first. Long work that is not urgent calls it between its parts.

    It takes 0.1 ms. Whoever only gives the interpreter back has it again before the other one is awake.
    """
    time.sleep(_WAKING_S)
