"""Failures of a job as its record gets them: entries of the exception history, with wall-clock times. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.model.ids import AttemptId, TaskManagerLocation
from penstock.engine.model.messages import FailureInfo


@dataclass(frozen=True, slots=True)
class FailureSeen:
    """One failure. `at_ms`: epoch milliseconds. `task`, `attempt_id` None: the job as a whole failed. `location` None: no slot yet.

    `number`: counts all failures of the job from 1. `restart`: counts the restarts of the job from 1; 0: none followed. `delay_ms`: from the
    failure to that restart.
    """

    failure: FailureInfo
    at_ms: int
    task: str | None = None
    attempt_id: AttemptId | None = None
    location: TaskManagerLocation | None = None
    number: int = 0
    restart: int = 0
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class FailuresSeen:
    """All entries of the exception history: each a failure that restarted tasks or ended the job, and those that came with it."""

    entries: tuple[tuple[FailureSeen, tuple[FailureSeen, ...]], ...]
