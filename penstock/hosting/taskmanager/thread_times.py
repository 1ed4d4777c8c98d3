"""How the threads of this process share its cores, and what is decided from that every quarter of a second.

Source: none; Linux only, by /proc.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

_TICK_S: Final = 0.25
_REFUSALS: Final = (OSError, ValueError, IndexError)


@dataclass(frozen=True, slots=True)
class Spans:
    """Nanoseconds since the last measurement: how many passed, and by thread how long it `ran`, and
    `waited` for a core. Threads that have ended are missing.
    """

    passed: int
    ran: dict[str, int]
    waited: dict[str, int]


class ThreadTimes:
    """Measures. The first measurement covers the life of the threads."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}
        self._looked_ns = time.monotonic_ns()

    def look(self) -> Spans:
        """Raises: OSError, ValueError, IndexError: /proc lacks the needed values."""
        now_ns = time.monotonic_ns()
        passed = max(1, now_ns - self._looked_ns)
        seen = {thread: times for thread in threads() if (times := _times_of(thread)) is not None}
        ran = {t: seen[t][0] - self._last.get(t, (0, 0))[0] for t in seen}
        waited = {t: seen[t][1] - self._last.get(t, (0, 0))[1] for t in seen}
        self._last, self._looked_ns = seen, now_ns
        return Spans(passed, ran, waited)


class Keeper(Protocol):
    """Changes how threads run."""

    def look(self, spans: Spans) -> None:
        """Do one tick. Raises: OSError, ValueError, IndexError: the system refuses what this needs."""
        ...

    def release(self) -> None:
        """Let all threads run as they did at first."""
        ...


def keep(keepers: Sequence[Keeper]) -> None:
    """Call them every tick, each until the system refuses what it needs. On a thread of its own."""
    times, left = ThreadTimes(), list(keepers)
    while left:
        time.sleep(_TICK_S)
        try:
            spans = times.look()
        except _REFUSALS:
            for keeper in left:
                keeper.release()
            return
        left = [keeper for keeper in left if _goes_on(keeper, spans)]


def _goes_on(keeper: Keeper, spans: Spans) -> bool:
    try:
        keeper.look(spans)
    except _REFUSALS:
        keeper.release()
        return False
    return True


def threads() -> list[str]:
    """Return the ids of all threads of this process."""
    return os.listdir("/proc/self/task")


def _times_of(thread: str) -> tuple[int, int] | None:
    """Return the nanoseconds that a thread ran, and waited for a core; None: it has ended."""
    try:
        ran, waited, _ = (
            Path(f"/proc/self/task/{thread}/schedstat").read_text("ascii", "replace").split()
        )
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(ran), int(waited)
