"""What a Dispatcher is told. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.model.ids import JobId
from penstock.engine.model.states import JobStatus


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """Take a job. `client_timeout_ms`: it is cancelled when its client is silent for so long; None: it outlives its client."""

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
    """The client has asked for rows, or says that it lives. `for_ms`: until when it may be silent now; None: as long as always."""

    job_id: JobId
    for_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ClientServed:
    """The client has got all that it wants of the job, which does not wait for it any more."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Cancel a job, whatever it is doing. A job that is cancelled already is fine. `Dispatcher.cancelled` tells what it led to."""

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
    """The job could not be cleaned up. `DispatchedJob.retry_at_ms` tells when it is tried again."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: try clean-ups again that are due, cancel jobs whose clients are silent, and forget jobs that have ended long ago."""


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
