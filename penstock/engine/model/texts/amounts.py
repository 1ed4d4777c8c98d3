"""Durations, sizes and counts as people read them. The console, notebooks and verdicts write them alike."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40))
_TIMES: Final = (("min", 60), ("h", 3600), ("d", 86_400))


def duration_text(ms: float) -> str:
    """Return a duration in its usual unit: 340 ms, 1.2 s, 12 min, 5 h, 3 d."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    unit, size = next(one for one in reversed(_TIMES) if seconds >= one[1])
    return f"{seconds / size:,.0f} {unit}"


def bytes_text(count: int) -> str:
    """Return a size in its usual unit: 512 B, 3.4 MiB."""
    fitting = [one for one in _UNITS if count >= one[1]]
    return f"{count / fitting[-1][1]:.1f} {fitting[-1][0]}" if fitting else f"{count} B"


def counted(number: float, what: str) -> str:
    """Return a number with the name of what it counts: 1 slot, 2 slots, 0.5 cores. `what`: the name in the singular."""
    shown = f"{number:g}" if isinstance(number, float) else str(number)
    return f"{shown} {what}{'s' * (number != 1)}"
