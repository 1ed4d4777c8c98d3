"""The frames of all threads of this process. Knows no thread."""

from __future__ import annotations

import gc
import operator
import sys
from types import FrameType
from typing import cast


def thread_frames() -> dict[int, FrameType]:
    """Return the innermost frame of each thread, by its ident. Any thread may call it.

    No garbage is collected meanwhile. Before 3.11.9, Python holds its lock of all threads here. A finalizer that begins a thread
    waits for that lock for ever, and so does any thread that has the turn meanwhile and begins or ends another one; the process
    stands still with it. Source: CPython, gh-106883.
    """
    # One call in C: no other thread has the turn between its steps, which might turn the collector on again.
    steps = (gc.isenabled, gc.disable, sys._current_frames)
    was_enabled, _, frames = map(operator.call, steps)
    if was_enabled:
        gc.enable()
    return cast("dict[int, FrameType]", frames)
