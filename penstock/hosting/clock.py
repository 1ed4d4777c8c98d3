"""The two clocks of the house, in milliseconds. Machines are told the monotonic one; records, timers and people the wall clock."""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    """Since some moment of this machine's; never set back. For durations, deadlines, and events of machines."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Since 1970, as other machines roughly have it too. Somebody may set it back."""
    return time.time_ns() // 1_000_000
