"""Computes how large a gate's buffers should be, so that the data in flight can be processed in a given time. Does not
know a clock.

Source: Flink BufferDebloater, BufferSizeEMA.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class DebloatTarget:
    """Settings. `target_ms`: how long it should take to process the data in flight. `samples`: number of measurements to average.
    `threshold_percent`: smaller changes are not announced. `min_bytes`, `max_bytes`: limits of a buffer's size.
    """

    target_ms: int
    max_bytes: int
    min_bytes: int
    threshold_percent: int
    samples: int


class BufferDebloater:
    """Computes the buffer size from measurements. `announced_bytes`: the size that senders got
    last; at first the largest one.

    `estimated_ms`: how long the data in flight takes at the rate measured last.
    """

    def __init__(self, target: DebloatTarget) -> None:
        self.target = target
        self.announced_bytes = target.max_bytes
        self.estimated_ms = 0
        self._alpha = 2 / (target.samples + 1)
        self._size = float(target.max_bytes)

    def limit(self, max_bytes: int) -> None:
        """Set another largest size."""
        if max_bytes != self.target.max_bytes:
            self.target = replace(self.target, max_bytes=max_bytes)

    def recalculate(self, bytes_per_s: int, buffers_in_use: int) -> int | None:
        """The size to announce; None if the announced one stays."""
        target = self.target
        buffers = max(1, buffers_in_use)
        wanted_total = bytes_per_s * target.target_ms // 1000
        # It may at most double, so that it grows no faster than it shrinks.
        wanted = min(wanted_total / buffers, 2 * self._size)
        average = self._size + self._alpha * (wanted - self._size)
        self._size = max(float(target.min_bytes), min(average, float(target.max_bytes)))
        size = math.floor(self._size + 0.5)  # As Java's Math.round.
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
    """A gate that announces to its producers how large buffers should be."""

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
    """Measures how fast one gate is read (without idle time), and announces the buffer size for that rate. Mailbox thread.

    Source: Flink SingleInputGate.triggerDebloating, ThroughputCalculator.
    """

    def __init__(self, gate: DebloatedGate, target: DebloatTarget) -> None:
        """`target`: its largest size is further limited by the gate's pool."""
        self._gate = gate
        self._target = target
        self.debloater = BufferDebloater(target)
        self._seen_ns = 0
        self._seen_idle_ns = 0
        self._seen_bytes = 0
        self._bytes_per_s = 0

    def tick(self, now_ns: int, idle_ns: int) -> None:
        """Measure and announce. The first call only starts the measurement. `idle_ns`: how long the task has waited
        for input in total.
        """
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
        """Bytes read, and ns that were not idle, since the last tick."""
        total = self._gate.bytes_in
        read, elapsed = total - self._seen_bytes, now_ns - self._seen_ns
        busy = elapsed - (idle_ns - self._seen_idle_ns)
        self._seen_bytes, self._seen_ns, self._seen_idle_ns = total, now_ns, idle_ns
        return read, busy


FIRST_ROWS: Final = 1
"""The limit until a task has measured its first record. Nobody knows before whether a record takes a microsecond or a second."""


class LimitedChannel(Protocol):
    """An input channel that announces the limit to its producer."""

    def announce_row_limit(self) -> None: ...


class LimitedGate(Protocol):
    @property
    def made(self) -> Iterable[LimitedChannel]: ...


class InFlightLimit:
    """How many records may wait for a task on each of its channels, so that a barrier after them
    comes through soon.

    The task measures how long its records take, and sets the limit. The channels announce it to
    their producers. Does not know a clock. Source: Flink BufferDebloater. Differs: it counts
    records, because the time of a user's function goes with records, not with bytes.

    `rows`: records for each channel; None: any number. `has_changed`: since the task began. Written
    by the mailbox thread, read by any thread.
    """

    __slots__ = ("_gates", "has_changed", "rows")

    def __init__(self, rows: int | None = None) -> None:
        self.rows = rows
        self.has_changed = False
        self._gates: list[LimitedGate] = []

    def add(self, gate: LimitedGate) -> None:
        """Announce changes of the limit to the producers of this gate too."""
        self._gates.append(gate)

    def announce(self, rows: int | None) -> None:
        """Set the limit and announce it to all producers that are known. Later ones get it with the
        partition request.
        """
        self.rows = rows
        self.has_changed = True
        for gate in self._gates:
            for channel in gate.made:
                channel.announce_row_limit()
