"""The two clocks of Penstock, in milliseconds. Machines use the monotonic one; records, timers and
people the wall clock.
"""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    """Since an arbitrary moment of this machine; never set back. For durations, deadlines, and events of machines."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Since 1970, roughly equal on all machines. It may be set back."""
    return time.time_ns() // 1_000_000


def give_way() -> None:
    """Let a thread that waits for the interpreter go first. Long work that is not urgent calls it between its parts."""
    time.sleep(0)
