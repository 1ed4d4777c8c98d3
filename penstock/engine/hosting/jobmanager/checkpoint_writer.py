"""Keeps the checkpoints of one job: writes and discards them on its own threads, and asks the
operators' coordinators for state.

Source: Flink DefaultCompletedCheckpointStore, CheckpointsCleaner, the I/O executor of
CheckpointCoordinator. One thread writes and another one discards, so that a slow removal never
delays a checkpoint. A checkpoint that recovery may use is complete only when its location is in the
pointers, which a driver that takes over reads.

The port through which the driver's shell stores checkpoints, and its implementation for jobs
without checkpoints.

Knows no storage. Source: Flink CheckpointStorageCoordinatorView,
OperatorCoordinatorCheckpointContext, as far as the checkpoint coordinator uses them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, assert_never

from penstock.engine.hosting.checkpoints.storage import CheckpointStorage
from penstock.engine.hosting.jobmanager.coordinators.coordinators import Coordinators
from penstock.engine.hosting.os.file_systems import check_private, parted
from penstock.engine.hosting.os.worker_thread import WorkerThreads
from penstock.engine.model import messages
from penstock.engine.model.checkpoints import CompletedCheckpoint
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import JobId

Keeping: TypeAlias = messages.StoreCheckpoint | messages.DiscardCheckpoint | messages.DiscardStates
Coordination: TypeAlias = (
    messages.SnapshotCoordinators
    | messages.CoordinatorsCheckpointEnded
    | messages.RestoreCoordinators
)


class CheckpointPort(Protocol):
    """All methods return at once. Answers go to the JobMaster as events, each exactly once."""

    def keep(self, effect: Keeping) -> None:
        """Write a checkpoint, or discard files. A StoreCheckpoint is always answered."""

    def coordinate(self, effect: Coordination) -> None:
        """Pass an effect to the operators' coordinators. A SnapshotCoordinators is always answered."""

    def answer(self, answered: messages.SavepointAnswered) -> None:
        """Answer the user who asked for a savepoint."""


class NoCheckpoints:
    """For a driver without checkpoint storage. Its JobMaster triggers no checkpoints, so most calls
    have nothing to do.
    """

    def keep(self, effect: Keeping) -> None:
        """Does nothing: nothing was ever written."""

    def coordinate(self, effect: Coordination) -> None:
        """Does nothing: no coordinator has state from a checkpoint."""

    def answer(self, answered: messages.SavepointAnswered) -> None:
        """Does nothing: no user waits for a savepoint."""


CLOSE_TIMEOUT_S: Final = 10.0
_SETTLE_POLL_S: Final = 0.005
Pointers: TypeAlias = tuple[tuple[int, str], ...]
"""(checkpoint id, location) of the checkpoints that a restart of the job may begin with, oldest first."""
Answer: TypeAlias = (
    messages.CheckpointStored | messages.CheckpointNotStored | messages.CoordinatorsSnapshotted
)
Feed: TypeAlias = Callable[[Callable[[int], Answer]], None]
"""Gives the JobMaster an event, from any thread. The function makes the event from the time at
which it is processed.
"""


class SavepointFailed(ExternalError):
    """No savepoint was taken, or the job was not stopped with one. The text says why."""


def _ended(what: str) -> SavepointFailed:
    return SavepointFailed(f"no {what} was taken: the job has ended")


class PointerStore(Protocol):
    """Records where checkpoints are, for a driver that takes over."""

    def record_checkpoints(self, pointers: Pointers) -> None:
        """Record them durably before returning. If it raises, no other driver may use the new list."""


@dataclass(frozen=True, slots=True)
class JobStorage:
    """Where a job's checkpoints are stored.

    `savepoints`: for savepoints without a directory. `is_temporary`: the directory is removed with
    the job. `first_id`: first checkpoint id of this driver. `completed`: checkpoints that the job
    begins with, oldest first. `is_taken_over`: the job was another driver's, whose further
    checkpoints may still be there.
    """

    storage: CheckpointStorage
    savepoints: str | None = None
    is_temporary: bool = False
    first_id: int = 1
    completed: tuple[CompletedCheckpoint, ...] = ()
    is_taken_over: bool = False

    def drop_unused(self) -> None:
        """Release the storage of a job that was not started."""
        if self.is_temporary:
            self.storage.remove_directory()


