"""Keeps a job's lease and says whether its JobManager may act: one thread for each job.

All steps in the store are taken by that thread, so that a slow disk never holds up the JobManager's loop. What they mean is
`machines.leases.leadership`'s affair.
"""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from penstock.hosting.clock import monotonic_ms, wall_ms
from penstock.hosting.ha.store import Ended, Entry, JobStore, LeaseTaken
from penstock.hosting.worker_thread import WorkerThreads
from penstock.machines.leases.leadership import Instant, Leadership, Lease, Standing
from penstock.model.messages import Committable
from penstock.model.states import JobStatus

_END_WAIT_MIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class RecordedResult:
    """How a job ends, decided before anything of it is visible: who takes over does that again, not the job."""

    status: JobStatus
    net_runtime_ms: int = 0
    failure: str | None = None
    committables: tuple[Committable, ...] = ()


def read_instant() -> Instant:
    return Instant(monotonic_ms(), wall_ms())


class JobGuard:
    """Base with the neutral behaviour, without high availability: nobody else knows of the job."""

    silence_s: float = math.inf
    """A TaskManager that hears nothing of the driver for so long must end."""
    former_checkpoints: tuple[tuple[int, str], ...] | None = None
    """What the former driver recorded; None: there was no former driver."""

    def may_vouch(self) -> bool:
        """Whether the driver may tell its TaskManagers to live on for `silence_s`."""
        return True

    def may_act(self) -> bool:
        """Whether effects of the machines may be carried out now."""
        return True

    def lost(self) -> str | None:
        """Call often. Why the job is another's; None while it is ours, or in doubt."""
        return None

    def before_commit(
        self, committables: Sequence[Committable], commit: Callable[[], None]
    ) -> None:
        """Calls `commit`, from any thread, once nobody else can commit anything else; never when fenced."""
        commit()

    def record_checkpoints(self, pointers: tuple[tuple[int, str], ...]) -> None:
        """(id, location) of the checkpoints that whoever takes over may begin with, oldest first. Any thread.

        Raises: LeaseTaken, OSError: nobody will begin with the newest of them.
        """

    def end(self, result: RecordedResult) -> str | None:
        """The job is globally terminal. Returns why it is not ours to end, if it is not."""
        return None

    def close(self, ended: RecordedResult | None) -> None:
        """Nothing of the job is left here. `ended` None: it was suspended, and all is kept."""


class LeaseKeeper(JobGuard):
    """The lease of one entry; `start` it as soon as the entry is ours."""

    def __init__(
        self, store: JobStore, entry: Entry, lease: Lease, renew_ms: int, leadership: Leadership
    ) -> None:
        self.entry = entry
        self.job_id = lease.job_id
        self._store = store
        self._lease = replace(lease, token=entry.token)
        self._renew_ms = renew_ms
        self._leadership = leadership
        self.silence_s = leadership.silence_ms / 1000
        self._lock = threading.Lock()
        self._worker = WorkerThreads("penstock-lease", tick=(renew_ms / 1000, self._beat))

    def start(self) -> None:
        self._worker.start()

    # ------------------------------------------------------------------ the JobManager's side

    def may_vouch(self) -> bool:
        with self._lock:
            return self._leadership.may_vouch(read_instant())

    def may_act(self) -> bool:
        with self._lock:
            return self._leadership.may_act(read_instant())

    def lost(self) -> str | None:
        with self._lock:
            is_lost = self._leadership.tick(read_instant()) is Standing.LOST
            cause = self._leadership.cause
        if not is_lost:
            return None
        return (
            f"this driver does not lead job {self.job_id} any more: {cause}. Nothing is cleaned up here; the "
            "job's result is the other driver's to commit and to tell."
        )

    def before_commit(
        self, committables: Sequence[Committable], commit: Callable[[], None]
    ) -> None:
        result = RecordedResult(JobStatus.FINISHED, committables=tuple(committables))

        def record() -> None:
            try:
                self._put(result)
            except LeaseTaken:
                return
            except OSError:  # the leadership knows: tried again with the renewals, until it is lost
                retry = threading.Timer(self._renew_ms / 1000, self._worker.put, (record,))
                retry.daemon = True
                retry.start()
                return
            commit()

        self._worker.put(record)

    def record_checkpoints(self, pointers: tuple[tuple[int, str], ...]) -> None:
        """On the thread that calls: the lease must go on being renewed while a slow disk writes."""
        told = json.dumps(pointers).encode()
        self._prove(lambda: self._store.put_checkpoints(self.entry, told))

    def end(self, result: RecordedResult) -> str | None:
        if result.status is JobStatus.FINISHED:
            return None  # recorded before the commit
        return self._ask(lambda: self._put(result))

    def close(self, ended: RecordedResult | None) -> None:
        if ended is not None:
            token = self.entry.token
            left = Ended(token, self.job_id, str(ended.status), ended.net_runtime_ms, ended.failure)
            trouble = self._ask(lambda: self._store.remove(self.entry, left))
            if trouble is not None and self._is_still_there():
                print(
                    f"penstock: job {self.job_id} is {ended.status}, but its entry {self.entry.path} could "
                    f"not be removed ({trouble}); the next driver that finds it will",
                    file=sys.stderr,
                )
        self._stop()

    def _is_still_there(self) -> bool:
        with contextlib.suppress(OSError):
            return self._store.find(self.entry.key) == self.entry
        return True

    def abandon(self, *, is_wanted: bool) -> None:
        """The job could not be started here. `is_wanted`: another driver may try at once."""
        if is_wanted:
            self._ask(lambda: self._store.renew(self.entry, replace(self._lease, duration_ms=0)))
        else:
            self._ask(lambda: self._store.drop(self.entry))
        self._stop()

    def _stop(self) -> None:
        self._worker.close(self._lease.duration_ms / 1000)

    def _ask(self, step: Callable[[], None]) -> str | None:
        """Take a step on the keeper's thread; why it could not be, if so."""
        done: Future[None] = Future()

        def take() -> None:
            try:
                step()
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._worker.put(take)
        try:
            done.result(max(_END_WAIT_MIN_S, self._lease.duration_ms / 1000))
        except Exception as error:  # in time or not: the step may not be taken as done
            return str(error) or type(error).__name__
        return None

    # ------------------------------------------------------------------ the keeper's thread

    def _beat(self) -> None:
        """What comes of it the leadership knows."""
        with contextlib.suppress(LeaseTaken, OSError):
            self._renew()

    def _renew(self) -> None:
        self._lease = replace(self._lease, renewals=self._lease.renewals + 1)
        self._prove(lambda: self._store.renew(self.entry, self._lease))

    def _put(self, result: RecordedResult) -> None:
        self._prove(lambda: self._store.put_result(self.entry, pickle.dumps(result, protocol=5)))

    def _prove(self, step: Callable[[], None]) -> None:
        """A step that only the holder can take. Raises what it raises: LeaseTaken, OSError."""
        asked = read_instant()
        try:
            step()
        except LeaseTaken as error:
            with self._lock:
                self._leadership.taken(str(error))
            raise
        except OSError as error:
            with self._lock:
                self._leadership.unreachable(str(error))
            raise
        with self._lock:
            self._leadership.proved(asked)
