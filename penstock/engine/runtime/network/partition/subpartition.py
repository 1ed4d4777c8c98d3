"""The interfaces between a result partition and its subpartitions. Does not know the kinds of subpartitions.

Source: Flink ResultSubpartition, ResultPartition.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from types import TracebackType
from typing import Any, Final, Protocol

from penstock.engine.model.ids import ResultPartitionId
from penstock.engine.runtime.elements import Batch, ColumnBatch, Element
from penstock.engine.runtime.network.network_memory import LocalBufferPool
from penstock.engine.runtime.network.subpartition_view import Polled, SubpartitionView, ViewListener

REFUSED = -1
"""Returned by `add` when nothing may be added any more."""


class Lock(Protocol):
    """A lock from hosting: a threading.Lock, or any other that lets one thread in at a time."""

    def __enter__(self) -> object: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> object: ...


class OutputState(Protocol):
    """Takes the data that a barrier overtakes at the output: output data in flight of a checkpoint."""

    def complete(self, checkpoint_id: int, subpartition: int, overtaken: Sequence[Batch]) -> None:
        """All the data that was overtaken there, in order; empty if the barrier overtook nothing."""
        ...

    def fail(self, checkpoint_id: int, subpartition: int, cause: str) -> None:
        """The barrier will not be sent: the checkpoint was aborted or replaced by a newer one, or the partition was released."""
        ...


_LATELY: Final = 16
"""A subpartition that got no record in this number of slices, or in twice as many, does not make
slices small.
"""
_MOST_UNKNOWN: Final = 1 << 20


class RowLimits:
    """How many records consumers let wait for them in each subpartition. Any thread sets; the producer's thread does the rest.

    A consumer raises its limit when it has processed records. So subpartitions that get none, because no key is theirs or because
    a side output is empty, keep a low limit and must not count.
    """

    __slots__ = ("_before", "_by_index", "_is_stale", "_lately", "_least", "_slices", "_unknown")

    def __init__(self) -> None:
        self._by_index: dict[int, int] = {}
        self._is_stale = False
        self._least: int | None = None
        self._lately: set[int] = set()
        self._before: set[int] = set()
        self._slices = 0
        self._unknown = 1

    def set(self, index: int, rows: int | None) -> None:
        """`rows` None: any number."""
        if rows is None:
            self._by_index.pop(index, None)
        else:
            self._by_index[index] = rows
        self._is_stale = True

    def use(self, index: int) -> None:
        """Note that this subpartition gets records."""
        if index not in self._lately:
            self._lately.add(index)
            self._is_stale = True

    def for_slice(self) -> int | None:
        """How many records the next slice may bring: the smallest limit of those that got some lately. None: any number. Called once
        for each slice. While none gets any, slices grow: what few records come then cannot be many.
        """
        limits = self._by_index
        if not limits:
            return None
        self._slices += 1
        if self._slices >= _LATELY:
            self._slices, self._is_stale = 0, True
            self._before, self._lately = self._lately, set()
        if not self._lately and not self._before:
            self._unknown, unknown = min(self._unknown * 2, _MOST_UNKNOWN), self._unknown
            return unknown
        self._unknown = 1
        if self._is_stale:
            # Marked as fresh first: what is set meanwhile marks it as stale again.
            self._is_stale = False
            found = (limits.get(index) for index in self._lately | self._before)
            self._least = min((rows for rows in found if rows is not None), default=None)
        return self._least


@dataclass(frozen=True, slots=True)
class Marks:
    """Sets of subpartition indexes, so that not all subpartitions have to be asked.

    `full`: those that block the producer; set and cleared by either side. `pending`: those for which a flush may show something;
    used by the producer's thread only. `row_limits`: how many records may wait in each.
    """

    full: set[int] = field(default_factory=set)
    pending: set[int] = field(default_factory=set)
    row_limits: RowLimits = field(default_factory=RowLimits)

    def cleared(self, index: int) -> bool:
        """Let a subpartition block no more. Returns: whether it has blocked."""
        was_full = index in self.full
        self.full.discard(index)
        return was_full

    def forget(self, index: int) -> None:
        """A released subpartition blocks nobody."""
        self.full.discard(index)
        self.row_limits.set(index, None)


class SubpartitionOwner(Protocol):
    """The partition, as its subpartitions see it. Called outside their locks, from any thread."""

    partition_id: ResultPartitionId

    def on_room(self, index: int) -> None:
        """A full subpartition has room again."""
        ...

    def on_all_records_read(self, index: int) -> None:
        """The consumer has read the last record."""
        ...

    def on_consumed(self, index: int) -> None:
        """The consumer has read the end, or reads no further."""
        ...


class FrameView(SubpartitionView, Protocol):
    """A view whose consumer encodes what it polls, or says how large frames should be."""

    @property
    def frame_bytes(self) -> int:
        """The largest size of an encoded frame; a single larger record is allowed."""
        ...

    @property
    def has_priority(self) -> bool:
        """Whether the next element has priority over all the rest."""
        ...

    def poll_last(self) -> Polled | None:
        """As `poll`, with the consumer's last credit: a frame waits there until `grant`."""
        ...

    def grant(self) -> None:
        """The consumer has given credit again."""
        ...

    def measured(self, rows: int, size: int) -> None:
        """`rows` rows had `size` bytes when encoded."""
        ...

    def disconnect(self) -> None:
        """The consumer cannot be reached. A subpartition that can be read again ends this reading; one that is read once is kept."""
        ...

    def new_buffer_size(self, frame_bytes: int) -> None:
        """The consumer wants frames of this size from now on; never larger than the initial one."""
        ...

    def limit_rows(self, rows: int | None) -> None:
        """The consumer lets `rows` records wait for it; then the producer has to wait. None: any
        number.
        """
        ...


