"""Keeps a job's lease and says whether its JobManager may act. One thread for each job.

That thread takes all steps in the store, so that a slow disk never delays the JobManager's loop.
`engine.machines.leases.leadership` decides what the outcome of a step means.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from penstock.engine.hosting.jobmanager.ha.store import Ended, Entry, JobStore, LeaseTaken
from penstock.engine.hosting.os.clock import monotonic_ms, wall_ms
from penstock.engine.hosting.os.worker_thread import WorkerThreads
from penstock.engine.hosting.reporting.say import say
from penstock.engine.machines.leases import Instant, Leadership, Lease, Standing
from penstock.engine.machines.rescaling.requirements import check_requirements
from penstock.engine.model.elastic import (
    JobResourceRequirements,
    requirements_from_plain,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.messages import Committable
from penstock.engine.model.states import JobStatus

_END_WAIT_MIN_S: Final = 10.0


_LOG: Final = logging.getLogger(__name__)


def requirements_of(text: str | None, job_graph: JobGraph) -> JobResourceRequirements | None:
    """Return what a former driver was asked for; None: nothing, or what does not fit the graph, which is logged."""
    if text is None:
        return None
    try:
        asked = requirements_from_plain(json.loads(text))
    except (ValueError, ConfigurationError) as error:
        findings: tuple[str, ...] = (str(error),)
    else:
        checked = check_requirements(asked, list(job_graph.vertices.values()))
        if not checked.findings:
            return checked.requirements
        findings = checked.findings
    cause = "; ".join(findings)
    _LOG.warning("job=%s requirements of a former driver are dropped: %s", job_graph.job_id, cause)
    return None


@dataclass(frozen=True, slots=True)
class RecordedResult:
    """How a job ends, recorded before any of its results is visible. A driver that takes over
    carries out this end and does not run the job again.
    """

    status: JobStatus
    net_runtime_ms: int = 0
    failure: str | None = None
    committables: tuple[Committable, ...] = ()


def read_instant() -> Instant:
    return Instant(monotonic_ms(), wall_ms())


class JobGuard:
    """The base: without high availability no other driver knows the job, and everything is allowed."""

    silence_s: float = math.inf
    """A TaskManager that has heard nothing of the driver for so long must end."""
    is_recoverable: bool = False
    """Whether another driver can go on with the job when this one cannot."""
    gives_back: bool = False
    """Whether another driver may take over a job that is suspended here without waiting for the end of its lease."""
    former_checkpoints: tuple[tuple[int, str], ...] | None = None
    """The checkpoints that the former driver recorded; None: there was no former driver."""
    former_requirements: str | None = None
    """What parallelism a former driver was asked for, as JSON; None: nothing."""

    _left: tuple[str | None] | None = None

    def why_left(self, gone: Callable[[], str | None]) -> str | None:
        """Return why a job that has failed here is left to another driver; None: it has failed for all.

        Ask only when it has failed: the first answer holds, for by it its checkpoints stay, and its entry. `gone`: returns
        why this driver can never start a TaskManager again.
        """
        if self._left is None:
            self._left = (gone() if self.is_recoverable else None,)
        return self._left[0]

    def may_vouch(self) -> bool:
        """Whether the driver may send heartbeats, each of which lets a TaskManager live for another `silence_s`."""
        return True

    def may_act(self) -> bool:
        """Whether effects of the machines may be carried out now."""
        return True

    def lost(self) -> str | None:
        """Return why the job belongs to another driver; None: it is ours, or in doubt. Must be called often."""
        return None

    def before_commit(
        self, committables: Sequence[Committable], commit: Callable[[], None]
    ) -> None:
        """Call `commit`, from any thread, once no other driver can commit anything else. Never
        called if the lease is lost.
        """
        commit()

    def record_checkpoints(self, pointers: tuple[tuple[int, str], ...]) -> None:
        """Record (id, location) of the checkpoints that a driver taking over may begin with, oldest
        first. Any thread.

        Raises: LeaseTaken, OSError: no driver will begin with the newest of them.
        """

    def asked_before(self, job_graph: JobGraph) -> JobResourceRequirements | None:
        """Return what a former driver was asked for, if it fits the job."""
        return requirements_of(self.former_requirements, job_graph)

    def record_requirements(self, text: str) -> None:
        """Record what parallelism the job may have, for a driver that takes it over. Any thread.

        Raises: LeaseTaken, OSError: it is not recorded.
        """

    def end(self, result: RecordedResult) -> str | None:
        """Record the end of a globally terminal job. Returns why this driver may not end it; None: it may."""
        return None

    def close(self, ended: RecordedResult | None) -> None:
        """Called when nothing of the job is left in this process. `ended` None: it was suspended,
        and its entry is kept.
        """


class LeaseKeeper(JobGuard):
    """Keeps the lease of one entry. Call `start` as soon as the entry is ours."""

    is_recoverable = True

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
            f"this driver does not lead job {self.job_id} any more: {cause}. It cleans "
            "nothing up: the other driver commits and reports the job's result."
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
            except OSError:
                # The leadership knows. The write is repeated until the lease is renewed or lost.
                retry = threading.Timer(self._renew_ms / 1000, self._worker.put, (record,))
                retry.daemon = True
                retry.start()
                return
            commit()

        self._worker.put(record)

    def record_checkpoints(self, pointers: tuple[tuple[int, str], ...]) -> None:
        """Record on the calling thread: the keeper's thread must renew the lease while a slow disk writes."""
        data = json.dumps(pointers).encode()
        self._prove(lambda: self._store.put(self.entry, "checkpoints", data))

    def record_requirements(self, text: str) -> None:
        self._prove(lambda: self._store.put(self.entry, "requirements", text.encode()))

    def end(self, result: RecordedResult) -> str | None:
        if result.status is JobStatus.FINISHED:
            return None  # It was recorded before the commit.
        return self._ask(lambda: self._put(result))

    def close(self, ended: RecordedResult | None) -> None:
        if ended is not None:
            token = self.entry.token
            left = Ended(token, self.job_id, str(ended.status), ended.net_runtime_ms, ended.failure)
            trouble = self._ask(lambda: self._store.remove(self.entry, left))
            if trouble is not None and self._is_still_there():
                say(
                    f"job {self.job_id} is {ended.status}, but its entry {self.entry.path} could "
                    f"not be removed ({trouble}); the next driver that finds it removes it"
                )
        elif self.gives_back and self.lost() is None:
            self._give_back()
        self._stop()

    def _is_still_there(self) -> bool:
        with contextlib.suppress(OSError):
            return self._store.find(self.entry.key) == self.entry
        return True

    def abandon(self, *, is_wanted: bool) -> None:
        """The job could not be started here. `is_wanted`: another driver may take it at once; else
        its entry is dropped.
        """
        if is_wanted:
            self._give_back()
        else:
            self._ask(lambda: self._store.drop(self.entry))
        self._stop()

    def _give_back(self) -> None:
        self._ask(lambda: self._store.renew(self.entry, replace(self._lease, duration_ms=0)))

    def _stop(self) -> None:
        self._worker.close(self._lease.duration_ms / 1000)

    def _ask(self, step: Callable[[], None]) -> str | None:
        """Take a step on the keeper's thread. Returns why it failed; None: it succeeded."""
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
        except Exception as error:
            # Also a timeout: the step may still be taken later, and must not count as done.
            return str(error) or type(error).__name__
        return None

    # ------------------------------------------------------------------ the keeper's thread

    def _beat(self) -> None:
        """Renew the lease, and report the outcome to the leadership."""
        with contextlib.suppress(LeaseTaken, OSError):
            self.renew()

    def renew(self) -> None:
        self._lease = replace(self._lease, renewals=self._lease.renewals + 1)
        self._prove(lambda: self._store.renew(self.entry, self._lease))

    def _put(self, result: RecordedResult) -> None:
        data = pickle.dumps(result, protocol=5)
        self._prove(lambda: self._store.put(self.entry, "result", data))

    def _prove(self, step: Callable[[], None]) -> None:
        """Take a step that only the holder can take. Raises: LeaseTaken, OSError."""
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
