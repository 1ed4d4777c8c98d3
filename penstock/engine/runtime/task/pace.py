"""How long a task takes for a record, and how many records may therefore wait for it. Does not know channels.

The time counts from slice to slice, without the time in which there was nothing to do, so that a task that waits for its own
consumers is slow, too. The limit begins low and grows with the records that were processed: what is on its way when a function
turns out to be slow stays on its way. Source: Flink BufferDebloater, ThroughputCalculator. Differs: it measures records, not bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MOST_ROWS: Final = 1 << 20
"""A limit of so many records is none."""
_LEAST_WORK_NS: Final = 4_000_000
"""So much work may wait on each channel, however many channels there are. Otherwise frames would hold a few records only, and
their own cost would be felt.
"""
_CHANGE: Final = 2
_GROWTH: Final = 4
"""How much the limit grows at once. A task is fast until the queues of its own consumers are full."""


class Pace:
    """The pace of one task. `rows`: the limit for each channel that was announced last; None: any number."""

    __slots__ = (
        "_announce",
        "_channels",
        "_is_idle",
        "_new_rows",
        "_ns",
        "_rows",
        "_rows_at_limit",
        "_since_ns",
        "_target_ns",
        "rows",
    )

    def __init__(
        self,
        target_ns: int,
        channels: int,
        rows: int | None,
        announce: Callable[[int | None], None],
    ) -> None:
        """`target_ns`: how long the records that wait should take together. `channels`: of all inputs. `rows`: the limit now.
        `announce`: called with another limit.
        """
        self.rows = rows
        self._target_ns = target_ns
        self._channels = max(1, channels)
        self._announce = announce
        self._rows = 0.0
        self._ns = 0.0
        self._new_rows = 0
        self._rows_at_limit = 0
        self._since_ns = 0
        self._is_idle = True

    def begin(self, now_ns: int) -> None:
        """More records are processed from now on."""
        if self._is_idle:
            self._is_idle = False
            self._since_ns = now_ns
        else:
            self._measure(now_ns)

    def processed(self, rows: int) -> None:
        """So many records were processed. How long that took shows at the next `begin` or `rest`, when outputs have room again."""
        self._new_rows += rows

    def rest(self, now_ns: int) -> None:
        """There is nothing to process until `begin`."""
        if not self._is_idle:
            self._is_idle = True
            self._measure(now_ns)

    def lift(self) -> None:
        """The task takes batches whole, so records cannot be counted one by one."""
        if self.rows is not None:
            self._set(MOST_ROWS)

    def _measure(self, now_ns: int) -> None:
        if not self._new_rows:
            return
        self._ns += now_ns - self._since_ns
        self._since_ns = now_ns
        self._rows += self._new_rows
        self._rows_at_limit += self._new_rows
        self._new_rows = 0
        per_row = max(1.0, self._ns / self._rows)
        if self._ns > self._target_ns:
            # What was measured long ago counts less and less.
            self._ns /= 2
            self._rows /= 2
        self._adapt(max(self._target_ns / self._channels, _LEAST_WORK_NS) / per_row)

    def _adapt(self, wanted: float) -> None:
        known = MOST_ROWS if self.rows is None else self.rows
        if wanted * _CHANGE <= known:
            self._set(max(1, int(wanted)))
        elif known * _CHANGE <= wanted and known <= self._rows_at_limit and self.rows is not None:
            self._set(min(int(wanted), known * _GROWTH))

    def _set(self, rows: int) -> None:
        limit = None if rows >= MOST_ROWS else rows
        self._rows_at_limit = 0
        if limit != self.rows:
            self.rows = limit
            self._announce(limit)