class Subpartition(Protocol):
    """The part of a result that one consumer reads. One thread writes; views are read by others."""

    @property
    def records(self) -> int:
        """How many records were written."""
        ...

    @property
    def is_released(self) -> bool: ...
    @property
    def queued(self) -> int:
        """Frames and events in memory that no consumer has taken. Any thread."""
        ...

    def use_pool(self, pool: LocalBufferPool) -> None:
        """Called before anything is written: frames take buffers of this pool, and are no larger than those."""
        ...

    def limit_frames(self, frame_bytes: int) -> None:
        """The pool's buffers have this size now. Any thread."""
        ...

    def limit_rows(self, rows: int | None) -> None:
        """As `FrameView.limit_rows`. Any thread."""
        ...

    def write(self, batch: Batch) -> None:
        """Append a batch. Batches are joined to frames, which become visible when they are full or flushed."""
        ...

    def add(self, event: Element) -> int:
        """Add an event, visible at once. Returns the wanted bytes per frame, or `REFUSED`."""
        ...

    def flush(self) -> None: ...
    def finish(self) -> None:
        """Add the end of the partition."""
        ...

    def release(self, failure: str | None = None) -> None:
        """Drop everything and block nobody. With a failure the consumer gets "producer failed"."""
        ...

    def add_frame(self, batch: Batch, *, is_finished: bool) -> int:
        """Add a frame of its own: it is not joined with batches before it or (if it `is_finished`) after it. Returns as `add`."""
        ...

    def create_view(self, listener: ViewListener, *, is_encoded: bool = False) -> FrameView:
        """`is_encoded`: the consumer sends what it gets, so frames that are encoded already are given as they are."""
        ...


_FIRST_GUESS: Final = 64.0
_SAMPLED_ROWS: Final = 3
_SAMPLED_ITEMS: Final = 16
_DEPTH: Final = 3
_CONTAINERS: Final = (dict, list, tuple, set, frozenset)
_FLAT: Final = frozenset({int, float, bool, str, bytes, type(None)})


