"""Which functions of Penstock a task calls in a turn of its mailbox loop: the trip of a record through the code."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import groupby
from types import FrameType

_TURN = ("/engine/hosting/taskmanager/task/thread.py", "_process_input")
_OURS = "/penstock/"


@dataclass
class Turn:
    """`files`: that of each call, in order."""

    files: list[str] = field(default_factory=list)

    @property
    def stays(self) -> int:
        """How often it comes to another file."""
        return sum(1 for _ in groupby(self.files))


@contextlib.contextmanager
def traced_turns() -> Generator[dict[str, list[Turn]]]:
    """Yield the turns of the threads that start meanwhile, by the thread's name. The first and the last one are not whole."""
    turns: dict[str, list[Turn]] = defaultdict(list)

    def note(frame: FrameType, event: str, _argument: object) -> None:
        file = frame.f_code.co_filename
        if event != "call" or _OURS not in file:
            return
        of_thread = turns[threading.current_thread().name]
        if not of_thread or (file.endswith(_TURN[0]) and frame.f_code.co_name == _TURN[1]):
            of_thread.append(Turn())
        of_thread[-1].files.append(file)

    former = threading.getprofile()
    threading.setprofile(note)
    try:
        yield turns
    finally:
        threading.setprofile(former)