class CheckpointWriter:
    """`engine.hosting.checkpoints.port.CheckpointPort` over a storage. Methods are for the JobManager's
    loop unless they say otherwise.
    """

    def __init__(
        self,
        job_id: JobId,
        place: JobStorage,
        coordinators: Coordinators,
        pointers: PointerStore,
        feed: Feed,
    ) -> None:
        self._job_id = job_id
        self._place = place
        self._storage = place.storage
        self._coordinators = coordinators
        self._pointers = pointers
        self._feed = feed
        self._lock = threading.Lock()
        self._kept = list(place.completed)
        self._earlier: Sequence[CompletedCheckpoint] | None = None
        self._savepoints = 0
        self._unanswered = 0
        self._waiting: dict[str, tuple[Future[str], str]] = {}
        self._is_closed = False
        self._writer = WorkerThreads("penstock-checkpoint-writer", on_error=_log_orphan)
        self._cleaner = WorkerThreads("penstock-checkpoint-cleaner", on_error=_log_orphan)
        if place.is_taken_over:
            ids = [one.checkpoint_id for one in place.completed]
            least = max(ids) + 1 if ids else place.first_id
            self._cleaner.put(functools.partial(self._storage.sweep, ids, least))

    # ------------------------------------------------------------------ CheckpointPort

    def keep(self, effect: Keeping) -> None:
        match effect:
            case messages.StoreCheckpoint(checkpoint):
                with self._lock:
                    self._unanswered += 1
                self._writer.put(functools.partial(self._store, checkpoint))
            case messages.DiscardCheckpoint(checkpoint):
                with self._lock:
                    same = checkpoint.checkpoint_id
                    self._kept = [one for one in self._kept if one.checkpoint_id != same]
                self._cleaner.put(functools.partial(self._discard, checkpoint))
            case messages.DiscardStates():
                self._cleaner.put(functools.partial(self._storage.discard_states, effect.states))
            case _:
                assert_never(effect)

    def coordinate(self, effect: Coordination) -> None:
        match effect:
            case messages.SnapshotCoordinators(checkpoint_id):
                self._coordinators.snapshot(
                    checkpoint_id,
                    lambda states, failure: self._feed(
                        lambda now: messages.CoordinatorsSnapshotted(
                            checkpoint_id, states, now, failure
                        )
                    ),
                )
            case messages.CoordinatorsCheckpointEnded(checkpoint_id, is_completed):
                self._coordinators.checkpoint_ended(checkpoint_id, is_completed=is_completed)
            case messages.RestoreCoordinators():
                self._coordinators.restore(effect.states, effect.kept)
            case _:
                assert_never(effect)

    def answer(self, answered: messages.SavepointAnswered) -> None:
        with self._lock:
            waiting = self._waiting.pop(answered.request_id, None)
        if waiting is None:
            return
        future, what = waiting
        if answered.location is not None:
            future.set_result(parted(answered.location)[0])
        else:
            text = (
                "the JobMaster gave no cause" if answered.failure is None else answered.failure.text
            )
            future.set_exception(SavepointFailed(f"no {what} was taken: {text}"))

    # ------------------------------------------------------------------ for users' threads

    def savepoint_folder(self, directory: str | None) -> str | None:
        """Return the folder of a new savepoint, below `directory` or the configured directory;
        None: neither is set. Any thread.

        Raises: ConfigurationError: the file system is not known, or other users may write there:
        nothing could be restored later, and a job must not stop with such a savepoint.
        """
        wanted = directory or self._place.savepoints
        if wanted is None:
            return None
        check_private(wanted)
        return self._storage.new_savepoint(wanted)

    def expect_savepoint(self, request_id: str, what: str = "savepoint") -> Future[str]:
        """Return a future of the folder. It fails with SavepointFailed if there is none when the
        job ends. `what`: "savepoint" or "checkpoint", for the user. Any thread.
        """
        future: Future[str] = Future()
        with self._lock:
            if self._is_closed:
                future.set_exception(_ended(what))
            else:
                self._waiting[request_id] = future, what
        return future

    # ------------------------------------------------------------------ the job's end

    @property
    def is_settled(self) -> bool:
        """Whether every write that was asked for has been answered."""
        with self._lock:
            return self._unanswered == 0

    @property
    def keeps_own(self) -> bool:
        """Whether checkpoints or savepoints of this job stay after its end, so that a later run may begin with them."""
        with self._lock:
            return bool(self._savepoints) or any(c.job_id == self._job_id for c in self._kept)

    def close(self, *, is_over: bool) -> None:
        """Stop after a bounded time; what is not done by then is left.

        `is_over` False: the job is SUSPENDED, and all checkpoints stay.
        """
        with self._lock:
            self._is_closed = True
            waiting, self._waiting = self._waiting, {}
            kept = [one.checkpoint_id for one in self._kept if one.job_id == self._job_id]
        for future, what in waiting.values():
            future.set_exception(_ended(what))
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        self._writer.close(max(0.0, deadline - time.monotonic()))
        if is_over:
            self._cleaner.put(functools.partial(self._clean_up, kept))
        self._cleaner.close(max(0.0, deadline - time.monotonic()))

    # ------------------------------------------------------------------ on the threads

    def _store(self, checkpoint: CompletedCheckpoint) -> None:
        checkpoint_id = checkpoint.checkpoint_id
        try:
            location, size = self._write(checkpoint)
        except Exception as error:
            # Any error must be reported: the JobMaster waits for the answer.
            text = f"{type(error).__name__}: {error}"
            self._feed(lambda now: messages.CheckpointNotStored(checkpoint_id, text, now))
        else:
            self._feed(lambda now: messages.CheckpointStored(checkpoint_id, location, now, size))
        finally:
            with self._lock:
                self._unanswered -= 1

    def _write(self, checkpoint: CompletedCheckpoint) -> tuple[str, int]:
        """Returns: where its metadata is, and how many bytes that has."""
        folder = checkpoint.target_directory
        if folder is None:
            folder = self._storage.folder_of(checkpoint.checkpoint_id)
        stored = self._storage.complete(checkpoint, folder)
        assert stored.location is not None
        if not stored.is_for_recovery:
            with self._lock:
                self._savepoints += 1
            return stored.location, stored.metadata_bytes
        with self._lock:
            kept = [*self._kept, stored]
        try:
            self._pointers.record_checkpoints(_pointers_of(kept))
        except BaseException:
            with contextlib.suppress(Exception):
                self._storage.withdraw(stored)
            raise
        with self._lock:
            self._kept.append(stored)
        return stored.location, stored.metadata_bytes

    def _discard(self, checkpoint: CompletedCheckpoint) -> None:
        self._storage.discard(checkpoint)
        if checkpoint.job_id != self._job_id:
            self._storage.discard_claimed(checkpoint)
        with self._lock:
            kept = list(self._kept)
        if kept:
            newest = max(one.checkpoint_id for one in kept)
            self._storage.discard_shared([*kept, *self._of_earlier_runs()], newest)

    def _of_earlier_runs(self) -> Sequence[CompletedCheckpoint]:
        """Return checkpoints of earlier runs in the same folder; their files stay. On the cleaner's thread."""
        if self._earlier is None:
            begun_with = [one.checkpoint_id for one in self._place.completed]
            self._earlier = self._storage.earlier(self._place.first_id, begun_with)
        return self._earlier

    def _clean_up(self, kept: Sequence[int]) -> None:
        """Remove everything of a job that is over, except what is kept on purpose."""
        if self._place.is_temporary and not kept:
            self._storage.remove_directory()
        else:
            with self._lock:
                checkpoints = list(self._kept)
            self._storage.sweep(kept, self._place.first_id)
            self._storage.discard_shared([*checkpoints, *self._of_earlier_runs()], None)
            self._storage.remove_if_empty()


def checkpoint_writer_of(
    job_id: JobId,
    place: JobStorage | None,
    coordinators: Coordinators,
    pointers: PointerStore,
    feed: Feed,
) -> CheckpointWriter | None:
    """Return the job's writer; None: it has no storage for checkpoints."""
    if place is None:
        return None
    return CheckpointWriter(job_id, place, coordinators, pointers, feed)


async def settled(writer: CheckpointWriter | None, is_broken: Callable[[], bool]) -> None:
    """Wait a bounded time, on the loop, until the checkpoint that is being written as the job ends has its answer."""
    deadline = time.monotonic() + CLOSE_TIMEOUT_S
    while writer is not None and not is_broken() and time.monotonic() < deadline:
        if writer.is_settled:
            await asyncio.sleep(0)  # Its answer was put into the queue before this call.
            return
        await asyncio.sleep(_SETTLE_POLL_S)


def _pointers_of(kept: Sequence[CompletedCheckpoint]) -> Pointers:
    return tuple((one.checkpoint_id, one.location) for one in kept if one.location is not None)


def _log_orphan(_error: BaseException) -> None:
    """Log a removal that failed. It leaves an orphan, which the next clean-up finds."""
