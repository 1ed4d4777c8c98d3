"""Keeps a TaskManager whose threads take turns on one core.

Under the GIL the threads that hand rows to each other never run at the same time. The system spreads them
over the cores all the same, and every object that one made and the next reads travels from cache to cache
(word count: 1.3 microseconds of CPU time a word, 0.95 on one core). So a TaskManager that is busy but never
more than one core's worth is tied to the core where it runs. It is set free again, for a while, as soon as others
keep it waiting there, and now and then to see whether it would take more than one core.

Source: none; Linux only, by /proc. `Policy` decides and knows no clock; `CoreKeeper` measures and acts.
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
_BUSY: Final = 0.5  # of a core: below this nothing is gained
_ONE_CORE: Final = 1.1  # above this the threads do run at the same time
_LOST: Final = 0.15  # of the time: others need the core
_KEPT_TICKS: Final = 120
_LONGEST_BACK_OFF: Final = 256


@dataclass(frozen=True, slots=True)
class Load:
    """Shares of the time since the last look. `busy`: CPU time of all threads, 1.0 is one core. `lost`: some
    thread could have run and none of ours did (a lower bound).
    """

    busy: float
    lost: float


class Policy:
    """Kept or free, from one load a tick. `chance()`: a number in [0, 1)."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._is_kept = False
        self._ticks = 0
        self._back_off = 1

    def is_kept(self, load: Load) -> bool:
        """What shall hold until the next tick."""
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
    """Looks and acts every tick, on a thread of its own."""

    def __init__(self) -> None:
        self._allowed = os.sched_getaffinity(0)
        self._policy = Policy()
        self._is_kept = False
        self._last: dict[str, tuple[int, int]] = {}
        self._looked_ns = time.monotonic_ns()

    def run(self) -> None:
        """For ever, or until /proc does not tell what is needed."""
        while len(self._allowed) > 1:
            time.sleep(_TICK_S)
            try:
                self.look()
            except (OSError, ValueError, IndexError):
                self._place(self._allowed)
                return

    def look(self) -> None:
        """One tick."""
        load, busiest = self._load()
        is_kept = self._policy.is_kept(load)
        core = _core_of(busiest) if is_kept and not self._is_kept else None
        if core is not None:
            self._place({core})
        elif self._is_kept and not is_kept:
            self._place(self._allowed)
        self._is_kept = is_kept and (self._is_kept or core is not None)

    def _load(self) -> tuple[Load, str]:
        """The load, and which thread ran most."""
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
        """New threads inherit it from the one that starts them."""
        for thread in _threads():
            with contextlib.suppress(OSError):  # it has ended
                os.sched_setaffinity(int(thread), cores)


def _threads() -> list[str]:
    return os.listdir("/proc/self/task")


def _times_of(thread: str) -> tuple[int, int] | None:
    """Nanoseconds that it ran and that it waited for a core; None when it has ended."""
    try:
        ran, waited, _ = (
            Path(f"/proc/self/task/{thread}/schedstat").read_text("ascii", "replace").split()
        )
    except FileNotFoundError:
        return None
    return int(ran), int(waited)


def _core_of(thread: str) -> int | None:
    """Where it ran last; None when it has ended: the next tick looks again."""
    try:
        text = Path(f"/proc/self/task/{thread}/stat").read_text("ascii", "replace")
    except FileNotFoundError:
        return None
    return int(text.rpartition(")")[2].split()[36])
