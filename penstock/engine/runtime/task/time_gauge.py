"""How a task spends its time: busy, idle, back-pressured milliseconds per second, over a sliding window.

Does not know a clock: times come with each call. Source: Flink TimerGauge, TaskIOMetricGroup
(docs/spec/tasks.md#time). Differs: one gauge for all three, so that they always sum to 1,000; there
is no hard back-pressure, because a task never blocks inside a record.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

WINDOW_NS: Final = 60 * 1_000_000_000
UPDATE_NS: Final = 5 * 1_000_000_000
_PER_SECOND: Final = 1000.0


@dataclass(frozen=True, slots=True)
class TimeShares:
    """Milliseconds per second; their sum is 1,000."""

    busy: float = 0.0
    idle: float = 0.0
    backpressured: float = 0.0


class TimeGauge:
    """The gauge of one task. Not thread-safe."""

    def __init__(self, started_ns: int) -> None:
        self._samples: deque[tuple[int, int, int]] = deque([(started_ns, 0, 0)])

    def update(self, now_ns: int, idle_ns: int, backpressured_ns: int) -> TimeShares:
        """The shares since the oldest sample of the window. `idle_ns`, `backpressured_ns`: totals so far."""
        samples = self._samples
        while len(samples) > 1 and now_ns - samples[1][0] >= WINDOW_NS:
            samples.popleft()
        began_ns, idle_before, blocked_before = samples[0]
        if now_ns - samples[-1][0] >= UPDATE_NS:
            samples.append((now_ns, idle_ns, backpressured_ns))
        elapsed = now_ns - began_ns
        if elapsed <= 0:
            return TimeShares()
        idle = min(1.0, (idle_ns - idle_before) / elapsed) * _PER_SECOND
        blocked = (backpressured_ns - blocked_before) / elapsed * _PER_SECOND
        blocked = min(_PER_SECOND - idle, blocked)
        return TimeShares(_PER_SECOND - idle - blocked, idle, blocked)
