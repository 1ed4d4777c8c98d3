"""Watermarks of a source with several splits: one generator for each, combined to one output.

Does not know readers. Source: Flink WatermarkOutputMultiplexer, SourceOutputWithWatermarks,
WatermarkToDataOutput; differs: outputs are returned, not called.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from penstock.engine.runtime.elements import (
    ACTIVE,
    IDLE,
    MIN_WATERMARK,
    Batch,
    Element,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.runtime.watermarks.strategy import (
    WatermarkGenerator,
    WatermarkStrategy,
    timestamp_max,
)


class WatermarkMultiplexer:
    """The minimum over the splits that are not idle.

    Immediate updates recompute it at once, deferred ones at the next `periodic`. While all splits are idle each
    recomputation returns IDLE; `StatusOutput` removes the repetitions.
    """

    def __init__(self) -> None:
        self._watermarks: dict[Hashable, int] = {}
        self._idle: dict[Hashable, bool] = {}
        self._combined = MIN_WATERMARK

    def register(self, split: Hashable) -> None:
        """A new split holds the output at its value until the split has a watermark."""
        self._watermarks[split] = MIN_WATERMARK
        self._idle[split] = False

    def unregister(self, split: Hashable) -> bool:
        """Remove a split. It holds the output until the next recomputation. False: it was not registered."""
        self._idle.pop(split, None)
        return self._watermarks.pop(split, None) is not None

    def __contains__(self, split: Hashable) -> bool:
        return split in self._watermarks

    def watermark_of(self, split: Hashable) -> int:
        """The watermark of the split itself."""
        return self._watermarks[split]

    def immediate(self, split: Hashable, timestamp_ms: int) -> Sequence[Element]:
        """Set a split's watermark from an event."""
        grew = timestamp_ms > self._watermarks[split]
        self.deferred(split, timestamp_ms)
        return self.periodic() if grew else ()

    def deferred(self, split: Hashable, timestamp_ms: int) -> None:
        """Set a split's watermark from a periodic call."""
        self._idle[split] = False
        self._watermarks[split] = max(self._watermarks[split], timestamp_ms)

    def set_status(
        self, split: Hashable, status: WatermarkStatus, *, is_immediate: bool
    ) -> Sequence[Element]:
        """A split became idle, or active again."""
        self._idle[split] = status.idle
        return self.periodic() if is_immediate and status.idle else ()

    def periodic(self) -> Sequence[Element]:
        """Recompute the combined watermark."""
        if not self._watermarks:
            return ()
        active = [mark for split, mark in self._watermarks.items() if not self._idle[split]]
        if not active:
            return (IDLE,)
        lowest = min(active)
        if lowest <= self._combined:
            return ()
        self._combined = lowest
        return (Watermark(lowest),)


class StatusOutput:
    """Filters what goes out: only watermarks that grow, IDLE once, and ACTIVE before the elements that follow it."""

    def __init__(self) -> None:
        self.watermark = MIN_WATERMARK
        self.is_idle = False

    def emit(self, elements: Sequence[Element]) -> list[Element]:
        """The elements that pass, with ACTIVE where it is due. Batches always pass."""
        passed: list[Element] = []
        for element in elements:
            if isinstance(element, WatermarkStatus):
                if element.idle != self.is_idle:
                    self.is_idle = element.idle
                    passed.append(element)
                continue
            if isinstance(element, Watermark):
                if element.timestamp_ms <= self.watermark:
                    continue
                self.watermark = element.timestamp_ms
            if self.is_idle:
                self.is_idle = False
                passed.append(ACTIVE)
            passed.append(element)
        return passed


class SplitWatermarks:
    """The watermarks of one source subtask.

    A split that was never registered is registered with its first batch. The split None stands for
    readers that do not distinguish splits. A subtask without any split also becomes idle after the
    timeout, so that it does not hold back those that have one.
    """

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self._strategy = strategy
        self._multiplexer = WatermarkMultiplexer()
        self.generators: dict[Hashable, WatermarkGenerator] = {}
        self._output = StatusOutput()
        self._without_splits = None
        if strategy.idle_timeout_ms is not None:
            self._without_splits = strategy.create_generator()
        self.times = SplitTimes()

    @property
    def watermark_ms(self) -> int:
        """The last watermark that went out."""
        return self._output.watermark

    @property
    def is_idle(self) -> bool:
        """Whether IDLE was the last status that went out."""
        return self._output.is_idle

    def register(self, split: Hashable) -> None:
        """A split was added: it holds the output until it has a watermark of its own."""
        if split not in self.generators:
            self.generators[split] = self._strategy.create_generator()
            self._multiplexer.register(split)
            self.times.add(split)

    def by_split(self) -> dict[Hashable, int]:
        """The last watermark of each split. Any thread."""
        return {split: self._multiplexer.watermark_of(split) for split in list(self.generators)}

    def splits_ahead_of(self, timestamp_ms: int) -> set[Hashable]:
        """Splits whose own watermark is above this. Empty for a source with one split, which waits as a whole."""
        if len(self.generators) < 2:
            return set()
        watermark_of = self._multiplexer.watermark_of
        return {split for split in self.generators if watermark_of(split) > timestamp_ms}

    def pause(self, split: Hashable, now_ms: int) -> None:
        """The split gives nothing for now. That does not make it idle, because its clock stands still."""
        self.times.pause(split, now_ms)

    def resume(self, split: Hashable, now_ms: int) -> None:
        self.times.resume(split, now_ms)

    def unregister(self, split: Hashable) -> None:
        """A split is finished: it no longer holds the others back."""
        self.times.remove(split)
        self.generators.pop(split, None)
        self._multiplexer.unregister(split)

    def stamped(self, batch: Batch) -> Batch:
        """The batch with timestamps."""
        return self._strategy.assign(batch)

    def on_batch(self, split: Hashable, stamped: Batch) -> list[Element]:
        """The batch goes out, with ACTIVE before it if the source was idle. It has its timestamps."""
        if split not in self.generators:
            self.register(split)
        outputs = self._output.emit((stamped,))
        self.generators[split].on_events(timestamp_max(stamped))
        self._multiplexer.set_status(split, ACTIVE, is_immediate=False)
        self.times.active(split)
        if self._without_splits is not None:
            self._without_splits.on_events(MIN_WATERMARK)
        return outputs

    def on_periodic(self, now_ms: int) -> list[Element]:
        """Call every generator, then recompute once."""
        multiplexer, times = self._multiplexer, self.times
        times.now_ms = now_ms
        for split, generator in self.generators.items():
            watermark = generator.on_periodic(times.clock(split, now_ms))
            if watermark is None:
                multiplexer.set_status(split, IDLE, is_immediate=False)
                times.idle(split)
            elif watermark > MIN_WATERMARK:
                multiplexer.deferred(split, watermark)
        alone = self._without_splits
        if not self.generators and alone is not None and alone.on_periodic(now_ms) is None:
            return self._output.emit((IDLE,))
        return self._output.emit(multiplexer.periodic())

    def on_end(self, timestamp_ms: int) -> list[Element]:
        """Emit a last watermark (2^63-1 at the end of bounded input), regardless of the splits."""
        return self._output.emit((Watermark(timestamp_ms),))


class SplitSpent(NamedTuple):
    """Milliseconds since the split was added."""

    active_ms: int
    paused_ms: int
    idle_ms: int


class SplitTimes:
    """How long each split of a source was active, paused and idle, on the clock of its source. Source: Flink
    SourceSplitMetricGroup.

    The times of all splits. `now_ms`: the time of the last periodic call; what has no time of its own happens then.
    """

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
