"""Finds out where the tasks of a TaskManager are, without the help of its interpreter.

`faulthandler` writes all stacks on a signal, even while a C call holds the GIL. Knows no process.
"""

from __future__ import annotations

import faulthandler
import re
import signal
import sys
from typing import Final

from penstock.engine.model.own_places import is_engine, is_task_thread

DUMP_SIGNAL: Final = getattr(signal, "SIGUSR1", None)
"""None on systems without such signals (Windows)."""
_THREAD: Final = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)


def install() -> None:
    """Write all stacks to the real stderr on the signal. In a TaskManager's process, on the main thread."""
    if DUMP_SIGNAL is not None and sys.__stderr__ is not None:
        faulthandler.register(DUMP_SIGNAL, file=sys.__stderr__, all_threads=True)


def stacks_of_tasks(dump: str) -> str:
    """Reduce a dump to the task threads, innermost call first, down to the frame where Penstock
    called the user's code.
    """
    blocks = _THREAD.split(dump)[1:]
    found = []
    for block in blocks:
        frames = [line for line in block.splitlines() if line.strip().startswith("File ")]
        if not any(map(is_task_thread, frames)):
            continue
        engine = next((at for at, frame in enumerate(frames) if is_engine(frame)), len(frames))
        found.append("\n".join(frames[: max(1, engine)]))
    if not found:
        return ""
    return "its tasks were in (innermost call first):\n" + "\n  and\n".join(found)
