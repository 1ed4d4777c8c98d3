"""How large a gate's buffers should be, so that what is in flight is worked off in a given time. Knows no clock.

Source: Flink BufferDebloater, BufferSizeEMA.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DebloatTarget:
    """Args: target_ms: how long the data in flight should take. samples: measurements that are averaged.
    threshold_percent: smaller changes are not announced. min_bytes, max_bytes: of a buffer.
    """

    target_ms: int
    max_bytes: int
    min_bytes: int
    threshold_percent: int
    samples: int


class BufferDebloater:
    """`announced_bytes`: the size that the senders were told last, at first the largest.

    `estimated_ms`: how long what is in flight takes at the last measured rate.
    """

    def __init__(self, target: DebloatTarget) -> None:
        self.target = target
        self.announced_bytes = target.max_bytes
        self.estimated_ms = 0
        self._alpha = 2 / (target.samples + 1)
        self._size = target.max_bytes

    def recalculate(self, bytes_per_s: int, buffers_in_use: int) -> int | None:
        """The size to announce, or None where it stays."""
        target = self.target
        buffers = max(1, buffers_in_use)
        wanted_total = bytes_per_s * target.target_ms // 1000
        wanted = min(wanted_total // buffers, 2 * self._size)  # grows no faster than it shrinks
        size = int(self._size + self._alpha * (wanted - self._size))
        self._size = size = max(target.min_bytes, min(size, target.max_bytes))
        self.estimated_ms = size * buffers * 1000 // max(1, bytes_per_s)
        if self._is_small_change(size):
            return None
        self.announced_bytes = size
        return size

    def _is_small_change(self, size: int) -> bool:
        if size == self.announced_bytes:
            return True
        if size <= self.target.min_bytes or size >= self.target.max_bytes:
            return False
        least = int(self.announced_bytes * (self.target.threshold_percent / 100))
        return abs(size - self.announced_bytes) < least
