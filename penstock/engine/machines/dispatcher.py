"""The Dispatcher: accepts jobs, starts them, cancels them, and has them cleaned up.

Deterministic: event and time in, what is to be done out. Knows no job's graph. Source: Flink
Dispatcher, DispatcherResourceCleaner, JobResultStore; differs: a cancel that comes while a job
initialises is kept and carried out as soon as it runs, where Flink refuses it, and only a few jobs
initialise at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ExternalError, UserError
from penstock.engine.model.ids import JobId
from penstock.engine.model.options.cluster import CleanupOptions
from penstock.engine.model.options.rest import WebOptions
from penstock.engine.model.states import JobStatus


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


_OVER: Final = frozenset({Phase.CLEANING, Phase.ENDED})


class Cancelled(StrEnum):
    """What a request to cancel led to."""

    ACCEPTED = "accepted"
    ENDED = "ended otherwise"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class DispatchedJob:
    """`status`: how it has ended. `since_ms`: when its phase began. `failures`: of its clean-up, in a row. `retry_at_ms`:
    of the next.

    `client_timeout_ms`: how long its client may be silent; None: for ever. `client_until_ms`: when it has been; None:
    it is not waited for.
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

    def known(self, job_id: JobId) -> DispatchedJob | None:
        """The job; None: it never came, or was forgotten."""
        return self._jobs.get(job_id)

    def is_alive(self, job_id: JobId) -> bool:
        """Whether the job is known, and has not ended."""
        job = self._jobs.get(job_id)
        return job is not None and job.phase not in _OVER

    def cancelled(self, job_id: JobId) -> Cancelled:
        """Return what the cancel that the job just got has led to."""
        job = self._jobs.get(job_id)
        if job is None:
            return Cancelled.UNKNOWN
        is_otherwise = job.phase in _OVER and job.status is not JobStatus.CANCELED
        return Cancelled.ENDED if is_otherwise else Cancelled.ACCEPTED

    # ------------------------------------------------------------------ events

    def step(self, event: DispatcherEvent, now_ms: int) -> list[Effect]:
        """Take one event; returns what is to be done, in order. Raises Duplicate, NotAccepted: the job is not taken."""
        effects: list[Effect] = []
        match event:
            case JobSubmitted():
                effects = self._on_submitted(event, now_ms)
            case JobRecovered():
                effects = self._on_recovered(event, now_ms)
            case JobStarted():
                effects = self._on_started(event, now_ms)
            case JobStartFailed():
                effects = self._on_start_failed(event, now_ms)
            case JobEnded():
                effects = self._on_ended(event, now_ms)
            case CancelJob():
                effects = self._on_cancel(event, now_ms)
            case Tick():
                effects = self._on_tick(now_ms)
            case CloseSession():
                effects = self._on_close(now_ms)
            case _:
                self._note(event, now_ms)
        return effects

    def _note(
        self,
        event: ClientLives | ClientServed | EndCarriedOut | JobCleaned | CleanUpFailed,
        now_ms: int,
    ) -> None:
        """Take an event after which there is nothing to do."""
        match event:
            case ClientLives():
                self._on_client_lives(event, now_ms)
            case ClientServed():
                self._on_client_served(event)
            case EndCarriedOut():
                self._jobs[event.job_id].status = event.status
            case JobCleaned():
                self._on_cleaned(event, now_ms)
            case CleanUpFailed():
                self._on_clean_up_failed(event, now_ms)
            case _:
                assert_never(event)

    # ------------------------------------------------------------------ jobs come

    def _on_submitted(self, event: JobSubmitted, now_ms: int) -> list[Effect]:
        self._check_open()
        job_id = event.job_id
        known = self._jobs.get(job_id)
        if known is not None and known.phase is not Phase.ENDED:
            raise Duplicate(
                f"job {job_id} ('{known.name}') has already been submitted and is "
                f"{known.phase}. Wait for its end, or submit with another pipeline.fixed-job-id."
            )
        self._jobs.pop(job_id, None)
        self._jobs[job_id] = DispatchedJob(
            job_id, event.name, now_ms, client_timeout_ms=event.client_timeout_ms
        )
        return self._begin(now_ms)

    def _on_recovered(self, event: JobRecovered, now_ms: int) -> list[Effect]:
        self._check_open()
        job_id = event.job_id
        assert job_id not in self._jobs, f"job {job_id} is recovered twice"
        job = self._jobs[job_id] = DispatchedJob(
            job_id,
            event.name,
            now_ms,
            is_recovered=True,
            client_timeout_ms=event.client_timeout_ms,
        )
        if event.is_dirty:
            self._move(job, Phase.CLEANING, now_ms)
            return [CleanUp(job_id, is_global=True)]
        return self._begin(now_ms)

    def _on_started(self, event: JobStarted, now_ms: int) -> list[Effect]:
        job = self._jobs[event.job_id]
        self._move(job, Phase.RUNNING, now_ms)
        if job.client_timeout_ms is not None:
            job.client_until_ms = now_ms + job.client_timeout_ms
        return [*self._wanted_of(job), *self._begin(now_ms)]

    def _on_start_failed(self, event: JobStartFailed, now_ms: int) -> list[Effect]:
        job = self._jobs[event.job_id]
        if job.is_recovered:
            self._move(job, Phase.ENDED, now_ms)
            job.status = JobStatus.SUSPENDED
            return [EndSession(event.cause)]
        job.status = JobStatus.FAILED
        self._move(job, Phase.CLEANING, now_ms)
        return [CleanUp(event.job_id, is_global=True), *self._begin(now_ms)]

    # ------------------------------------------------------------------ clients

    def _on_client_lives(self, event: ClientLives, now_ms: int) -> None:
        job = self._jobs.get(event.job_id)
        if job is None or job.phase in _OVER:
            return
        if job.client_until_ms is not None and job.client_timeout_ms is not None:
            quiet_ms = job.client_timeout_ms if event.for_ms is None else event.for_ms
            job.client_until_ms = now_ms + quiet_ms

    def _on_client_served(self, event: ClientServed) -> None:
        job = self._jobs.get(event.job_id)
        if job is not None:
            job.client_until_ms = None

    # ------------------------------------------------------------------ jobs go

    def _on_cancel(self, event: CancelJob, now_ms: int) -> list[Effect]:
        job = self._jobs.get(event.job_id)
        if job is None or job.phase in _OVER:
            return []
        job.is_cancelled = True
        if job.phase is Phase.WAITING:
            return self._end(job, JobStatus.CANCELED, now_ms)
        return self._wanted_of(job)

    def _on_ended(self, event: JobEnded, now_ms: int) -> list[Effect]:
        return self._end(self._jobs[event.job_id], event.status, now_ms)

    def _end(self, job: DispatchedJob, status: JobStatus, now_ms: int) -> list[Effect]:
        job.status = status
        self._move(job, Phase.CLEANING, now_ms)
        return [CleanUp(job.job_id, is_global=status.is_globally_terminal)]

    def _on_cleaned(self, event: JobCleaned, now_ms: int) -> None:
        job = self._jobs[event.job_id]
        job.failures, job.retry_at_ms = 0, None
        self._move(job, Phase.ENDED, now_ms)
        self._forget(now_ms)

    def _on_clean_up_failed(self, event: CleanUpFailed, now_ms: int) -> None:
        """After enough failures it is left to whoever looks after the session."""
        job = self._jobs[event.job_id]
        job.failures += 1
        pause_ms = self._settings.retry_after(job.failures)
        job.retry_at_ms = None if pause_ms is None else now_ms + pause_ms

    def _on_tick(self, now_ms: int) -> list[Effect]:
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

    def _on_close(self, now_ms: int) -> list[Effect]:
        self._is_closing = True
        effects: list[Effect] = []
        for job in self.jobs:
            if job.phase is Phase.WAITING:
                status = JobStatus.SUSPENDED if self._is_kept else JobStatus.CANCELED
                effects += self._end(job, status, now_ms)
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


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """Take a job. `client_timeout_ms`: it is cancelled when its client is silent for so long; None: it outlives its
    client.
    """

    job_id: JobId
    name: str
    client_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JobRecovered:
    """Take over a job of a former session. `is_dirty`: its result is recorded, so it is never run again, only cleaned up.

    `client_timeout_ms`: as in `JobSubmitted`; its client has that long again from when the job runs here.
    """

    job_id: JobId
    name: str
    is_dirty: bool
    client_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JobStarted:
    """The job has a JobManager."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobStartFailed:
    """The job could not be started. A submitted one is cleaned up and forgotten; for a recovered one the session ends."""

    job_id: JobId
    cause: str


@dataclass(frozen=True, slots=True)
class ClientLives:
    """The client has asked for rows, or says that it lives. `for_ms`: until when it may be silent now; None: as long as
    always.
    """

    job_id: JobId
    for_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ClientServed:
    """The client has got all that it wants of the job, which does not wait for it any more."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Cancel a job in any state. A job that is cancelled already is no error.
    `Dispatcher.cancelled` returns the outcome.
    """

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job is over: nothing of it runs here any more."""

    job_id: JobId
    status: JobStatus


