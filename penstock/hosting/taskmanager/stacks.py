"""Where the tasks of a TaskManager are, told without the help of its interpreter.

`faulthandler` writes all stacks on a signal even while a C call holds the GIL. Knows no process.
"""

from __future__ import annotations

import faulthandler
import re
import signal
import sys
from typing import Final

DUMP_SIGNAL: Final = getattr(signal, "SIGUSR1", None)
"""None where there are no such signals (Windows)."""
_THREAD: Final = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_TASK: Final = "task_thread.py"
_ENGINE: Final = "/penstock/runtime/"


def install() -> None:
    """In a TaskManager's process, main thread: dump to the real stderr on the signal."""
    if DUMP_SIGNAL is not None and sys.__stderr__ is not None:
        faulthandler.register(DUMP_SIGNAL, file=sys.__stderr__, all_threads=True)


def stacks_of_tasks(dump: str) -> str:
    """Of a dump, the task threads only, innermost call first, down to where our code called the user's."""
    blocks = _THREAD.split(dump)[1:]
    found = []
    for block in blocks:
        frames = [line for line in block.splitlines() if line.strip().startswith("File ")]
        if not any(_TASK in frame for frame in frames):
            continue
        engine = next((at for at, frame in enumerate(frames) if _ENGINE in frame), len(frames))
        found.append("\n".join(frames[: max(1, engine)]))
    if not found:
        return ""
    return "its tasks were in (innermost call first):\n" + "\n  and\n".join(found)
