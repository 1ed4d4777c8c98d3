"""Wall clocks of a run's Python processes that can be made wrong. `audit/site/sitecustomize.py` is the part inside them.

It changes `time.time` and `time.time_ns`, which the engine asks for the wall clock, in drivers and TaskManagers. It is not the machine's clock:
JVMs, files and libraries that ask the system themselves see no jump.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

VARIABLE: Final = "PENSTOCK_AUDIT_CLOCKS"
FOLDER: Final = "clocks"
SITE: Final = str(Path(__file__).parent / "site")
_SECONDS: Final = struct.Struct("d")


def has_clock(folder: Path, pid: int) -> bool:
    """Whether this process asks us for the time."""
    return (folder / str(pid)).exists()


def jump(folder: Path, pid: int, seconds: float) -> float:
    """Forward, or back if negative. Returns: by how much the clock is wrong now, all jumps together."""
    path = folder / str(pid)
    (before,) = _SECONDS.unpack(path.read_bytes())
    with path.open("r+b") as file:
        file.write(_SECONDS.pack(before + seconds))
    return float(before + seconds)