@dataclass(frozen=True, slots=True)
class EndCarriedOut:
    """The recorded end of a dirty job was carried out."""

    job_id: JobId
    status: JobStatus


@dataclass(frozen=True, slots=True)
class JobCleaned:
    """Nothing of the job is left. The oldest of too many ended jobs is forgotten."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class CleanUpFailed:
    """The job could not be cleaned up. `DispatchedJob.retry_at_ms` is the time of the next try."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: try clean-ups again that are due, cancel jobs whose clients are silent, and forget jobs that have
    ended long ago.
    """


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End the session: its jobs are suspended if they outlive it, else cancelled. It takes no jobs from now on."""


DispatcherEvent: TypeAlias = (
    JobSubmitted
    | JobRecovered
    | JobStarted
    | JobStartFailed
    | ClientLives
    | ClientServed
    | CancelJob
    | JobEnded
    | EndCarriedOut
    | JobCleaned
    | CleanUpFailed
    | Tick
    | CloseSession
)


@dataclass(frozen=True, slots=True)
class Initialise:
    """Store the job, then start it. Answered by `JobStarted` or `JobStartFailed`."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the running job. `JobEnded` follows. `cause`: why, if nobody has asked for it."""

    job_id: JobId
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Suspend:
    """Let go of the running job, so that another session can go on with it. `JobEnded` follows."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Remove what the session keeps of the job. Answered by `JobCleaned` or `CleanUpFailed`.

    `is_global`: the job has ended for good, so that its entry for other sessions is removed too.
    """

    job_id: JobId
    is_global: bool


