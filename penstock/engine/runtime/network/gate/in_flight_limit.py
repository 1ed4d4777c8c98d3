"""How many records may wait for a task on each of its channels, so that a barrier behind them comes through soon.

The task measures how long its records take, and sets the limit; the channels tell their producers. Does not know a clock.
Source: Flink BufferDebloater. Differs: it counts records, because the time of a user's function goes with records, not with bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

FIRST_ROWS: Final = 1
"""The limit until a task has measured its first record. Nobody knows before whether a record takes a microsecond or a second."""


class LimitedChannel(Protocol):
    """An input channel that tells its producer the limit."""

    def announce_row_limit(self) -> None: ...


class LimitedGate(Protocol):
    @property
    def made(self) -> Iterable[LimitedChannel]: ...


class InFlightLimit:
    """The limit of one task. `rows`: records for each channel; None: any number. `has_changed`: since the task began. Mailbox thread,
    but any thread reads.
    """

    __slots__ = ("_gates", "has_changed", "rows")

    def __init__(self, rows: int | None = None) -> None:
        self.rows = rows
        self.has_changed = False
        self._gates: list[LimitedGate] = []

    def add(self, gate: LimitedGate) -> None:
        """Tell the producers of this gate too when the limit changes."""
        self._gates.append(gate)

    def announce(self, rows: int | None) -> None:
        """Set the limit and tell all producers that are known. Those that get known later are told with the request."""
        self.rows = rows
        self.has_changed = True
        for gate in self._gates:
            for channel in gate.made:
                channel.announce_row_limit()
