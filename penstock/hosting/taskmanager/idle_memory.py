"""Gives memory of an idle TaskManager back to the system.

Three kinds are given back: what Arrow keeps for later batches, what malloc keeps, and pages of libraries
that were touched once, while they were loaded (40 MB of pyarrow and numpy). The last ones stay in the
system's cache of files. Whoever needs one gets it again in a microsecond, without reading the disk.

Source: Linux, madvise(2), proc_pid_smaps(5); no library of Python gives pages of mapped files back.
"""

from __future__ import annotations

import ctypes
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from penstock.hosting.taskmanager.thread_times import Spans

_IDLE: Final = 0.05  # Of one core, all threads together, over all ticks that count.
_WORKED: Final = 0.05  # In one tick: a job of a few records, no heartbeat.
_IDLE_TICKS: Final = 8
_PAUSE_TICKS: Final = 40
"""Ten seconds: so long after one time the next one may come. One takes 25 ms."""

_MADV_DONTNEED: Final = 4
_MAPPING: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+)")
_SIZE: Final = re.compile(r"(Rss|Anonymous):\s+(\d+) kB")


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
        # The tick after the giving back has what that took.
        if ran > _WORKED * spans.passed and self._pause != _PAUSE_TICKS - 1:
            self._is_given = False
        self._recent.append((ran, spans.passed))
        if self._is_given or self._pause > 0 or len(self._recent) < _IDLE_TICKS:
            return
        ran, passed = map(sum, zip(*self._recent, strict=True))
        if ran <= _IDLE * passed:
            self._is_given, self._pause = True, _PAUSE_TICKS
            self._give_back()

    def release(self) -> None:
        """Do nothing: what was given back comes again when it is used."""


def give_back_memory() -> None:
    """Give back what this process keeps and does not need now. Raises OSError: /proc has no smaps."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # glibc has it.
        library.malloc_trim(ctypes.c_size_t(0))
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for start, size in unchanged_mappings(Path("/proc/self/smaps").read_text("ascii", "replace")):
        library.madvise(start, size, _MADV_DONTNEED)


def unchanged_mappings(smaps: str) -> Iterator[tuple[int, int]]:
    """Address and size of each mapping of a file that nobody can write to and nobody has changed.

    A page of the others is in no file, for example what the loader has relocated.
    """
    for start, end, rights, inode, sizes in _mappings(smaps.splitlines()):
        is_unchanged = rights.endswith("p") and "w" not in rights and sizes.get("Anonymous") == 0
        if inode and is_unchanged and sizes.get("Rss", 0):
            yield start, end - start


def _mappings(lines: Iterable[str]) -> Iterator[tuple[int, int, str, int, dict[str, int]]]:
    found: tuple[int, int, str, int, dict[str, int]] | None = None
    for line in lines:
        if mapping := _MAPPING.match(line):
            if found is not None:
                yield found
            start, end, rights, inode = mapping.groups()
            found = (int(start, 16), int(end, 16), rights, int(inode), {})
        elif found is not None and (size := _SIZE.match(line)):
            found[-1][size[1]] = int(size[2])
    if found is not None:
        yield found