@dataclass(frozen=True, slots=True)
class EndSession:
    """A recovered job cannot be started: the session ends, and another one may try."""

    cause: str


Effect: TypeAlias = Initialise | Cancel | Suspend | CleanUp | EndSession


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """How a Dispatcher forgets jobs that have ended, and when it tries a failed clean-up again.

    Source: Flink JobManagerOptions (jobstore.*), CleanupOptions (docs/spec/options.md#clean-up-of-ended-jobs).

    Times in ms. `capacity`: how many ended jobs are kept; None: all. `retries`: how many times a clean-up is tried
    again; None: until it succeeds. `most_initialising`: how many jobs start at once.
    """

    expiration_ms: int = 3_600_000
    capacity: int | None = None
    first_retry_ms: int = 1000
    last_retry_ms: int = 3_600_000
    retries: int | None = None
    most_initialising: int = 4

    def retry_after(self, failures: int) -> int | None:
        """Return the pause after this number of failed clean-ups in a row (1 or more); None: no
        further try.
        """
        if self.retries is not None and failures > self.retries:
            return None
        return min(self.last_retry_ms, self.first_retry_ms << min(failures - 1, 40))


def dispatcher_settings_of(settings: Settings) -> DispatcherSettings:
    """Read the options."""
    strategy = settings.get(CleanupOptions.STRATEGY)
    if strategy == "none":
        first_ms = last_ms = 1
        retries = 0
    elif strategy == "fixed-delay":
        first_ms = last_ms = settings.get(CleanupOptions.FIXED_DELAY)
        retries = settings.get(CleanupOptions.FIXED_ATTEMPTS)
    else:
        first_ms = settings.get(CleanupOptions.EXPONENTIAL_FIRST)
        last_ms = settings.get(CleanupOptions.EXPONENTIAL_LONGEST)
        retries = settings.get(CleanupOptions.EXPONENTIAL_ATTEMPTS)
    return DispatcherSettings(
        expiration_ms=settings.get(WebOptions.EXPIRATION),
        capacity=settings.get(WebOptions.CAPACITY),
        first_retry_ms=first_ms,
        last_retry_ms=last_ms,
        retries=retries,
    )
