"""What a Dispatcher wants done. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.model.ids import JobId


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
