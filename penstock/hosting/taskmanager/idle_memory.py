"""Gives memory back to the system where a TaskManager is idle: what malloc keeps, and pages of libraries.

Most of those pages were touched once, while they were loaded (40 MB of pyarrow and numpy). They stay in the
system's cache of files. Whoever needs one gets it again in a microsecond, without reading the disk. Much
memory that a job has left is given back when it ends: `process_state.SpareMemory`.

Source: Linux, madvise(2), proc_pid_smaps(5); no library of Python gives pages of mapped files back.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from penstock.hosting.taskmanager.process_state import trim_heap
from penstock.hosting.taskmanager.thread_times import Spans

_IDLE: Final = 0.05  # Of one core, all threads together, over all ticks that count.
_WORKED: Final = 0.05  # In one tick: a job of a few records, no heartbeat.
_IDLE_TICKS: Final = 8
_PAUSE_TICKS: Final = 40
"""Ten seconds: so long after one time the next one may come. One takes 25 ms."""

_MADV_DONTNEED: Final = 4
_UNCHANGED_LIBRARY: Final = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) r-.p \S+ \S+ \d+ +/.*\.so[.\d]*\n"
    r"(?:[A-Z].*\n)*?Rss: +[1-9].*\n(?:[A-Z].*\n)*?Anonymous: +0 kB$",
    re.MULTILINE,
)
"""A mapping and what is known of it, in lines that begin with a capital letter."""


class IdleMemory:
    """Gives memory back when next to nothing has run for two seconds, once for each time of rest."""

    def __init__(
        self,
        give_back: Callable[[], None] | None = None,
        cpu_ns: Callable[[], int] = time.process_time_ns,
    ) -> None:
        """`cpu_ns`: CPU time of the process, also of threads that have ended since."""
        self._give_back = give_back or give_back_memory
        self._cpu_ns = cpu_ns
        self._cpu_before_ns = cpu_ns()
        self._recent: deque[tuple[int, int]] = deque(maxlen=_IDLE_TICKS)
        self._is_given = False
        self._pause = 0

    def look(self, spans: Spans) -> None:
        """Do one tick."""
        self._pause -= 1
        cpu_ns = self._cpu_ns()
        ran, self._cpu_before_ns = cpu_ns - self._cpu_before_ns, cpu_ns
        if ran > _WORKED * spans.passed:
            self._is_given = False
        self._recent.append((ran, spans.passed))
        if self._is_given or self._pause > 0 or len(self._recent) < _IDLE_TICKS:
            return
        ran, passed = map(sum, zip(*self._recent, strict=True))
        if ran <= _IDLE * passed:
            self._is_given, self._pause = True, _PAUSE_TICKS
            self._give_back()
            self._cpu_before_ns = self._cpu_ns()  # What that took is no work.

    def release(self) -> None:
        """Do nothing: what was given back comes again when it is used."""


def give_back_memory() -> None:
    """Give back what malloc keeps, and pages of libraries that are in their files. Raises OSError: /proc has no smaps."""
    trim_heap()
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for start, size in unchanged_libraries(Path("/proc/self/smaps").read_text("ascii", "replace")):
        madvise(start, size, _MADV_DONTNEED)


def unchanged_libraries(smaps: str) -> Iterator[tuple[int, int]]:
    """Address and size of each mapping of a library that nobody can write to and nobody has changed.

    A page of the others is in no file, for example what the loader has relocated. Other files are left
    because user code may unmap one at any moment, and then something else may lie at its address. Python
    does not unload its libraries.
    """
    for start, end in _UNCHANGED_LIBRARY.findall(smaps):
        yield int(start, 16), int(end, 16) - int(start, 16)
