"""Resident memory of a process, from outside. Linux only."""

import os
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


def most_resident_mib(pid: int) -> float:
    """The most that a process has had since it began its program. Raises: OSError: it does not live."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    (kib,) = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(kib) / 1024


def resident_mib(pid: int) -> float:
    """Of a process that lives. Raises: OSError: it does not."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * PAGE / MIB
