"""The network memory of a TaskManager: how many buffers each result partition and input gate may hold, and how large they are.

It only counts: it does not know threads, sockets or bytes. A buffer is one frame, or one batch that would become one frame, of at
most `buffer_bytes`. A single record that is larger is allowed and counts as one buffer. Every method may be called
from any thread. The locks come from hosting, and callbacks are called outside all of them.

Source: Flink NetworkBufferPool, LocalBufferPool, NettyShuffleUtils, GateBuffersSpec. Differs: Flink's buffers
have one size, and a pool gets more or fewer of them. In Python each buffer has a fixed cost (about 100 us), so
the buffers are large while there are few pools. `buffer_bytes` is one value for the whole TaskManager: a power of two
between the segment size and the frame size, chosen so that the maximum of all pools fits. It changes as pools are created and
destroyed; a buffer that was filled before keeps its former size until it is recycled. A destroyed pool gives no buffers and blocks
nobody, where Flink raises a cancel signal: here the mailbox sees the cancellation itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.engine.model.errors import ConfigurationError, EngineBug, InsufficientBuffers
from penstock.engine.model.options.network import NetworkMemoryOptions

LockFactory: TypeAlias = Callable[[], AbstractContextManager[Any]]
BufferListener: TypeAlias = Callable[[], bool]
"""Is offered one buffer. Returns whether it took it."""

SEGMENT_BYTES: Final = 32 << 10
MEMORY_KEY: Final = NetworkMemoryOptions.NETWORK_SIZE.key
_WITHOUT_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class GateBuffers:
    """The buffers of one input gate: `exclusive` for each remote channel, and the floating ones of its pool, at
    least `required_floating` and at most `total_floating`.
    """

    exclusive: int
    required_floating: int
    total_floating: int


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """The limits of a pool. `required`: buffers that it always gets. `maximum` None: no limit. `subpartitions`: how many
    share it; none of them should hold `per_subpartition` buffers or more. `overdraft`: how many buffers `request` still
    gives when the pool is used up, so that a record in progress can be completed.
    """

    required: int
    maximum: int | None = None
    subpartitions: int = 0
    per_subpartition: int = _WITHOUT_LIMIT
    overdraft: int = 0

    @property
    def excess(self) -> int:
        """How many buffers it can use beyond the required ones."""
        maximum = _WITHOUT_LIMIT if self.maximum is None else self.maximum
        return max(0, maximum - self.required)


def output_buffers(
    subpartitions: int,
    *,
    is_bounded: bool,
    per_channel: int = 2,
    floating: int = 8,
) -> tuple[int, int | None]:
    """The fewest and the most buffers of a result partition; most None: without limit.

    Args: is_bounded: the partition's type bounds its buffers (PIPELINED_BOUNDED, PIPELINED_APPROXIMATE).
    Source: Flink NettyShuffleUtils.getMinMaxNetworkBuffersPerResultPartition.
    """
    least = subpartitions + 1
    if is_bounded:
        return least, max(least, subpartitions * per_channel + floating)
    return least, None


def gate_buffers(
    channels: int, *, per_channel: int = 2, floating: int = 8, max_required: int | None = None
) -> GateBuffers:
    """The buffers of an input gate. At least one floating buffer is required.

    Args: max_required: cap on the buffers that a gate requires; None: no cap.
    Raises: ConfigurationError: with these settings a gate could never read.
    Source: Flink NettyShuffleUtils.createGateBuffersSpec.
    """
    required = channels * per_channel + 1
    if max_required is not None:
        required = min(required, max_required)
    exclusive = min(per_channel, (required - 1) // channels) if channels else per_channel
    in_channels = exclusive * channels
    buffers = GateBuffers(
        exclusive, required - in_channels, channels * per_channel + floating - in_channels
    )
    if not 0 < buffers.required_floating <= buffers.total_floating:
        raise ConfigurationError(
            f"an input gate of {channels} channels with {per_channel} buffers per channel, {floating} "
            f"floating ones and at most {max_required} required ones would need between "
            f"{buffers.required_floating} and {buffers.total_floating} floating buffers; it takes at "
            "least 1. Change taskmanager.network.memory.floating-buffers-per-gate or "
            "taskmanager.network.memory.read-buffer.required-per-gate.max."
        )
    return buffers


def shares(available: int, excess: Sequence[int]) -> list[int]:
    """How many of the `available` buffers each pool gets, in proportion to how many it can use (`excess`).

    Source: Flink NetworkBufferPool.redistributeBuffers: rounding is carried over to the next pool, so that all
    buffers are given out.
    """
    capacities = [min(available, most) for most in excess]
    capacity = sum(capacities)
    if capacity == 0:
        return [0] * len(excess)
    to_give = min(available, capacity)
    given = parts = 0
    result = []
    for mine in capacities:
        parts += mine
        share = to_give * parts // capacity - given
        given += share
        result.append(share)
    return result


class NetworkMemory:
    """All buffer pools of a TaskManager. `total_bytes`: how much they may use together."""

    def __init__(
        self,
        total_bytes: int,
        lock_factory: LockFactory,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        max_buffer_bytes: int = 1 << 20,
    ) -> None:
        """`segment_bytes`: the smallest size of a buffer; the required buffers of all pools must fit at this size."""
        self.total_bytes = total_bytes
        self._segment_bytes = segment_bytes
        self._max_buffer_bytes = max(segment_bytes, max_buffer_bytes)
        self._lock_factory = lock_factory
        self._lock = lock_factory()
        self._pools: list[LocalBufferPool] = []
        self._exclusive = 0
        self._required = 0  # required buffers of pools and channels
        # As `_required`, but with the maximum of those pools that have one.
        self._demand = 0
        self._without_limit = 0  # number of pools without a maximum
        self.buffer_bytes = self._max_buffer_bytes

    @property
    def total_segments(self) -> int:
        return self.total_bytes // self._segment_bytes

    @property
    def buffers_in_use(self) -> int:
        """Buffers held by pools and reserved for channels; for metrics."""
        with self._lock:
            return self._exclusive + sum(pool.in_use for pool in self._pools)

    @property
    def requested_percent(self) -> float:
        """What all pools and channels would like to have, in percent of the memory. It may exceed 100."""
        return 100.0 * self._wanted_bytes(self.buffer_bytes) / self.total_bytes

    def create_pool(
        self,
        limits: PoolLimits,
        on_available: Callable[[], None] | None = None,
        on_resize: Callable[[], None] | None = None,
    ) -> LocalBufferPool:
        """`on_available`: called when the pool can give buffers again. `on_resize`: called when its `buffer_bytes` has changed.

        Raises: InsufficientBuffers: the required buffers do not fit.
        """
        with self._lock:
            self._check_fits(limits.required)
            pool = LocalBufferPool(self, limits, self._lock_factory(), on_available, on_resize)
            self._pools.append(pool)
            self._count(limits, 1)
            news = self._redistribute()
        _call_all(news)
        return pool

    def reserve(self, buffers: int) -> None:
        """Reserve the exclusive buffers of a channel. Raises: InsufficientBuffers."""
        with self._lock:
            self._check_fits(buffers)
            news = self._change_exclusive(buffers)
        _call_all(news)

    def unreserve(self, buffers: int) -> None:
        with self._lock:
            news = self._change_exclusive(-buffers)
        _call_all(news)

    def forget(self, pool: LocalBufferPool) -> None:
        """Called by a pool that is destroyed; the other pools share its buffers."""
        with self._lock:
            self._pools.remove(pool)
            self._count(pool.limits, -1)
            news = self._redistribute()
        _call_all(news)

    def _check_fits(self, required: int) -> None:
        taken = self._required
        if taken + required > self.total_segments:
            raise InsufficientBuffers(
                f"insufficient number of network buffers: required {required}, but only "
                f"{max(0, self.total_segments - taken)} available. The total number of network buffers "
                f"is {self.total_segments} of {self._segment_bytes} bytes each ({self.total_bytes:,} "
                f"bytes). Increase it by setting '{MEMORY_KEY}', or lower the parallelism or the "
                "slots per TaskManager."
            )

    def _count(self, limits: PoolLimits, change: int) -> None:
        self._required += change * limits.required
        maximum = limits.required if limits.maximum is None else limits.maximum
        self._demand += change * maximum
        self._without_limit += change * (limits.maximum is None)

    def _change_exclusive(self, change: int) -> list[Callable[[], None]]:
        """Change the number of exclusive buffers. If all pools have their maximum before and after, they are not recomputed: this is
        called for each of a gate's many channels.
        """
        had_plenty = self._has_plenty
        self._exclusive += change
        self._required += change
        self._demand += change
        if had_plenty and self._has_plenty and self._fitting() == self.buffer_bytes:
            return []
        return self._redistribute()

    @property
    def _has_plenty(self) -> bool:
        wanted = self._wanted_bytes(self.buffer_bytes)
        return not self._without_limit and wanted <= self.total_bytes

    def _wanted_bytes(self, buffer_bytes: int) -> int:
        """The demand with buffers of this size."""
        return self._demand * buffer_bytes

    def _redistribute(self) -> list[Callable[[], None]]:
        """Returns the callbacks to call after the lock is released."""
        self.buffer_bytes = self._fitting()
        available = self.total_bytes // self.buffer_bytes - self._required
        extra = shares(available, [pool.limits.excess for pool in self._pools])
        news: list[Callable[[], None]] = []
        for pool, more in zip(self._pools, extra, strict=True):
            size = pool.limits.required + more
            if size != pool.size or self.buffer_bytes != pool.buffer_bytes:
                news += pool.set_size(size, self.buffer_bytes)
        return news

    def _fitting(self) -> int:
        """The largest size (segment size times a power of two) at which the demand fits. Powers of two keep changes rare."""
        size = self._max_buffer_bytes
        while size > self._segment_bytes and self._wanted_bytes(size) > self.total_bytes:
            size //= 2
        return max(size, self._segment_bytes)


class LocalBufferPool:
    """The buffers of one result partition, or the floating ones of one gate. Made by `NetworkMemory.create_pool`.

    `size`: how many it may hold. `in_use`: how many it holds. `buffer_bytes`: the largest size of a buffer. `is_available`: whether
    a buffer is free, and no subpartition holds too many.
    """

    def __init__(
        self,
        memory: NetworkMemory,
        limits: PoolLimits,
        lock: AbstractContextManager[Any],
        on_available: Callable[[], None] | None,
        on_resize: Callable[[], None] | None,
    ) -> None:
        self.limits = limits
        self.size = limits.required
        self.in_use = 0
        self.buffer_bytes = memory.buffer_bytes
        self._memory = memory
        self._lock = lock
        self._on_available = on_available
        self._on_resize = on_resize
        self._listeners: deque[BufferListener] = deque()
        self._held = [0] * limits.subpartitions
        self._full_subpartitions = 0
        self._is_destroyed = False
        self._note_room()

    def _note_room(self) -> None:
        """With the lock, after each change."""
        has_room = self.in_use < self.size and not self._full_subpartitions
        self.is_available = has_room or self._is_destroyed

    @property
    def is_destroyed(self) -> bool:
        return self._is_destroyed

    def request(self, subpartition: int | None = None) -> bool:
        """Take one buffer, from the overdraft if necessary. False: there is none for now."""
        with self._lock:
            if self._is_destroyed or self.in_use >= self.size + self.limits.overdraft:
                return False
            self._count(subpartition, 1)
            return True

    def take(self, subpartition: int | None = None) -> None:
        """Take one buffer in any case, for a writer that cannot stop here. The pool is unavailable until enough are recycled."""
        with self._lock:
            self._count(subpartition, 1)

    def recycle(self, subpartition: int | None = None) -> None:
        """A buffer is empty again: it goes to the listener that has waited longest, if the pool has room."""
        while True:
            with self._lock:
                was_available = self.is_available
                self._count(subpartition, -1)
                listener = self._next_listener()
                is_news = listener is None and not was_available and self.is_available
            if listener is None or listener():
                break
            # The listener refused it, so this buffer comes back as well.
            subpartition = None
        if is_news and self._on_available is not None:
            self._on_available()

    def add_listener(self, listener: BufferListener) -> bool:
        """Offer the next free buffer to the listener. False: there is a free one now, or there never will be one."""
        with self._lock:
            if self._is_destroyed or self.in_use < self.size:
                return False
            self._listeners.append(listener)
            return True

    def remove_listener(self, listener: BufferListener) -> None:
        """Stop offering buffers to the listener."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def destroy(self) -> None:
        """Give all buffers back: the pool gives none any more, and those it holds do not count. May be called twice."""
        with self._lock:
            if self._is_destroyed:
                return
            self._is_destroyed = True
            self._listeners.clear()
            self._note_room()
        self._memory.forget(self)
        if self._on_available is not None:
            self._on_available()

    def set_size(self, size: int, buffer_bytes: int) -> list[Callable[[], None]]:
        """Set the pool's share of the memory. Returns the callbacks to call."""
        news: list[Callable[[], None]] = []
        with self._lock:
            was_available = self.is_available
            is_resized = buffer_bytes != self.buffer_bytes
            self.size, self.buffer_bytes = size, buffer_bytes
            self._note_room()
            if self._listeners and self.in_use < size:
                news.append(self._serve_listeners)
            if not was_available and self.is_available and self._on_available is not None:
                news.append(self._on_available)
        if is_resized and self._on_resize is not None:
            news.append(self._on_resize)
        return news

    def _serve_listeners(self) -> None:
        while True:
            with self._lock:
                listener = self._next_listener()
            if listener is None:
                return
            if not listener():
                self.recycle()

    def _next_listener(self) -> BufferListener | None:
        """The next listener, with the buffer that it will be offered already counted."""
        if not self._listeners or self.in_use >= self.size:
            return None
        self.in_use += 1
        self._note_room()
        return self._listeners.popleft()

    def _count(self, subpartition: int | None, change: int) -> None:
        self.in_use += change
        if self.in_use < 0:
            self.in_use = 0
            raise EngineBug("a buffer was recycled that did not come from this pool")
        if subpartition is not None:
            before = self._held[subpartition]
            self._held[subpartition] = before + change
            limit = self.limits.per_subpartition
            self._full_subpartitions += (before + change >= limit) - (before >= limit)
        self._note_room()


def _call_all(news: Sequence[Callable[[], None]]) -> None:
    for one in news:
        one()
