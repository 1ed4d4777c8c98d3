"""The format in which transitions of a job and its attempts are logged: keys, not sentences. For
streaming and BATCH jobs.

    job=<id> CREATED->RUNNING
    job=<id> attempt=<vertex>_<subtask>_<attempt> RUNNING->FAILED cause=<kind>: <first line>
    job=<id> checkpoint=<id> COMPLETED bytes=<size> location=<folder> ms=<duration>
"""

from __future__ import annotations

import logging

from penstock.engine.model.ids import JobId
from penstock.engine.model.messages import CheckpointEnded, ExecutionStateChanged, FailureInfo
from penstock.engine.model.states import ExecutionState, JobStatus


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


def log_checkpoint(
    logger: logging.Logger, job_id: JobId, ended: CheckpointEnded, now_ms: int, slow_ms: int
) -> None:
    """Log at INFO; at WARNING too if it took longer than `slow_ms` (0: never). `now_ms`: on the machines' clock."""
    checkpoint_id = ended.checkpoint_id
    if ended.location is None:
        cause = f"{ended.reason}: {ended.text}"
        logger.info("job=%s checkpoint=%d ABORTED cause=%s", job_id, checkpoint_id, cause)
        return
    took_ms = now_ms - ended.triggered_ms
    text = "job=%s checkpoint=%d COMPLETED bytes=%d location=%s ms=%d"
    logger.info(text, job_id, checkpoint_id, ended.size_bytes, ended.location, took_ms)
    if slow_ms and took_ms > slow_ms:
        text = "job=%s checkpoint=%d SLOW ms=%d limit_ms=%d (penstock.log.slow-checkpoint)"
        logger.warning(text, job_id, checkpoint_id, took_ms, slow_ms)


def first_line(text: str) -> str:
    """Return the first line of a failure; the console shows the rest."""
    return text.strip().split("\n", 1)[0]
