"""What happened to a machine, in order, bounded. Knows no machine.

Source: Flink's ExecutionHistory and job event log; differs: one list for console, REST and tests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

Line = TypeVar("Line")


class Story(Generic[Line]):
    """The newest `size` lines; older ones are counted and forgotten."""

    def __init__(self, size: int = 1000) -> None:
        self._lines: deque[Line] = deque(maxlen=size)
        self.dropped = 0

    def add(self, line: Line) -> None:
        if len(self._lines) == self._lines.maxlen:
            self.dropped += 1
        self._lines.append(line)

    def last(self, limit: int | None = None) -> list[Line]:
        """The newest `limit` lines, oldest first; all that are kept where None."""
        lines = list(self._lines)
        return lines if limit is None else lines[max(0, len(lines) - limit) :]

    def __iter__(self) -> Iterator[Line]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)
