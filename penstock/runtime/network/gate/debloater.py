"""How large a gate's buffers should be, so that what is in flight is worked off in a given time. Knows no clock.

Source: Flink BufferDebloater, BufferSizeEMA.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol


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

    def limit(self, max_bytes: int) -> None:
        """The largest size is another one now."""
        if max_bytes != self.target.max_bytes:
            self.target = replace(self.target, max_bytes=max_bytes)

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


class DebloatedGate(Protocol):
    """A gate whose producers are told how large its buffers should be."""

    @property
    def bytes_in(self) -> int: ...
    @property
    def buffers_in_use(self) -> int: ...
    @property
    def largest_buffer_bytes(self) -> int: ...
    @property
    def is_finished(self) -> bool: ...
    def debloat_to(self, buffer_bytes: int) -> None: ...


class GateDebloating:
    """Measures how fast one gate is read, idle time left out, and announces what follows. Mailbox thread.

    Source: Flink SingleInputGate.triggerDebloating, ThroughputCalculator.
    """

    def __init__(self, gate: DebloatedGate, target: DebloatTarget) -> None:
        """`target`: its largest size is limited by the gate's pool."""
        self._gate = gate
        self._target = target
        self.debloater = BufferDebloater(target)
        self._seen_ns = 0
        self._seen_idle_ns = 0
        self._seen_bytes = 0
        self._bytes_per_s = 0

    def tick(self, now_ns: int, idle_ns: int) -> None:
        """The first one only begins the measurement. `idle_ns`: how long the task has waited for input so far."""
        gate = self._gate
        is_first = self._seen_ns == 0
        read, busy_ns = self._progress(now_ns, idle_ns)
        if is_first or gate.is_finished:
            return
        if busy_ns > 0:
            self._bytes_per_s = read * 1_000_000_000 // busy_ns
        self.debloater.limit(min(self._target.max_bytes, gate.largest_buffer_bytes))
        size = self.debloater.recalculate(self._bytes_per_s, gate.buffers_in_use)
        if size is not None:
            gate.debloat_to(size)

    def _progress(self, now_ns: int, idle_ns: int) -> tuple[int, int]:
        """Bytes read and time not idle since the last tick."""
        total = self._gate.bytes_in
        read, elapsed = total - self._seen_bytes, now_ns - self._seen_ns
        busy = elapsed - (idle_ns - self._seen_idle_ns)
        self._seen_bytes, self._seen_ns, self._seen_idle_ns = total, now_ns, idle_ns
        return read, busy
