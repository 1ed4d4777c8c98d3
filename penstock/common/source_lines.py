"""Lines of source in tracebacks that come as text from TaskManagers. Knows nothing of jobs.

A TaskManager shows them only for files that its machine has. Cells of a notebook, and a program that was shipped, are
only with the driver, whose `linecache` knows both.
"""

from __future__ import annotations

import linecache
import re
from typing import Final

_FRAME: Final = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+)(, in .*)?')
_SOURCE: Final = "    "


def with_source_lines(text: str) -> str:
    """Add the line of source below each frame that has none, if this process can find it."""
    lines = text.split("\n")
    told: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        told.append(line)
        frame = _FRAME.fullmatch(line)
        if frame is not None and not following.startswith(_SOURCE):
            source = linecache.getline(frame["file"], int(frame["line"])).strip()
            told += [f"{_SOURCE}{source}"] if source else []
    return "\n".join(told)
