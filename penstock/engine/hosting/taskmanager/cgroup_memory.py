"""Whether the kernel has killed a process of this one's cgroup for memory, and which limit counts.

Linux only; cgroup v2, and v1 where the memory controller is mounted as such. As `supervisor.py`: imported from the shipped archive
only. Source: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.engine.model.texts.amounts import bytes_text

_UNLIMITED: Final = 1 << 60
"""v1 writes the largest multiple of a page in place of no limit."""


@dataclass(frozen=True, slots=True)
class _Version:
    """File names. `kills` has lines "name number"; the number of `oom_kill` rises with each process that is killed."""

    kills: str
    limit: str


_V1: Final = _Version("memory.oom_control", "memory.limit_in_bytes")
_V2: Final = _Version("memory.events", "memory.max")


class CgroupMemory:
    """`folder` None: there is no cgroup for memory, or it is not mounted."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._version = _V2
        self._folder: Path | None = None
        self._mount = Path("/")
        with contextlib.suppress(OSError):
            self._find()
        self._kills = self._newest = self._count()

    def look(self) -> None:
        """Called in intervals while the process lives, so that `has_killed` is not of another one long ago."""
        self._kills, self._newest = self._newest, self._count()

    def has_killed(self) -> bool:
        """Whether a process of the cgroup was killed for memory since the last look but one."""
        return self._count() > self._kills

    def describe(self) -> str:
        """Return the limit that counts."""
        limits = [(limit, one) for one in self._folders() if (limit := self._limit(one))]
        if not limits:
            machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
            return f"no cgroup limits it, and the machine has {bytes_text(machine)}"
        limit, folder = min(limits)
        return f"its cgroup may have {bytes_text(limit)} ({folder / self._version.limit})"

    def _find(self) -> None:
        groups = [
            line.split(":", 2)
            for line in (self._proc / "self/cgroup").read_text("utf-8").splitlines()
        ]
        v1 = next((path for _, names, path in groups if "memory" in names.split(",")), None)
        path = v1 or next((path for number, _, path in groups if number == "0"), None)
        if path is None:
            return
        self._version = _V2 if v1 is None else _V1
        mounts = (self._proc / "self/mountinfo").read_text("utf-8", errors="replace")
        for line in mounts.splitlines():
            before, _, after = line.partition(" - ")
            root, mount = before.split()[3:5]
            kind, _, options = after.split(" ", 2)  # The source may be empty.
            is_v1 = kind == "cgroup" and "memory" in options.split(",")
            if is_v1 if self._version is _V1 else kind == "cgroup2":
                # A container sees its own cgroup as the mount's root.
                inside = os.path.relpath(path, root)
                self._mount = Path(mount)
                self._folder = self._mount if inside.startswith("..") else self._mount / inside
                return

    def _folders(self) -> list[Path]:
        """Its own and those above it, whose limits hold for it too."""
        if self._folder is None:
            return []
        above = [one for one in self._folder.parents if one.is_relative_to(self._mount)]
        return [self._folder, *above]

    def _count(self) -> int:
        if self._folder is None:
            return 0
        with contextlib.suppress(OSError, ValueError):
            text = (self._folder / self._version.kills).read_text("ascii")
            for name, number in (line.split() for line in text.splitlines()):
                if name == "oom_kill":
                    return int(number)
        return 0

    def _limit(self, folder: Path) -> int | None:
        """None: there is no such file, or no number in it, but "max"."""
        with contextlib.suppress(OSError, ValueError):
            limit = int((folder / self._version.limit).read_text("ascii"))
            return limit if limit < _UNLIMITED else None
        return None
