"""Answers about failures. Source: Flink JobExceptionsHandler, ApplicationExceptionsHandler."""

from __future__ import annotations

from typing import Final

from penstock.engine.model.ids import taskmanager_name
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.jobs.events import FailureSeen
from penstock.ops.jobs.snapshots import JobSnapshot
from penstock.ops.jobs.views.attempts import Json, endpoint_of

MOST_SHOWN: Final = 20


def history(job: JobSnapshot, most: int = MOST_SHOWN) -> Json:
    """`/jobs/:jobid/exceptions`: newest first."""
    entries = [
        {
            **_failure(job, root),
            "concurrentExceptions": [_failure(job, one) for one in concurrent],
        }
        for root, concurrent in reversed(job.failures)
    ]
    return {"exceptionHistory": {"entries": entries[:most], "truncated": len(entries) > most}}


def _failure(job: JobSnapshot, seen: FailureSeen) -> Json:
    told: Json = {
        "exceptionName": seen.failure.kind,
        "stacktrace": without_credentials(seen.failure.text),
        "timestamp": seen.at_ms,
        "failureLabels": {},
    }
    if seen.task is not None and seen.attempt_id is not None:
        told["taskName"] = f"{seen.task} - execution #{seen.attempt_id.attempt}"
    if seen.location is not None:
        told["endpoint"] = endpoint_of(seen.location)
        told["taskManagerId"] = taskmanager_name(job.job_id, seen.location.resource_id)
    return told


def of_application(job: JobSnapshot) -> Json:
    """`/applications/:applicationid/exceptions`: what ended the job."""
    if job.failure is None or not job.status.is_terminal:
        return {"exceptionHistory": {"entries": []}}
    one = {
        "exceptionName": job.failure.kind,
        "stacktrace": without_credentials(job.failure.text),
        "timestamp": job.ended_ms,
        "jobId": job.job_id,
    }
    return {"exceptionHistory": {"entries": [one]}}
