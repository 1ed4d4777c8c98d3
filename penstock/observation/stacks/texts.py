r"""One thread of a dump as a text, in the form of Java's ThreadInfo, which Flink's dashboard shows.

"Map (1/4)#0" Id=1234 RUNNABLE
\tat app.parse(app.py:12)
\t...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class ThreadState(StrEnum):
    """As far as the operating system tells it, in Java's words. Who waits for the interpreter's lock counts as waiting."""

    RUNNABLE = "RUNNABLE"
    WAITING = "WAITING"


@dataclass(frozen=True, slots=True)
class Frame:
    """`function`: module.function."""

    function: str
    file: str
    line: int


def thread_text(
    name: str, thread_id: int, state: ThreadState, frames: Sequence[Frame], most_frames: int
) -> str:
    """Return the text. `frames`: the innermost first; after `most_frames` of them a line has three dots."""
    lines = [f'"{name}" Id={thread_id} {state}']
    lines += [f"\tat {one.function}({one.file}:{one.line})" for one in frames[:most_frames]]
    if len(frames) > most_frames:
        lines.append("\t...")
    return "\n".join(lines) + "\n\n"
