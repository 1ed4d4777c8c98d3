"""Ties a TaskManager whose threads take turns to one core.

Under the GIL, threads that hand rows to each other never run at the same time. The system still
spreads them over the cores, and every object that one thread made and the next reads is moved from
cache to cache (word count: 1.3 microseconds of CPU time a word, 0.95 on one core). So a TaskManager
that is busy, but never uses more than one core, is tied to the core where it runs. It is released
for a while when other processes keep it waiting there, and now and then to see whether it would use
more than one core.

Source: none; Linux only, by /proc. `Policy` decides, `CoreKeeper` acts. Neither knows a clock.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.hosting.taskmanager.thread_times import Spans, threads

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
    """Ties all threads of this process to a core, and releases them."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._allowed = os.sched_getaffinity(0)
        self._policy = policy or Policy()
        self._is_kept = False

    def look(self, spans: Spans) -> None:
        """Do one tick."""
        if len(self._allowed) == 1:
            return
        is_kept = self._policy.is_kept(_load(spans))
        busiest = max(spans.ran, key=spans.ran.__getitem__)
        core = _core_of(busiest) if is_kept and not self._is_kept else None
        if core is not None:
            _place({core})
        elif self._is_kept and not is_kept:
            _place(self._allowed)
        self._is_kept = is_kept and (self._is_kept or core is not None)

    def release(self) -> None:
        """Let all threads run where they might at first."""
        _place(self._allowed)


def _load(spans: Spans) -> Load:
    busy = sum(spans.ran.values())
    lost = max(spans.waited[t] - (busy - spans.ran[t]) for t in spans.ran)
    return Load(busy / spans.passed, max(0, lost) / spans.passed)


def _place(cores: set[int]) -> None:
    """Set the cores of all threads. New threads inherit them from the thread that starts them."""
    for thread in threads():
        with contextlib.suppress(OSError):  # The thread has ended.
            os.sched_setaffinity(int(thread), cores)


def _core_of(thread: str) -> int | None:
    """Return the core on which a thread ran last; None: it has ended, and the next tick tries again."""
    try:
        text = Path(f"/proc/self/task/{thread}/stat").read_text("ascii", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text.rpartition(")")[2].split()[36])
