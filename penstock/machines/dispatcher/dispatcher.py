"""The Dispatcher: takes jobs, lets them start, cancels them, and sees to it that nothing of them is left behind.

Deterministic: each call is told the time and returns what is to be done. Knows no job's graph. Source: Flink Dispatcher,
DispatcherResourceCleaner, JobResultStore; differs: a cancel that comes while a job initialises is kept and carried out as soon as it
runs, where Flink refuses it, and only a few jobs initialise at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from penstock.machines.dispatcher.effects import (
    Cancel,
    CleanUp,
    Effect,
    EndSession,
    Initialise,
    Suspend,
)
from penstock.machines.dispatcher.settings import DispatcherSettings
from penstock.model.errors import ExternalError, UserError
from penstock.model.ids import JobId
from penstock.model.states import JobStatus


class Duplicate(UserError):
    """A job of this id is known, and has not ended or is not cleaned up."""


class NotAccepted(ExternalError):
    """The session is ending and takes no jobs."""


class Phase(StrEnum):
    """What a submitted job is doing."""

    WAITING = "WAITING"
    INITIALISING = "INITIALISING"
    RUNNING = "RUNNING"
    CLEANING = "CLEANING"
    ENDED = "ENDED"


class Cancelled(StrEnum):
    """What a request to cancel led to."""

    ACCEPTED = "accepted"
    ENDED = "ended otherwise"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class DispatchedJob:
    """`status`: how it has ended. `since_ms`: when its phase began. `failures`: of its clean-up, in a row. `retry_at_ms`: of the next.

    `client_timeout_ms`: how long its client may be silent; None: for ever. `client_until_ms`: when it has been; None: it is not waited for.
    """

    job_id: JobId
    name: str
    since_ms: int
    is_recovered: bool = False
    phase: Phase = Phase.WAITING
    is_cancelled: bool = False
    status: JobStatus | None = None
    failures: int = 0
    retry_at_ms: int | None = None
    client_timeout_ms: int | None = None
    client_until_ms: int | None = None


class Dispatcher:
    """All jobs of one session. `is_kept`: with high availability, jobs outlive the session."""

    def __init__(self, settings: DispatcherSettings, *, is_kept: bool = False) -> None:
        self._settings = settings
        self._is_kept = is_kept
        self._jobs: dict[JobId, DispatchedJob] = {}
        self._is_closing = False

    @property
    def jobs(self) -> Sequence[DispatchedJob]:
        """In the order of their submission."""
        return list(self._jobs.values())

    @property
    def is_done(self) -> bool:
        """Whether the session was closed and nothing of a job is left to do.

        A clean-up that has failed does not hold it up: the next session, if there is one, finds what is left.
        """
        return self._is_closing and all(
            job.phase is Phase.ENDED or job.failures for job in self._jobs.values()
        )

    # ------------------------------------------------------------------ jobs come

    def submit(
        self, job_id: JobId, name: str, now_ms: int, client_timeout_ms: int | None = None
    ) -> list[Effect]:
        """Take a job. `client_timeout_ms`: it is cancelled when its client is silent for so long; None: it outlives its client.

        Raises Duplicate, NotAccepted.
        """
        self._check_open()
        known = self._jobs.get(job_id)
        if known is not None and known.phase is not Phase.ENDED:
            raise Duplicate(
                f"job {job_id} ('{known.name}') has already been submitted and is "
                f"{known.phase}. Wait for its end, or submit with another pipeline.fixed-job-id."
            )
        self._jobs.pop(job_id, None)
        self._jobs[job_id] = DispatchedJob(
            job_id, name, now_ms, client_timeout_ms=client_timeout_ms
        )
        return self._begin(now_ms)

    def recovered(
        self,
        job_id: JobId,
        name: str,
        *,
        is_dirty: bool,
        now_ms: int,
        client_timeout_ms: int | None = None,
    ) -> list[Effect]:
        """Take over a job of a former session. `is_dirty`: its result is recorded, so it is never run again, only cleaned up.
        `client_timeout_ms`: as in `submit`; its client has that long again from when the job runs here.
        """
        self._check_open()
        assert job_id not in self._jobs, f"job {job_id} is recovered twice"
        job = self._jobs[job_id] = DispatchedJob(
            job_id, name, now_ms, is_recovered=True, client_timeout_ms=client_timeout_ms
        )
        if is_dirty:
            self._move(job, Phase.CLEANING, now_ms)
            return [CleanUp(job_id, is_global=True)]
        return self._begin(now_ms)

    def started(self, job_id: JobId, now_ms: int) -> list[Effect]:
        """The job has a JobManager."""
        job = self._jobs[job_id]
        self._move(job, Phase.RUNNING, now_ms)
        if job.client_timeout_ms is not None:
            job.client_until_ms = now_ms + job.client_timeout_ms
        return [*self._wanted_of(job), *self._begin(now_ms)]

    def start_failed(self, job_id: JobId, cause: str, now_ms: int) -> list[Effect]:
        """The job could not be started. A submitted one is cleaned up and forgotten; for a recovered one the session ends."""
        job = self._jobs[job_id]
        if job.is_recovered:
            self._move(job, Phase.ENDED, now_ms)
            job.status = JobStatus.SUSPENDED
            return [EndSession(cause)]
        job.status = JobStatus.FAILED
        self._move(job, Phase.CLEANING, now_ms)
        return [CleanUp(job_id, is_global=True), *self._begin(now_ms)]

    # ------------------------------------------------------------------ clients

    def client_lives(self, job_id: JobId, now_ms: int, for_ms: int | None = None) -> bool:
        """The client has asked for rows, or says that it lives. `for_ms`: until when it may be silent now; None: as long as always.

        Returns: whether the job is known, and has not ended.
        """
        job = self._jobs.get(job_id)
        if job is None or job.phase in {Phase.CLEANING, Phase.ENDED}:
            return False
        if job.client_until_ms is not None and job.client_timeout_ms is not None:
            job.client_until_ms = now_ms + (job.client_timeout_ms if for_ms is None else for_ms)
        return True

    def client_is_served(self, job_id: JobId) -> None:
        """The client has got all that it wants of the job, which does not wait for it any more."""
        job = self._jobs.get(job_id)
        if job is not None:
            job.client_until_ms = None

    # ------------------------------------------------------------------ jobs go

    def cancel(self, job_id: JobId, now_ms: int) -> tuple[Cancelled, list[Effect]]:
        """Cancel a job, whatever it is doing. A job that is cancelled already is fine."""
        job = self._jobs.get(job_id)
        if job is None:
            return Cancelled.UNKNOWN, []
        if job.phase in {Phase.CLEANING, Phase.ENDED}:
            is_fine = job.status is JobStatus.CANCELED
            return (Cancelled.ACCEPTED if is_fine else Cancelled.ENDED), []
        job.is_cancelled = True
        if job.phase is Phase.WAITING:
            return Cancelled.ACCEPTED, self.ended(job_id, JobStatus.CANCELED, now_ms)
        return Cancelled.ACCEPTED, self._wanted_of(job)

    def ended(self, job_id: JobId, status: JobStatus, now_ms: int) -> list[Effect]:
        """The job is over: nothing of it runs here any more."""
        job = self._jobs[job_id]
        job.status = status
        self._move(job, Phase.CLEANING, now_ms)
        return [CleanUp(job_id, is_global=status.is_globally_terminal)]

    def carried_out(self, job_id: JobId, status: JobStatus) -> None:
        """The recorded end of a dirty job was carried out."""
        self._jobs[job_id].status = status

    def cleaned(self, job_id: JobId, now_ms: int) -> None:
        """Nothing of the job is left. The oldest of too many ended jobs is forgotten."""
        job = self._jobs[job_id]
        job.failures, job.retry_at_ms = 0, None
        self._move(job, Phase.ENDED, now_ms)
        self._forget(now_ms)

    def cleanup_failed(self, job_id: JobId, now_ms: int) -> int | None:
        """Return after how many ms the clean-up is tried again; None: it is left to whoever looks after the session."""
        job = self._jobs[job_id]
        job.failures += 1
        pause_ms = self._settings.retry_after(job.failures)
        job.retry_at_ms = None if pause_ms is None else now_ms + pause_ms
        return pause_ms

    def tick(self, now_ms: int) -> list[Effect]:
        """Try clean-ups again that are due, cancel jobs whose clients are silent, and forget jobs that have ended long ago."""
        due: list[Effect] = []
        for job in self._jobs.values():
            is_silent = job.client_until_ms is not None and job.client_until_ms <= now_ms
            if is_silent and job.phase is Phase.RUNNING and not job.is_cancelled:
                job.is_cancelled = True
                due.append(Cancel(job.job_id, "its client is silent (client.heartbeat.timeout)"))
            if job.retry_at_ms is not None and job.retry_at_ms <= now_ms:
                job.retry_at_ms = None
                is_global = job.status is None or job.status.is_globally_terminal
                due.append(CleanUp(job.job_id, is_global))
        self._forget(now_ms)
        return due

    def close(self, now_ms: int) -> list[Effect]:
        """End the session: its jobs are suspended if they outlive it, else cancelled. Takes no jobs from now on."""
        self._is_closing = True
        effects: list[Effect] = []
        for job in self.jobs:
            if job.phase is Phase.WAITING:
                status = JobStatus.SUSPENDED if self._is_kept else JobStatus.CANCELED
                effects += self.ended(job.job_id, status, now_ms)
            elif job.phase is Phase.RUNNING:
                effects += self._wanted_of(job)
        return effects

    # ------------------------------------------------------------------ private

    def _check_open(self) -> None:
        if self._is_closing:
            raise NotAccepted("the session is ending and takes no jobs. Submit to another one.")

    def _wanted_of(self, job: DispatchedJob) -> list[Effect]:
        """Return how a running job is to be ended, if at all."""
        if job.phase is not Phase.RUNNING:
            return []
        if job.is_cancelled:
            return [Cancel(job.job_id)]
        if not self._is_closing:
            return []
        return [Suspend(job.job_id) if self._is_kept else Cancel(job.job_id)]

    def _begin(self, now_ms: int) -> list[Effect]:
        """Let waiting jobs initialise, in the order of their submission."""
        initialising = sum(job.phase is Phase.INITIALISING for job in self._jobs.values())
        begun: list[Effect] = []
        for job in self._jobs.values():
            if initialising >= self._settings.most_initialising:
                break
            if job.phase is Phase.WAITING:
                self._move(job, Phase.INITIALISING, now_ms)
                begun.append(Initialise(job.job_id))
                initialising += 1
        return begun

    def _move(self, job: DispatchedJob, phase: Phase, now_ms: int) -> None:
        job.phase, job.since_ms = phase, now_ms

    def _forget(self, now_ms: int) -> None:
        """Forget what has ended long ago, and the oldest of too many."""
        ended = [job for job in self._jobs.values() if job.phase is Phase.ENDED]
        ended.sort(key=lambda job: job.since_ms)
        capacity = self._settings.capacity
        surplus = 0 if capacity is None else max(0, len(ended) - capacity)
        for place, job in enumerate(ended):
            if place < surplus or now_ms - job.since_ms >= self._settings.expiration_ms:
                del self._jobs[job.job_id]