class RowSize:
    """How many rows make a frame of the wanted size, from measured sizes of encoded rows or, if none are known, an
    estimate.

    Source: none; Flink has buffers of bytes. A local exchange here passes objects, whose size must be estimated.

    The row size of one subpartition. `frame_bytes`: the wanted size now; `frame_rows`: rows in such a frame, at
    most `max_rows`.
    """

    __slots__ = ("_buffer_bytes", "_frame_bytes_max", "_is_measured", "_max_rows", "_wanted_bytes", "bytes_per_row", "frame_bytes", "frame_rows")  # fmt: skip

    def __init__(self, frame_bytes: int, max_rows: int) -> None:
        self._frame_bytes_max = self._buffer_bytes = self._wanted_bytes = frame_bytes
        self.frame_bytes = frame_bytes
        self._max_rows = max_rows
        self._is_measured = False
        self.bytes_per_row = _FIRST_GUESS
        self.frame_rows = 1
        self._update()

    def set_frame_bytes(self, frame_bytes: int) -> None:
        """Set the size that the consumer announced; never above the initial one."""
        self._wanted_bytes = frame_bytes
        self._update()

    @property
    def is_measured(self) -> bool:
        """Whether rows were encoded, which happens only on the way to another process."""
        return self._is_measured

    def limit(self, buffer_bytes: int) -> None:
        """Set the largest size of the pool's buffers."""
        self._buffer_bytes = buffer_bytes
        self._update()

    def measured(self, rows: int, size: int) -> None:
        """`rows` rows had `size` bytes when encoded. From now on nothing is estimated."""
        self._is_measured = True
        self.bytes_per_row = max(1.0, size / max(1, rows))
        self._update()

    def sample(self, batch: Batch) -> None:
        """Estimate from some rows. A larger estimate counts at once, a smaller one gradually."""
        if self._is_measured or not len(batch):
            return
        try:
            size = _row_bytes(batch)
        except Exception:
            # An object of the user's that cannot be inspected is not counted.
            return
        self.bytes_per_row = max(1.0, size, (3 * self.bytes_per_row + size) / 4)
        self._update()

    def pieces(self, batch: Batch) -> Iterator[Batch]:
        """The batch, cut into equal parts if it has more than the wanted bytes. A batch that only has too many rows stays whole."""
        rows, limit = len(batch), self.frame_rows
        if rows <= limit or limit == self._max_rows:
            yield batch
            return
        parts = -(-rows // limit)
        cuts = [rows * part // parts for part in range(parts + 1)]
        for start, stop in pairwise(cuts):
            yield batch.slice(start, stop)

    def _update(self) -> None:
        wanted = min(self._wanted_bytes, self._buffer_bytes, self._frame_bytes_max)
        self.frame_bytes = max(1, wanted)
        rows = int(self.frame_bytes / self.bytes_per_row)
        self.frame_rows = max(1, min(self._max_rows, rows))


def _row_bytes(batch: Batch) -> float:
    rows = len(batch)
    if isinstance(batch, ColumnBatch):
        return float(batch.data.nbytes) / rows
    step = max(1, rows // _SAMPLED_ROWS)
    sample = batch.values[::step][:_SAMPLED_ROWS]
    return sum(object_bytes(value, _DEPTH) for value in sample) / len(sample)


def object_bytes(value: Any, depth: int) -> float:
    """The size of an object and its content, `depth` levels down. Of a long container only some items are counted."""
    size = float(sys.getsizeof(value, 64))
    if type(value) in _FLAT or depth == 0:
        return size
    held = value
    if not isinstance(value, _CONTAINERS):
        held = getattr(value, "__dict__", None)
    if not held:
        return size
    if isinstance(held, (list, tuple)):
        sample: Iterable[Any] = held[:: max(1, len(held) // _SAMPLED_ITEMS)]
    else:
        sample = held.values() if isinstance(held, dict) else held
    sizes = [object_bytes(item, depth - 1) for item in islice(sample, _SAMPLED_ITEMS)]
    return size + sum(sizes) * len(held) / len(sizes)
