"""How a task spends its time, and how fast its counters grow, over a sliding window.

Does not know a clock: times come with each call. Source: Flink TimerGauge, TaskIOMetricGroup
(docs/spec/tasks.md#time). Differs: one gauge for busy, idle and back-pressured, so that they always sum to 1,000; there
is no hard back-pressure, because a task never blocks inside a record.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

MINUTE_NS: Final = 60 * 1_000_000_000
"""The window of Flink's metrics."""
UPDATE_NS: Final = 5 * 1_000_000_000
RECENT_NS: Final = 5 * 1_000_000_000
"""The window of what heartbeats report, and so of all that an operator sees of a running job."""
RECENT_UPDATE_NS: Final = 500_000_000
_PER_SECOND: Final = 1000.0


class SlidingWindow:
    """The growth per second of counters that begin at 0. Not thread-safe."""

    def __init__(self, started_ns: int, window_ns: int, update_ns: int) -> None:
        """`update_ns`: the least time between two samples that are kept."""
        self._samples: deque[tuple[int, tuple[int, ...]]] = deque([(started_ns, ())])
        self._window_ns = window_ns
        self._update_ns = update_ns

    def update(self, now_ns: int, *counters: int) -> tuple[float, ...]:
        """Return how much each has grown per second since the oldest sample of the window; 0.0 before time has passed."""
        samples = self._samples
        while len(samples) > 1 and now_ns - samples[1][0] >= self._window_ns:
            samples.popleft()
        began_ns, before = samples[0]
        if now_ns - samples[-1][0] >= self._update_ns:
            samples.append((now_ns, counters))
        elapsed_s = (now_ns - began_ns) / 1e9
        if elapsed_s <= 0:
            return (0.0,) * len(counters)
        pairs = zip(counters, before or (0,) * len(counters), strict=True)
        return tuple((now - then) / elapsed_s for now, then in pairs)


@dataclass(frozen=True, slots=True)
class TimeShares:
    """Milliseconds per second; their sum is 1,000."""

    busy: float = 0.0
    idle: float = 0.0
    backpressured: float = 0.0


class TimeGauge:
    """The gauge of one task. Not thread-safe."""

    def __init__(
        self, started_ns: int, window_ns: int = MINUTE_NS, update_ns: int = UPDATE_NS
    ) -> None:
        self._started_ns = started_ns
        self._window = SlidingWindow(started_ns, window_ns, update_ns)

    def update(self, now_ns: int, idle_ns: int, backpressured_ns: int) -> TimeShares:
        """The shares since the oldest sample of the window. `idle_ns`, `backpressured_ns`: totals so far."""
        if now_ns <= self._started_ns:
            return TimeShares()
        found = self._window.update(now_ns, idle_ns, backpressured_ns)
        idle = min(_PER_SECOND, found[0] / 1e6)
        blocked = min(_PER_SECOND - idle, found[1] / 1e6)
        return TimeShares(_PER_SECOND - idle - blocked, idle, blocked)
