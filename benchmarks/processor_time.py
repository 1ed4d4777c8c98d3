"""CPU time of Spark's Python workers below this process, from outside. Linux only."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def worker_seconds() -> float:
    """User and system time of all Python processes below this one: TaskManagers and whatever else runs in workers."""
    found = {pid: fields for pid in _pids() if (fields := _fields(pid))}
    below = {os.getpid()}
    while more := {pid for pid, (_, parent, _) in found.items() if parent in below} - below:
        below |= more
    ticks = [
        used for pid, (name, _, used) in found.items() if pid in below and name.startswith("python")
    ]
    return (sum(ticks) - found[os.getpid()][2]) / _TICKS


def _pids() -> list[int]:
    return [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()]


def _fields(pid: int) -> tuple[str, int, int] | None:
    """Name, parent, and ticks. None: the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    return name, int(rest[1]), int(rest[11]) + int(rest[12])
