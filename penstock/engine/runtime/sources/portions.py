"""How many records a source hands out at once: about as many as its task processes between two watermarks.

A watermark can go out only between two polls. If slow functions follow, a batch of some thousand records would hold it back for as
long as they need for the whole batch. Source: none in Flink, whose readers give one record after the other, so that a watermark that
is due always comes between two records.
"""

from __future__ import annotations

from typing import Final

FIRST_PORTION: Final = 16
"""Nobody knows yet how long a record takes."""
_GROWTH: Final = 8
"""The most by which a portion is larger than the one before."""


class Portions:
    """Of one source subtask. `rows`: how many records to hand out at most."""

    __slots__ = ("_handed", "_handed_at_ms", "_interval_ms", "rows")

    def __init__(self, interval_ms: int) -> None:
        """`interval_ms`: between two watermarks."""
        self._interval_ms = interval_ms
        self._handed = 0
        self._handed_at_ms = 0
        self.rows = FIRST_PORTION

    def asked(self, now_ms: int) -> None:
        """The source is asked for more: what it has handed out last was processed."""
        handed, self._handed = self._handed, 0
        if not handed:
            return
        elapsed_ms = max(1, now_ms - self._handed_at_ms)
        fitting = max(1, handed * self._interval_ms // elapsed_ms)
        if fitting < self.rows or handed >= self.rows:
            self.rows = min(fitting, self.rows * _GROWTH)

    def handed_out(self, rows: int, now_ms: int) -> None:
        """So many records were handed out."""
        self._handed, self._handed_at_ms = rows, now_ms
