"""Checkpoints of the tasks of a TaskManager: triggers and ends come as mails, snapshots are written beside the task.

The mailbox thread hands over a frozen snapshot and goes on; a writing thread puts it into bytes and files, and tells the
driver. What cannot be written is declined: the job goes on with its last checkpoint. Source: Flink
SubtaskCheckpointCoordinatorImpl, AsyncCheckpointRunnable (spec 10.3).
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from penstock.hosting.checkpoints.files import CheckpointIoError
from penstock.hosting.checkpoints.storage import CheckpointStorage
from penstock.hosting.closures import dumps_records, loads_records
from penstock.hosting.task_restore import groups_of
from penstock.model.checkpoints import (
    CheckpointMetrics,
    StateHandle,
    SubtaskState,
    TaskCheckpointing,
)
from penstock.model.errors import EngineBug
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointFailureReason,
    DeclineCheckpoint,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)
from penstock.model.states import ExecutionState
from penstock.runtime.checkpoint.snapshot import OperatorSnapshot, Sharing
from penstock.runtime.checkpoint.state_format import write_operator
from penstock.runtime.elements import CheckpointBarrier
from penstock.runtime.mailbox import MAX_PRIORITY
from penstock.runtime.task import TaskSnapshot

if TYPE_CHECKING:
    from penstock.hosting.task_thread import TaskThread

MAX_WAITING: Final = 256
"""Snapshots of one TaskManager that wait to be written: each holds a copy of a task's state."""
MAX_THREADS: Final = 4
_CLOSE_TIMEOUT_S: Final = 1.0


class SnapshotWriters:
    """Threads that write for all tasks of a TaskManager. Daemons: a file system that hangs must not keep it alive."""

    def __init__(self, threads: int) -> None:
        """`threads`: at most so many, started as they are needed."""
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._max = max(1, min(threads, MAX_THREADS))
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._is_closed = False

    def submit(self, job: Callable[[], None]) -> bool:
        """False: too many wait, or all is over. Any thread."""
        with self._lock:
            if self._is_closed or self._unfinished >= MAX_WAITING + self._max:
                return False
            self._unfinished += 1
            if len(self._threads) < min(self._max, self._unfinished):
                name = f"penstock-snapshots-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
                self._threads[-1].start()
            self._jobs.put(job)
        return True

    def close(self) -> None:
        """What is being written may come to its end; who waits does not."""
        with self._lock:
            self._is_closed = True
            threads = list(self._threads)
            for _ in threads:
                self._jobs.put(None)
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if not self._is_closed:
                    job()
            except BaseException:
                traceback.print_exc()
            finally:
                with self._lock:
                    self._unfinished -= 1


class _Abandoned(Exception):
    """Nobody wants this snapshot any more."""


@dataclass(eq=False, slots=True)
class _Writing:
    """One snapshot on its way. `operators`: head first. `metrics`: without what is not known yet."""

    barrier: CheckpointBarrier
    operators: list[tuple[str, OperatorSnapshot]]
    metrics: CheckpointMetrics
    is_at_end: bool
    taken_at: float = field(default_factory=time.monotonic)
    is_abandoned: bool = False

    def check_wanted(self) -> None:
        """Raises: _Abandoned."""
        if self.is_abandoned:
            raise _Abandoned


