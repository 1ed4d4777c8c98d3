"""The format in which transitions of a job and its attempts are logged: keys, not sentences. For
streaming and BATCH jobs.

    job=<id> CREATED->RUNNING
    job=<id> attempt=<vertex>_<subtask>_<attempt> RUNNING->FAILED cause=<kind>: <first line>
"""

from __future__ import annotations

import logging

from penstock.model.ids import JobId
from penstock.model.messages import ExecutionStateChanged, FailureInfo
from penstock.model.states import ExecutionState, JobStatus


def log_status(
    logger: logging.Logger,
    job_id: JobId,
    former: JobStatus,
    status: JobStatus,
    failure: FailureInfo | None,
) -> None:
    """Log at INFO; at WARNING with a failure."""
    cause = "" if failure is None else f" cause={failure.kind}: {first_line(failure.text)}"
    level = logging.WARNING if cause else logging.INFO
    logger.log(level, "job=%s %s->%s%s", job_id, former, status, cause)


def log_attempt(logger: logging.Logger, job_id: JobId, change: ExecutionStateChanged) -> None:
    """Log at DEBUG, because a job may have ten thousand subtasks; at INFO for a failed one."""
    level = logging.INFO if change.new is ExecutionState.FAILED else logging.DEBUG
    logger.log(level, "job=%s %s", job_id, change)


def first_line(text: str) -> str:
    """Return the first line of a failure; the console shows the rest."""
    return text.strip().split("\n", 1)[0]
