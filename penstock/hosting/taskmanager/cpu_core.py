"""Ties a TaskManager whose threads take turns to one core.

Under the GIL, threads that hand rows to each other never run at the same time. The system still
spreads them over the cores, and every object that one thread made and the next reads is moved from
cache to cache (word count: 1.3 microseconds of CPU time a word, 0.95 on one core). So a TaskManager
that is busy, but never uses more than one core, is tied to the core where it runs. It is released
for a while when other processes keep it waiting there, and now and then to see whether it would use
more than one core.

Source: none; Linux only, by /proc. `Policy` decides and knows no clock; `CoreKeeper` measures and
acts.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICK_S: Final = 0.25
_BUSY: Final = 0.5  # Of one core. Below this, nothing is gained.
_ONE_CORE: Final = 1.1  # Above this, threads do run at the same time.
_LOST: Final = 0.15  # Of the time. Above this, others need the core.
_KEPT_TICKS: Final = 120
_LONGEST_BACK_OFF: Final = 256


@dataclass(frozen=True, slots=True)
class Load:
    """Shares of the time since the last measurement.

    `busy`: CPU time of all threads; 1.0 is one core. `lost`: time in which a thread could have run
    and none of ours did (a lower bound).
    """

    busy: float
    lost: float


class Policy:
    """Decides from one load per tick whether to tie the process. `chance()`: a number in [0, 1)."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._is_kept = False
        self._ticks = 0
        self._back_off = 1

    def is_kept(self, load: Load) -> bool:
        """Whether the process is to be tied until the next tick."""
        self._ticks -= 1
        if self._is_kept:
            if load.lost > _LOST:
                self._set_free(self._back_off + int(self._chance() * self._back_off))
                self._back_off = min(self._back_off * 2, _LONGEST_BACK_OFF)
            elif load.busy < _BUSY / 2:
                self._set_free(0)
            elif self._ticks <= 0:
                self._back_off = 1
                self._set_free(0)
        elif self._ticks <= 0 and _BUSY <= load.busy <= _ONE_CORE:
            self._is_kept, self._ticks = True, _KEPT_TICKS
        return self._is_kept

    def _set_free(self, ticks: int) -> None:
        self._is_kept, self._ticks = False, ticks


class CoreKeeper:
    """Measures and acts every tick, on a thread of its own."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._allowed = os.sched_getaffinity(0)
        self._policy = policy or Policy()
        self._is_kept = False
        self._last: dict[str, tuple[int, int]] = {}
        self._looked_ns = time.monotonic_ns()

    def run(self) -> None:
        """Run for ever, or until /proc lacks the needed values."""
        while len(self._allowed) > 1:
            time.sleep(_TICK_S)
            try:
                self.look()
            except (OSError, ValueError, IndexError):
                self._place(self._allowed)
                return

    def look(self) -> None:
        """Do one tick."""
        load, busiest = self._load()
        is_kept = self._policy.is_kept(load)
        core = _core_of(busiest) if is_kept and not self._is_kept else None
        if core is not None:
            self._place({core})
        elif self._is_kept and not is_kept:
            self._place(self._allowed)
        self._is_kept = is_kept and (self._is_kept or core is not None)

    def _load(self) -> tuple[Load, str]:
        """Return the load, and the thread that ran most."""
        now_ns = time.monotonic_ns()
        passed = max(1, now_ns - self._looked_ns)
        seen = {thread: times for thread in _threads() if (times := _times_of(thread)) is not None}
        ran = {t: seen[t][0] - self._last.get(t, (0, 0))[0] for t in seen}
        waited = {t: seen[t][1] - self._last.get(t, (0, 0))[1] for t in seen}
        self._last, self._looked_ns = seen, now_ns
        busy = sum(ran.values())
        lost = max(waited[t] - (busy - ran[t]) for t in seen)
        return Load(busy / passed, max(0, lost) / passed), max(ran, key=ran.__getitem__)

    def _place(self, cores: set[int]) -> None:
        """Set the cores of all threads. New threads inherit them from the thread that starts them."""
        for thread in _threads():
            with contextlib.suppress(OSError):  # The thread has ended.
                os.sched_setaffinity(int(thread), cores)


def _threads() -> list[str]:
    return os.listdir("/proc/self/task")


def _times_of(thread: str) -> tuple[int, int] | None:
    """Return the nanoseconds that a thread ran, and waited for a core; None: it has ended."""
    try:
        ran, waited, _ = (
            Path(f"/proc/self/task/{thread}/schedstat").read_text("ascii", "replace").split()
        )
    except FileNotFoundError:
        return None
    return int(ran), int(waited)


def _core_of(thread: str) -> int | None:
    """Return the core on which a thread ran last; None: it has ended, and the next tick tries again."""
    try:
        text = Path(f"/proc/self/task/{thread}/stat").read_text("ascii", "replace")
    except FileNotFoundError:
        return None
    return int(text.rpartition(")")[2].split()[36])