class TaskCheckpoints:
    """Of one attempt. `alignment_ms`: asked when a snapshot is taken, how long its barriers took to come together."""

    def __init__(self, thread: TaskThread) -> None:
        self.alignment_ms: Callable[[], int] = _no_time
        self._thread = thread
        self._storage: CheckpointStorage | None = None
        self._writing: dict[int, _Writing] = {}
        self._lock = threading.Lock()

    @property
    def settings(self) -> TaskCheckpointing | None:
        """None: the job has no checkpoints."""
        return self._thread.host.task_settings.checkpointing

    # ------------------------------------------------------------------ from the driver: any thread

    def trigger(self, message: TriggerCheckpoint) -> None:
        """Take a snapshot between two slices, or say why not."""
        refusal = self._refusal()
        if refusal is not None:
            self.decline(message.checkpoint_id, *refusal)
            return
        barrier = CheckpointBarrier(message.checkpoint_id, message.timestamp_ms, message.options)
        self._thread.mail_to_built(
            lambda built: built.trigger_checkpoint(barrier),
            f"trigger checkpoint {message.checkpoint_id}",
        )

    def completed(self, message: NotifyCheckpointComplete) -> None:
        self._thread.mail_to_built(
            lambda built: built.task.notify_checkpoint_complete(message.checkpoint_id),
            f"checkpoint {message.checkpoint_id} is complete",
            MAX_PRIORITY,
        )

    def aborted(self, message: NotifyCheckpointAborted) -> None:
        checkpoint_id, latest = message.checkpoint_id, message.latest_completed_id
        self._abandon(lambda one: one == checkpoint_id)
        self._thread.mail_to_built(
            lambda built: built.task.notify_checkpoint_aborted(checkpoint_id, latest),
            f"checkpoint {checkpoint_id} is aborted",
            MAX_PRIORITY,
        )

    def _refusal(self) -> tuple[CheckpointFailureReason, str] | None:
        state = self._thread.state
        if state is not ExecutionState.RUNNING:
            return CheckpointFailureReason.TASK_NOT_READY, f"the task is {state}"
        if self.settings is None:
            text = "the tasks of this job were not told of a checkpoint directory"
            return CheckpointFailureReason.CHECKPOINT_DECLINED, text
        return None

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, text: str = "") -> None:
        """Any thread."""
        message = DeclineCheckpoint(self._thread.attempt_id, checkpoint_id, reason, text)
        self._thread.host.send(message)

    # ------------------------------------------------------------------ mailbox thread

    def storage(self) -> CheckpointStorage:
        """Raises: ConfigurationError: the directory cannot be opened. EngineBug: the job has none."""
        settings = self.settings
        if settings is None:
            raise EngineBug(
                "a task needs the checkpoint directory, but was not told of one: TaskSettings.checkpointing is None"
            )
        with self._lock:
            if self._storage is None:
                job_id = self._thread.deployment.job_id
                self._storage = CheckpointStorage(settings.directory, job_id)
            return self._storage

    def on_snapshot(self, snapshot: TaskSnapshot) -> None:
        """The task has frozen its state and goes on."""
        barrier = snapshot.barrier
        metrics = CheckpointMetrics(
            alignment_ms=self.alignment_ms(),
            sync_ms=snapshot.sync_ns / 1e6,
            start_delay_ms=max(0, time.time_ns() // 1_000_000 - barrier.timestamp_ms),
        )
        head_first = list(reversed(snapshot.operators.items()))
        writing = _Writing(barrier, head_first, metrics, snapshot.is_at_end)
        with self._lock:
            self._writing[barrier.checkpoint_id] = writing
        if not self._thread.host.snapshot_writers.submit(lambda: self._write(writing)):
            self._ended(writing)
            text = f"{MAX_WAITING} snapshots wait to be written on this TaskManager already"
            self.decline(barrier.checkpoint_id, CheckpointFailureReason.ASYNC_EXCEPTION, text)

    @property
    def is_settled(self) -> bool:
        """Nothing is being written: what the driver has to know of it was sent."""
        return not self._writing

    def abandon(self) -> None:
        """The attempt does not finish: its snapshots are of no use."""
        self._abandon(lambda _checkpoint_id: True)

    def _abandon(self, is_meant: Callable[[int], bool]) -> None:
        with self._lock:
            for checkpoint_id, writing in self._writing.items():
                writing.is_abandoned = writing.is_abandoned or is_meant(checkpoint_id)

    # ------------------------------------------------------------------ a writing thread

    def _write(self, writing: _Writing) -> None:
        checkpoint_id = writing.barrier.checkpoint_id
        is_kept = False
        try:
            state = self._written(writing)
            is_kept = True
            async_ms = (time.monotonic() - writing.taken_at) * 1000
            metrics = replace(writing.metrics, async_ms=async_ms)
            attempt_id = self._thread.attempt_id
            self._thread.host.send(AcknowledgeCheckpoint(attempt_id, checkpoint_id, state, metrics))
        except _Abandoned:
            pass
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self.decline(checkpoint_id, CheckpointFailureReason.ASYNC_EXCEPTION, text)
        finally:
            self._ended(writing, is_kept=is_kept)
            self._thread.waker.wake()

    def _written(self, writing: _Writing) -> SubtaskState:
        """Everything is durable, or nothing is left. Raises: _Abandoned; what writing raises."""
        settings, barrier = self.settings, writing.barrier
        assert settings is not None, "a snapshot was taken in a job without checkpoints"
        storage = self.storage()
        folder = barrier.options.target or storage.folder_of(barrier.checkpoint_id)
        writer = storage.writer(folder, settings.inline_bytes, barrier.checkpoint_id)

        def add(data: bytes) -> StateHandle:
            writing.check_wanted()
            return writer.add(data)

        def share(data: bytes) -> StateHandle:
            writing.check_wanted()
            return writer.share(data)

        sharing = None
        if settings.is_incremental and not barrier.options.type.is_savepoint:
            sharing = Sharing(groups_of(self._thread.deployment), share, storage.is_shared_here)
        try:
            states = [
                (uid, write_operator(snapshot, add, dumps_records, loads_records, sharing))
                for uid, snapshot in writing.operators
            ]
            writer.close()
            writing.check_wanted()
        except BaseException:
            with contextlib.suppress(
                CheckpointIoError
            ):  # the first error counts; the driver sweeps
                writer.abandon()
            raise
        operators = tuple((uid, state) for uid, state in states if any(state.handles))
        return SubtaskState(operators, writing.is_at_end)

    def _ended(self, writing: _Writing, *, is_kept: bool = False) -> None:
        for _, snapshot in writing.operators:
            snapshot.close(is_kept=is_kept)
        with self._lock:
            self._writing.pop(writing.barrier.checkpoint_id, None)


def _no_time() -> int:
    """A task without inputs aligns nothing."""
    return 0
