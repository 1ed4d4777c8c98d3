"""How long each split of a source was active, paused and idle, on the clock of its source. Source: Flink SourceSplitMetricGroup."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple


class SplitSpent(NamedTuple):
    """Milliseconds since the split was added."""

    active_ms: int
    paused_ms: int
    idle_ms: int


class SplitTimes:
    """The times of all splits. `now_ms`: the time of the last periodic call; what has no time of its own happens then."""

    def __init__(self) -> None:
        self.now_ms: int | None = None
        self._added: dict[Hashable, int | None] = {}
        self._paused_since: dict[Hashable, int] = {}
        self._paused: dict[Hashable, int] = {}
        self._idle_since: dict[Hashable, int] = {}
        self._idle: dict[Hashable, int] = {}

    def add(self, split: Hashable) -> None:
        self._added[split] = self.now_ms

    def remove(self, split: Hashable) -> None:
        for kept in (self._added, self._paused_since, self._paused, self._idle_since, self._idle):
            kept.pop(split, None)

    def pause(self, split: Hashable, now_ms: int) -> None:
        self._paused_since.setdefault(split, now_ms)

    def resume(self, split: Hashable, now_ms: int) -> None:
        since = self._paused_since.pop(split, now_ms)
        self._paused[split] = self._paused.get(split, 0) + now_ms - since

    def clock(self, split: Hashable, now_ms: int) -> int:
        """The clock of a split, which stands still while the split is paused."""
        return self._paused_since.get(split, now_ms) - self._paused.get(split, 0)

    def idle(self, split: Hashable) -> None:
        """The split counts as idle from now on. A paused one does not."""
        if self.now_ms is not None and split not in self._paused_since:
            self._idle_since.setdefault(split, self.now_ms)

    def active(self, split: Hashable) -> None:
        """A record came from the split."""
        since = self._idle_since.pop(split, None) if self._idle_since else None
        if since is not None and self.now_ms is not None:
            self._idle[split] = self._idle.get(split, 0) + self.now_ms - since

    def spent(self, split: Hashable) -> SplitSpent:
        """The times so far. Any thread."""
        now_ms = self.now_ms
        added = self._added.get(split)
        if now_ms is None:
            return SplitSpent(0, 0, 0)
        paused = self._paused.get(split, 0) + now_ms - self._paused_since.get(split, now_ms)
        idle = self._idle.get(split, 0) + now_ms - self._idle_since.get(split, now_ms)
        alive = 0 if added is None else now_ms - added
        return SplitSpent(max(0, alive - paused - idle), paused, idle)
