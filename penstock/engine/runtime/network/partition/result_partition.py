"""ResultPartition: the part of one data set that one attempt of a task produces, with a subpartition for each consumer.

Does not know the inside of subpartitions, or threads: a callable wakes the producer, and `PartitionManager` registers the
partition for its consumers. Source: Flink ResultPartition, PipelinedResultPartition,
ResultPartitionWriter (docs/spec/exchange.md#result-partitions). Differs: the type, not a subclass, decides whether a partition is
released on consumption or by the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from penstock.engine.model.errors import EngineBug
from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.model.ids import ResultPartitionId
from penstock.engine.runtime.elements import CheckpointBarrier, Element, EndOfData
from penstock.engine.runtime.network.network_memory import (
    LocalBufferPool,
    NetworkMemory,
    PoolLimits,
    output_buffers,
)
from penstock.engine.runtime.network.network_settings import NetworkSettings
from penstock.engine.runtime.network.partition.blocking import BoundedBlockingSubpartition
from penstock.engine.runtime.network.partition.bounded_data import BoundedData
from penstock.engine.runtime.network.partition.buffer_builder import BlockingFormat
from penstock.engine.runtime.network.partition.pipelined import PipelinedSubpartition
from penstock.engine.runtime.network.partition.subpartition import (
    FrameView,
    Lock,
    Marks,
    OutputState,
    Subpartition,
)
from penstock.engine.runtime.network.subpartition_view import ViewListener

MakeLock = Callable[[], Lock]
NO_LOCK: Final[MakeLock] = nullcontext


class ReleaseOnConsumption:
    """Counts the users of a pipelined partition down. Not thread-safe: its owner calls it under its lock.

    Source: Flink ReleaseOnConsumptionResultPartition (docs/spec/exchange.md#result-partitions), in both of its forms.
    The newer one, which this product uses, counts the producing task as a user as well.
    """

    def __init__(self, subpartitions: int, *, is_producer_a_user: bool = True) -> None:
        """`is_producer_a_user` False: the older form, in which the last consumer releases the partition."""
        self._has_consumed = [False] * subpartitions
        self._is_producer_a_user = is_producer_a_user
        self._is_closed = False
        self._users = subpartitions + is_producer_a_user

    @property
    def is_released(self) -> bool:
        return self._users == 0

    def consumed(self, subpartition: int) -> bool:
        """A consumer has finished with its subpartition; a second call does nothing. Returns whether it was the last user.

        Raises: EngineBug: there is no such subpartition.
        """
        if not 0 <= subpartition < len(self._has_consumed):
            raise EngineBug(
                f"subpartition {subpartition} was consumed, but the partition has "
                f"{len(self._has_consumed)}"
            )
        if self._has_consumed[subpartition]:
            return False
        self._has_consumed[subpartition] = True
        return self._let_go()

    def closed_by_producer(self) -> bool:
        """The producing task has closed the partition. Returns whether it was the last user."""
        if self._is_closed or not self._is_producer_a_user:
            return False
        self._is_closed = True
        return self._let_go()

    def _let_go(self) -> bool:
        self._users -= 1
        return self._users == 0


class PartitionManager(Protocol):
    """Where consumers find partitions. Source: Flink ResultPartitionManager."""

    def register(self, partition: ResultPartition) -> None:
        """Raises: EngineBug: the manager was shut down, or has this partition already."""
        ...

    def release(self, partition_id: ResultPartitionId, failure: str | None = None) -> None:
        """Forget a partition and release it. Does nothing for an unknown one."""
        ...


class MakePool(Protocol):
    """Asks the network memory for a pool of this partition's size. Raises: InsufficientBuffers."""

    def __call__(
        self, on_available: Callable[[], None], on_resize: Callable[[], None]
    ) -> LocalBufferPool: ...


def _wake_nobody() -> None:
    """For a partition in files, whose producer never waits."""


@dataclass(frozen=True, slots=True)
class PartitionHooks:
    """The callbacks of a partition. They may be called on any thread.

    `wake_producer`: there is room again. `notify_read_whole`: consumers have read the last record. `output_state`: takes the data that
    barriers overtake; None: they overtake nothing. `may_be_overtaken` False: barriers do not overtake data on this edge.
    `producer`: the operator whose output it is, for errors about records that cannot be encoded.
    """

    wake_producer: Callable[[], None] = _wake_nobody
    notify_read_whole: Callable[[], None] = _wake_nobody
    output_state: OutputState | None = None
    may_be_overtaken: bool = True
    producer: ChainedOperator | None = None


class ResultPartition:
    """Call `setup`, then write from one thread until `finish`. Call `close` when the task ends, however it ends.

    `pool` None: memory does not limit it.
    """

    def __init__(
        self,
        partition_id: ResultPartitionId,
        result_type: ResultPartitionType,
        hooks: PartitionHooks,
        lock: Lock,
    ) -> None:
        self.partition_id = partition_id
        self.result_type = result_type
        self.hooks = hooks
        self.subpartitions: Sequence[Subpartition] = ()
        self.failure: str | None = None
        self.marks = Marks()
        self.is_finished = False
        self.is_released = False
        self.remote_bytes_out = 0
        self._lock = lock
        self._manager: PartitionManager | None = None
        self.pool: LocalBufferPool | None = None
        self._users: ReleaseOnConsumption | None = None
        self._has_ended_data = False
        self._readers_at_end: set[int] = set()

    def setup(self, manager: PartitionManager, make_pool: MakePool | None = None) -> None:
        """Get buffers, then register for consumers. `make_pool` None: memory does not limit it.

        Raises: EngineBug: it was set up before. InsufficientBuffers.
        """
        if self._manager is not None:
            raise EngineBug(f"partition {self.partition_id} was set up twice")
        self._manager = manager
        if not self.result_type.is_released_by_scheduler:
            self._users = ReleaseOnConsumption(len(self.subpartitions))
        if make_pool is not None:
            self.pool = make_pool(self.hooks.wake_producer, self._resize)
            for subpartition in self.subpartitions:
                subpartition.use_pool(self.pool)
        manager.register(self)

    def _resize(self) -> None:
        """The pool's buffers have another size. Any thread."""
        if self.pool is not None:
            for subpartition in self.subpartitions:
                subpartition.limit_frames(self.pool.buffer_bytes)

    def limit_rows(self, rows: int) -> None:
        """Let only `rows` records wait in each subpartition until its consumer asks for more."""
        for subpartition in self.subpartitions:
            subpartition.limit_rows(rows)

    # ------------------------------------------------------------------ writing

    @property
    def is_available(self) -> bool:
        """Whether every subpartition has room and a buffer is free. Otherwise the producer must pause (nothing is dropped if
        it does not).
        """
        return not self.marks.full and (self.pool is None or self.pool.is_available)

    def flush(self) -> None:
        """Make all gathered data visible to consumers."""
        pending = self.marks.pending
        if pending:
            for index in pending:
                self.subpartitions[index].flush()
            pending.clear()

    def broadcast_event(self, event: Element) -> None:
        """Send an event to every consumer, after everything written before or, with priority, ahead
        of it.

        Raises: EngineBug: the partition is finished.
        """
        if self.is_finished:
            raise EngineBug(
                f"partition {self.partition_id} is finished, but {event!r} was written to it"
            )
        if isinstance(event, CheckpointBarrier) and not self.hooks.may_be_overtaken:
            event = event.as_forced_aligned()
        for subpartition in self.subpartitions:
            subpartition.add(event)

    def notify_end_of_data(self, end: EndOfData) -> None:
        """Notify consumers that no more records come. A second call does nothing."""
        if not self._has_ended_data:
            self._has_ended_data = True
            self.broadcast_event(end)

    def finish(self) -> None:
        """Nothing more will be written. Raises: EngineBug: it is finished."""
        if self.is_finished:
            raise EngineBug(f"partition {self.partition_id} was finished twice")
        self.is_finished = True
        for subpartition in self.subpartitions:
            subpartition.finish()

    @property
    def queued(self) -> int:
        """Frames and events that consumers have not taken; 0 for a partition in files."""
        if self.result_type.is_released_by_scheduler:
            return 0
        return sum(subpartition.queued for subpartition in self.subpartitions)

    def count_remote_bytes(self, size: int) -> None:
        """Count the bytes of a frame that was sent over a socket."""
        self.remote_bytes_out += size

    # ------------------------------------------------------------------ reading

    def create_view(
        self, subpartition: int, listener: ViewListener, *, is_encoded: bool = False
    ) -> FrameView:
        """`is_encoded`: frames that are encoded already may be given as they are.

        Raises: EngineBug: it can be read once and has a reader. PartitionNotFound: its data is gone.
        PartitionConnectionError: it was released.
        """
        return self.subpartitions[subpartition].create_view(listener, is_encoded=is_encoded)

    @property
    def is_consumed(self) -> bool:
        """Whether every consumer has finished with it. Always true for a partition that outlives its task."""
        if self.result_type.is_released_by_scheduler:
            return True
        return all(subpartition.is_released for subpartition in self.subpartitions)

    @property
    def is_read_whole(self) -> bool:
        """Whether every consumer has read the last record or has finished. Always true for a partition that outlives its task."""
        if self.result_type.is_released_by_scheduler:
            return True
        return len(self._readers_at_end) == len(self.subpartitions)

    def on_all_records_read(self, index: int) -> None:
        """Called by a subpartition: its consumer has read the last record."""
        if self.result_type.is_released_by_scheduler:
            return
        with self._lock:
            is_news = index not in self._readers_at_end
            self._readers_at_end.add(index)
            is_last = len(self._readers_at_end) == len(self.subpartitions)
        if is_news and is_last:
            self.hooks.notify_read_whole()

    def on_consumed(self, index: int) -> None:
        """Called by a subpartition: its consumer has finished. The last user releases the partition."""
        self.on_all_records_read(index)
        users = self._users
        if users is None:
            return
        with self._lock:
            is_last = users.consumed(index)
        self._release_if(is_last=is_last)

    def on_room(self, index: int) -> None:
        """Called by a full subpartition that has room again."""
        if not self.marks.full:
            self.hooks.wake_producer()

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """The task has ended and does not use the partition any more."""
        users = self._users
        if users is None:
            return
        with self._lock:
            is_last = users.closed_by_producer()
        self._release_if(is_last=is_last)

    def fail(self, failure: str | None) -> None:
        """The attempt failed. With a `failure` consumers get "producer failed"."""
        if self._manager is not None:
            self._manager.release(self.partition_id, failure)
        self.release(failure)

    def release(self, failure: str | None = None) -> None:
        """Drop everything. Only the first call counts."""
        with self._lock:
            if self.is_released:
                return
            self.is_released = True
        self.failure = failure
        for subpartition in self.subpartitions:
            subpartition.release(failure)
        if self.pool is not None:
            self.pool.destroy()

    def _release_if(self, *, is_last: bool) -> None:
        if is_last and self._manager is not None:
            self._manager.release(self.partition_id)


def pipelined_partition(
    partition_id: ResultPartitionId,
    subpartitions: int,
    frame_bytes: int,
    hooks: PartitionHooks,
    make_lock: MakeLock = NO_LOCK,
    result_type: ResultPartitionType = ResultPartitionType.PIPELINED_BOUNDED,
    *,
    delivers_empty: bool = False,
) -> ResultPartition:
    """A partition in memory that is read once, while it is written.

    Args: frame_bytes: the wanted size of frames. make_lock: called once for each subpartition and once for
    the partition; the default is for one thread only. delivers_empty: consumers have no buffers of their own, and
    must get an element for each frame of which they were notified.
    """
    partition = ResultPartition(partition_id, result_type, hooks, make_lock())
    partition.subpartitions = [
        PipelinedSubpartition(
            index,
            partition,
            partition.marks,
            make_lock(),
            frame_bytes,
            delivers_empty=delivers_empty,
            output_state=hooks.output_state,
        )
        for index in range(subpartitions)
    ]
    return partition


def blocking_partition(
    partition_id: ResultPartitionId,
    subpartitions: int,
    make_data: Callable[[], BoundedData],
    blocking_format: BlockingFormat,
    make_lock: MakeLock = NO_LOCK,
    result_type: ResultPartitionType = ResultPartitionType.BLOCKING,
    hooks: PartitionHooks | None = None,
) -> ResultPartition:
    """A partition in files, which is read any number of times when it is complete.

    Each subpartition has a file of its own.
    Args: make_data: called once for each subpartition. Raises: ResultWriteError: a file cannot be made.
    """
    partition = ResultPartition(partition_id, result_type, hooks or PartitionHooks(), make_lock())
    made: list[BoundedBlockingSubpartition] = []
    partition.subpartitions = made
    try:
        for index in range(subpartitions):
            lock = make_lock()
            made.append(
                BoundedBlockingSubpartition(index, partition, make_data(), lock, blocking_format)
            )
    except BaseException:
        partition.release()
        raise
    return partition


def pool_of(
    partition: ResultPartition, memory: NetworkMemory, network: NetworkSettings
) -> MakePool:
    """The argument of `setup`: makes a pool with the limits that the partition's type and number of subpartitions require."""
    subpartitions = len(partition.subpartitions)
    required, maximum = output_buffers(
        subpartitions,
        is_bounded=partition.result_type.has_bounded_buffers,
        per_channel=network.buffers_per_channel,
        floating=network.floating_per_gate,
    )
    limits = PoolLimits(
        required,
        maximum,
        subpartitions,
        per_subpartition=network.max_per_subpartition,
        overdraft=network.max_overdraft,
    )
    return partial(memory.create_pool, limits)
