"""PipelinedSubpartition: a queue in memory for one consumer, which reads it once, while it is being written.

Does not know threads, sockets or checkpoints; the lock comes from the host. Source: Flink
PipelinedSubpartition and its view (docs/spec/exchange.md#queue-of-a-subpartition,
#priority-and-barriers-in-a-queue). Differs: a buffer is a frame of whole records, made of batches that are
joined when they are taken. The unfinished tail is the frame that is still being filled. A full
frame is visible at once.

Elements that control the queue are recognised by their attributes, so that a new kind of barrier needs no change here:
`has_priority`, `blocks_upstream`, `is_timeoutable`. A barrier has a `checkpoint_id` and, if its alignment can time
out, `as_unaligned()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.engine.model.errors import EngineBug, PartitionConnectionError, ProducerFailed
from penstock.engine.runtime.codecs.codec import concat
from penstock.engine.runtime.elements import Batch, ColumnBatch, Element, EndOfPartition
from penstock.engine.runtime.network.network_memory import LocalBufferPool
from penstock.engine.runtime.network.partition.frame_queue import FrameQueue
from penstock.engine.runtime.network.partition.subpartition import (
    REFUSED,
    Lock,
    Marks,
    OutputState,
    RowSize,
    SubpartitionOwner,
)
from penstock.engine.runtime.network.subpartition_view import (
    NextType,
    Polled,
    ViewListener,
    following,
)

MAX_ROWS_PER_FRAME: Final = 2048
_COLUMN_ROWS_DIRECT: Final = 1024
"""A column batch of at least this number of rows is not joined with others, because joining would
copy it.
"""


class _KeepsNothing:
    """The `OutputState` of a partition whose data no barrier overtakes."""

    def complete(self, checkpoint_id: int, subpartition: int, overtaken: Sequence[Batch]) -> None:
        """Does nothing: nobody waits for the data."""

    def fail(self, checkpoint_id: int, subpartition: int, cause: str) -> None:
        """Does nothing: nobody waits for the data."""


_KEEPS_NOTHING: Final = _KeepsNothing()


class PipelinedSubpartition:
    """`write`, `add`, `flush`, `finish`: the producer's thread. Its view: the consumer's thread. `release`: any thread. `taken`: frames and events that the consumer has taken; its low 32 bits."""

    __slots__ = (
        "_listener", "_lock", "_marks", "_output_state", "_owner", "_timeoutable", "_view", "index",
        "is_released", "pool", "queue", "records", "sizes", "taken",
    )  # fmt: skip

    def __init__(
        self,
        index: int,
        owner: SubpartitionOwner,
        marks: Marks,
        lock: Lock,
        frame_bytes: int,
        *,
        delivers_empty: bool = False,
        output_state: OutputState | None = None,
    ) -> None:
        """`marks`: where this subpartition puts its index. `delivers_empty`: the consumer has no buffers of its own
        and must learn of every frame, even of one whose rows were all taken before it was finished.
        """
        self.index = index
        self.records = 0
        self.is_released = False
        self.sizes = RowSize(frame_bytes, MAX_ROWS_PER_FRAME)
        self.pool: LocalBufferPool | None = None
        self._output_state = output_state or _KEEPS_NOTHING
        self._owner = owner
        self._marks = marks
        self._lock = lock
        self.queue = FrameQueue(delivers_empty=delivers_empty)
        self.taken = 0
        self._view: PipelinedSubpartitionView | None = None
        self._listener: ViewListener | None = None
        self._timeoutable: Any = None

    def use_pool(self, pool: LocalBufferPool) -> None:
        self.pool = pool
        self.sizes.limit(pool.buffer_bytes)

    def limit_frames(self, frame_bytes: int) -> None:
        self.sizes.limit(frame_bytes)

    def limit_rows(self, rows: int | None) -> None:
        with self._lock:
            self.queue.row_limit = rows
            self._marks.row_limits.set(self.index, rows)
            if not self._made_room():
                return
        self._owner.on_room(self.index)

    # -------------------------------------------------------------- producer's side

    def write(self, batch: Batch) -> None:
        rows = len(batch)
        if not rows:
            return
        self.records += rows
        self._marks.row_limits.use(self.index)
        sizes = self.sizes
        if self.queue.tail is None or rows >= sizes.frame_rows:
            sizes.sample(batch)
        if rows <= sizes.frame_rows:
            self._write(batch, rows, is_whole=rows == sizes.frame_rows)
            return
        for piece in sizes.pieces(batch):
            self._write(piece, len(piece), is_whole=True)

    def _write(self, batch: Batch, rows: int, *, is_whole: bool) -> None:
        """`is_whole`: nothing may be joined to the batch."""
        queue, limit = self.queue, self.queue.frame_rows(self.sizes.frame_rows)
        is_whole = is_whole or rows >= limit
        is_whole = is_whole or (rows >= _COLUMN_ROWS_DIRECT and isinstance(batch, ColumnBatch))
        with self._lock:
            if queue.is_finished or self.is_released:
                return
            if not is_whole and queue.takes(batch):
                is_news = queue.fill(batch, rows, limit)
            else:
                is_news = self._add_frame(batch, rows, is_finished=is_whole)
            self._watch_bound()
        if not is_whole:
            self._marks.pending.add(self.index)
        if is_news and self._listener is not None:
            self._listener.notify_data()

    def add(self, event: Element) -> int:
        """Add an event at the tail, or, if it has priority, before all entries without priority."""
        if getattr(event, "has_priority", False):
            return self._add_priority(event)
        replaced = None
        with self._lock:
            if self.queue.is_finished or self.is_released:
                return REFUSED
            is_news = self.queue.add_event(event)
            self._watch_bound()
            if getattr(event, "is_timeoutable", False):
                replaced, self._timeoutable = self._timeoutable, event
        self._fail_in_flight(replaced, "the barrier of a newer checkpoint came first")
        if is_news and self._listener is not None:
            self._listener.notify_data()
        return self.sizes.frame_bytes

    def add_frame(self, batch: Batch, *, is_finished: bool) -> int:
        """Add a frame of its own; an unfinished tail before it is finished. Returns as `add`."""
        rows = len(batch)
        with self._lock:
            if self.queue.is_finished or self.is_released:
                return REFUSED
            self.records += rows
            is_news = self._add_frame(batch, rows, is_finished=is_finished)
            self._watch_bound()
        if is_news and self._listener is not None:
            self._listener.notify_data()
        return self.sizes.frame_bytes

    def finish_tail(self) -> None:
        """Finish the frame that is being filled: later batches start another one."""
        with self._lock:
            is_news = self.queue.finish_tail()
            self._watch_bound()
        if is_news and self._listener is not None:
            self._listener.notify_data()

    def finish(self) -> None:
        with self._lock:
            if self.queue.is_finished or self.is_released:
                return
            self.queue.add_event(EndOfPartition())
            self.queue.is_finished = True
            self._watch_bound()
        if self._listener is not None:
            self._listener.notify_data()

    def flush(self) -> None:
        """Make the rows of the unfinished tail visible. Does nothing if there are none."""
        with self._lock:
            is_news = self.queue.flush()
        if is_news and self._listener is not None:
            self._listener.notify_data()

    def _add_frame(self, batch: Batch, rows: int, *, is_finished: bool) -> bool:
        if self.pool is not None:
            self.pool.take(self.index)
        return self.queue.add_frame(batch, rows, is_finished=is_finished)

    def _watch_bound(self) -> None:
        if self.queue.is_full:
            self._marks.full.add(self.index)

    def _made_room(self) -> bool:
        """Whether the producer was blocked and is not any more. The lock is held."""
        return not self.queue.is_full and self._marks.cleared(self.index)

    # -------------------------------------------------------------- priority

    def _add_priority(self, event: Element) -> int:
        queue = self.queue
        with self._lock:
            if queue.is_finished or self.is_released:
                return REFUSED
            overtaken = queue.add_priority(event)
            self._watch_bound()
            sequence, is_first, is_news = self.taken, queue.is_first_priority, queue.is_news
        if hasattr(event, "checkpoint_id"):
            self._output_state.complete(event.checkpoint_id, self.index, overtaken)
        if self._listener is not None:
            if is_first:
                self._listener.notify_priority(sequence)
            if is_news:
                self._listener.notify_data()
        return self.sizes.frame_bytes

    def time_out_barrier(self, checkpoint_id: int) -> None:
        """The aligned barrier of this checkpoint has waited too long: it overtakes the data before it. Does nothing if it has been taken."""
        with self._lock:
            barrier = self._timeoutable
            if barrier is None or barrier.checkpoint_id != checkpoint_id:
                return
            self._timeoutable = None
            before = self.queue.replace_by_priority(barrier, barrier.as_unaligned())
            sequence, is_first = self.taken, self.queue.is_first_priority
        self._output_state.complete(checkpoint_id, self.index, before)
        if is_first and self._listener is not None:
            self._listener.notify_priority(sequence)

    def abort_checkpoint(self, checkpoint_id: int, cause: str) -> None:
        """The checkpoint was aborted, so nobody waits any more for the data that its barrier would overtake."""
        with self._lock:
            barrier = self._timeoutable
            if barrier is None or barrier.checkpoint_id != checkpoint_id:
                return
            self._timeoutable = None
        self._fail_in_flight(barrier, cause)

    def _fail_in_flight(self, barrier: Any, cause: str) -> None:
        if barrier is not None:
            self._output_state.fail(barrier.checkpoint_id, self.index, cause)

    # -------------------------------------------------------------- consumer's side

    def create_view(
        self, listener: ViewListener, *, is_encoded: bool = False
    ) -> PipelinedSubpartitionView:
        """Open the only view. Its consumer polls once by itself: it is not notified of existing data. Nothing is encoded here.
        Raises: EngineBug: there is or was one. PartitionConnectionError: the partition is released.
        """
        with self._lock:
            if self._view is not None:
                raise EngineBug(
                    f"subpartition {self.index} can be consumed only once; it has a consumer"
                )
            if self.is_released:
                raise PartitionConnectionError(
                    f"subpartition {self.index} cannot be read: it was released before it was asked for"
                )
            self._view = PipelinedSubpartitionView(self, self._owner)
            self._listener = listener
            return self._view

    def poll(self, *, is_last: bool = False) -> Polled | None:
        """For the view. `is_last`: if this is a frame, the consumer takes no other before `grant`."""
        queue, through = self.queue, None
        with self._lock:
            frames = queue.frames
            taken = queue.take()
            if is_last and type(taken) is list:
                queue.is_one_with_consumer = True
            emptied = frames - queue.frames
            has_room = self._made_room()
            if taken is not None:
                polled = Polled(taken, queue.backlog, queue.next_type, self.taken)
                self.taken = following(self.taken)
                if taken is self._timeoutable:
                    through, self._timeoutable = taken, None
        self._recycle(emptied)
        if has_room:
            self._owner.on_room(self.index)
        if taken is None:
            return None
        if type(taken) is list:
            polled.element = concat(taken)
        elif through is not None:
            self._output_state.complete(through.checkpoint_id, self.index, ())
        return polled

    def grant(self) -> None:
        """For the view: the consumer takes frames again."""
        with self._lock:
            self.queue.is_one_with_consumer = False
            has_room = self._made_room()
        if has_room:
            self._owner.on_room(self.index)

    def is_available(self, *, has_credit: bool) -> bool:
        """For the view: whether a poll would give something that may be sent."""
        with self._lock:
            kind = self.queue.next_type
        return kind is not NextType.NONE and (has_credit or kind is not NextType.DATA)

    def resume(self) -> None:
        """For the view: go on after an element that blocked. Raises: EngineBug: nothing is blocked."""
        with self._lock:
            self.queue.resume()

    @property
    def backlog(self) -> int:
        """How many data frames a consumer can read."""
        with self._lock:
            return self.queue.backlog

    @property
    def queued(self) -> int:
        """Number of entries in the queue, including events and the unfinished tail."""
        return len(self.queue)

    # -------------------------------------------------------------- the end

    def release(self, failure: str | None = None) -> None:
        with self._lock:
            if self.is_released:
                return
            self.is_released = True
            dropped = self.queue.clear()
            self._marks.forget(self.index)
            view, barrier, self._timeoutable = self._view, self._timeoutable, None
        self._recycle(dropped)
        self._fail_in_flight(barrier, "the partition was released")
        if view is not None and failure is not None:
            view.failure = failure
            if self._listener is not None:
                self._listener.notify_data()
        self._owner.on_room(self.index)

    def _recycle(self, frames: int) -> None:
        if frames and self.pool is not None:
            for _ in range(frames):
                self.pool.recycle(self.index)


class PipelinedSubpartitionView:
    """The reading of the one consumer. Source: Flink PipelinedSubpartitionView."""

    __slots__ = ("_is_released", "_owner", "_parent", "failure")

    def __init__(self, parent: PipelinedSubpartition, owner: SubpartitionOwner) -> None:
        self._parent = parent
        self._owner = owner
        self._is_released = False
        self.failure: str | None = None

    @property
    def frame_bytes(self) -> int:
        return self._parent.sizes.frame_bytes

    @property
    def has_priority(self) -> bool:
        return self._parent.queue.next_type is NextType.PRIORITY_EVENT

    def measured(self, rows: int, size: int) -> None:
        self._parent.sizes.measured(rows, size)

    def poll(self) -> Polled | None:
        return self._poll(is_last=False)

    def poll_last(self) -> Polled | None:
        return self._poll(is_last=True)

    def _poll(self, *, is_last: bool) -> Polled | None:
        if self.failure is not None:
            raise ProducerFailed(f"the producer failed: {self.failure}")
        return self._parent.poll(is_last=is_last)

    def grant(self) -> None:
        self._parent.grant()

    def is_available(self, *, has_credit: bool) -> bool:
        """True also after a failure, which the next `poll` raises."""
        return self.failure is not None or self._parent.is_available(has_credit=has_credit)

    def resume(self) -> None:
        self._parent.resume()

    def acknowledge_all_records(self) -> None:
        self._owner.on_all_records_read(self._parent.index)

    def new_buffer_size(self, frame_bytes: int) -> None:
        self._parent.sizes.set_frame_bytes(frame_bytes)

    def limit_rows(self, rows: int | None) -> None:
        self._parent.limit_rows(rows)

    def disconnect(self) -> None:
        """Does nothing: the partition was not consumed, so its producer must not count as finished."""

    def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._parent.release()
            self._owner.on_consumed(self._parent.index)
