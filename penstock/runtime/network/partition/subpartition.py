"""What a result partition needs of its subpartitions, and they of it. Knows no kind of them.

Source: Flink ResultSubpartition, ResultPartition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from penstock.model.ids import ResultPartitionId
from penstock.runtime.elements import Batch, Element
from penstock.runtime.network.network_memory import LocalBufferPool
from penstock.runtime.network.subpartition_view import SubpartitionView, ViewListener

REFUSED = -1
"""Answer of `add` when nothing may be added any more."""


class Lock(Protocol):
    """What hosting passes in: a threading.Lock, or anything that lets one thread in at a time."""

    def __enter__(self) -> object: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> object: ...


class BufferAccount(Protocol):
    """The partition's buffer pool, as its subpartitions see it: each frame of data holds one buffer."""

    def take(self, subpartition: int | None = None) -> None: ...
    def recycle(self, subpartition: int | None = None) -> None: ...


class OutputState(Protocol):
    """Takes what a barrier overtakes on its way out: output in-flight data of a checkpoint."""

    def complete(self, checkpoint_id: int, subpartition: int, overtaken: Sequence[Batch]) -> None:
        """All that was overtaken there, in order; nothing, if the barrier went in its turn."""
        ...

    def fail(self, checkpoint_id: int, subpartition: int, cause: str) -> None:
        """The barrier will not get through: aborted, replaced by a newer one, or released."""
        ...


@dataclass(frozen=True, slots=True)
class Marks:
    """Indexes of a partition's subpartitions, so that nobody has to ask all of them.

    `full`: they hold the producer up; set and cleared by either side. `pending`: a flush may show something; the
    producer's thread only.
    """

    full: set[int] = field(default_factory=set)
    pending: set[int] = field(default_factory=set)


class SubpartitionOwner(Protocol):
    """The partition, as its subpartitions see it. Called outside their locks, from any thread."""

    partition_id: ResultPartitionId

    def on_room(self, index: int) -> None:
        """A full subpartition can take more."""
        ...

    def on_all_records_read(self, index: int) -> None:
        """Its consumer has read the last record."""
        ...

    def on_consumed(self, index: int) -> None:
        """Its consumer has read the end, or wants no more."""
        ...


class FrameView(SubpartitionView, Protocol):
    """A view whose consumer encodes what it polls, or says how large frames should be."""

    @property
    def frame_bytes(self) -> int:
        """How large an encoded frame may be; a single record above it passes alone."""
        ...

    @property
    def has_priority(self) -> bool:
        """What comes next overtakes all the rest."""
        ...

    def measured(self, rows: int, size: int) -> None:
        """So many rows came to so many bytes."""
        ...

    def disconnect(self) -> None:
        """The consumer is out of reach. Who can be read again ends this reading; what is read once is kept."""
        ...

    def new_buffer_size(self, frame_bytes: int) -> None:
        """The consumer wants frames of this size from now on; never larger than was set up."""
        ...


class Subpartition(Protocol):
    """The part of a result that one consumer reads. One thread writes; views are read by others."""

    records: int
    is_released: bool

    @property
    def queued(self) -> int:
        """Frames and events in memory that no consumer has taken. Any thread."""
        ...

    def use_pool(self, pool: LocalBufferPool) -> None:
        """Before anything is written: frames hold buffers of this pool, and are no larger than those."""
        ...

    def limit_frames(self, frame_bytes: int) -> None:
        """The pool's buffers are of this size now. Any thread."""
        ...

    def write(self, batch: Batch) -> None:
        """Behind all before. Joined with other batches to frames; visible when full or flushed."""
        ...

    def add(self, event: Element) -> int:
        """An event, visible at once. Returns the wanted bytes per frame, or `REFUSED`."""
        ...

    def add_frame(self, batch: Batch, *, is_finished: bool) -> int:
        """A frame of its own, with nothing before or (if it `is_finished`) after it joined to it. As `add`."""
        ...

    def flush(self) -> None: ...
    def finish(self) -> None:
        """Add the end of the partition."""
        ...

    def create_view(self, listener: ViewListener, *, is_encoded: bool = False) -> FrameView:
        """`is_encoded`: the consumer sends what it gets; frames that are encoded already come as they are."""
        ...

    def release(self, failure: str | None = None) -> None:
        """Drop everything and block nobody; with a failure, the consumer sees "producer failed"."""
        ...
