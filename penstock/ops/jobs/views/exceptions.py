"""Answers about failures. Source: Flink JobExceptionsHandler, ApplicationExceptionsHandler.

Failures in groups: what failed where, how often, since when, and what happens next. Flink has no such path.
"""

from __future__ import annotations

import hashlib
from typing import Final

from penstock.engine.model.ids import taskmanager_name
from penstock.engine.model.states import JobStatus
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.jobs.diagnosis.words import lasting
from penstock.ops.jobs.failure_record import FailureGroup, FailureSeen, FailureText
from penstock.ops.jobs.snapshots import JobSnapshot, RestartFacts
from penstock.ops.jobs.views.attempts import Json, endpoint_of

_MOST_OF_TEXT: Final = 4_000
_FAILED: Final = frozenset({JobStatus.FAILING, JobStatus.FAILED})
_WAITS: Final = frozenset({JobStatus.RESTARTING, JobStatus.FAILING})


def groups(job: JobSnapshot, fingerprint: str | None = None) -> Json:
    """`/jobs/:jobid/exceptions/groups`: the one with the newest failure first. `fingerprint`: only this one, with its whole text."""
    known = job.failure_groups
    newest = max((one.newest.number for one in known.groups), default=0)
    chosen = [
        one for one in known.groups if fingerprint is None or fingerprint_of(one) == fingerprint
    ]
    return {
        "now": job.now_ms,
        "total": len(known.groups) + known.forgotten,
        "shown": len(chosen),
        "failures": sum(one.count for one in known.groups),
        "restarts": job.restarts,
        "groups": [
            _group(job, one, newest, most=_MOST_OF_TEXT if fingerprint is None else None)
            for one in chosen
        ],
    }


def fingerprint_of(group: FailureGroup) -> str:
    """Return a short name of the group that stays the same in later runs of the same program."""
    return hashlib.sha256("\0".join(group.fingerprint).encode()).hexdigest()[:16]


def _group(job: JobSnapshot, group: FailureGroup, newest: int, most: int | None) -> Json:
    text = without_credentials(group.newest.failure.text)
    return {
        "fingerprint": fingerprint_of(group),
        **_what(group.text),
        "root": group.is_root,
        "count": group.count,
        "first": group.first_ms,
        "last": group.newest.at_ms,
        **_where(job, group),
        "restart": _restart(job.facts.restarts, group.newest),
        "hint": hint(job, group, is_newest=group.newest.number == newest),
        "text": text[:most],
        "text-total": len(text),
    }


def _what(text: FailureText) -> Json:
    line = text.user_line
    return {
        "exception": text.exception,
        "headline": without_credentials(text.headline),
        "line": None
        if line is None
        else {
            "file": line.file,
            "line": line.line,
            "function": line.function,
            "text": without_credentials(line.text) or None,
        },
        "operator": text.operator or None,
        "built-at": text.built_at or None,
        "record": None if text.record is None else without_credentials(text.record),
    }


def _where(job: JobSnapshot, group: FailureGroup) -> Json:
    attempt_id = group.newest.attempt_id
    vertex = None if attempt_id is None else job.vertex(attempt_id.vertex_id)
    return {
        "vertex-id": None if vertex is None else vertex.facts.vertex_id,
        "vertex-name": None if vertex is None else vertex.facts.name,
        "subtask": None if attempt_id is None else attempt_id.subtask,
        "attempt": None if attempt_id is None else attempt_id.attempt,
        "subtasks": [
            {"subtask": subtask, "count": count}
            for subtask, count in sorted(group.subtasks.items(), key=lambda one: -one[1])
        ],
        "more-failures": group.more_subtasks,
        "places": [
            {
                "host": location.host,
                "taskmanager-id": taskmanager_name(job.job_id, location.resource_id),
                "count": count,
            }
            for location, count in group.locations.items()
            if location is not None
        ],
    }


def _restart(facts: RestartFacts, seen: FailureSeen) -> Json | None:
    """The restart that followed the newest failure. `of`: the most there may be; None: no limit is known."""
    if not seen.restart:
        return None
    of = None if facts.interval_ms is not None else facts.most
    return {"number": seen.restart, "of": of, "after": seen.delay_ms}


def hint(job: JobSnapshot, group: FailureGroup, *, is_newest: bool) -> str:
    """Return what followed the newest failure of a group, or what will follow. `is_newest`: nothing has failed since."""
    seen, facts = group.newest, job.facts.restarts
    came_with = "" if group.is_root else "It came with another failure. "
    if not seen.restart:
        has_ended = is_newest and job.status in _FAILED
        why = f" {_why_no_restart(facts, seen)}" if has_ended and not came_with else ""
        return (
            f"{came_with}{'The job fails with it.' if has_ended else 'No restart followed.'}{why}"
        )
    number = f"Restart {seen.restart}{_limit(facts)}"
    after = f"{lasting(seen.delay_ms) if seen.delay_ms >= 1000 else f'{seen.delay_ms} ms'}"
    if is_newest and job.status in _WAITS:
        return f"{came_with}{number} follows {after} after the failure."
    text = f"{came_with}{number} followed {after} after the failure."
    is_last = facts.most is not None and facts.interval_ms is None and seen.restart >= facts.most
    if is_newest and is_last and not job.status.is_terminal:
        text += " The next failure ends the job."
    return text


def _limit(facts: RestartFacts) -> str:
    if facts.most is None:
        return ""
    if facts.interval_ms is None:
        return f" of {facts.most}"
    return f" (at most {facts.most} within {lasting(facts.interval_ms)})"


def _why_no_restart(facts: RestartFacts, seen: FailureSeen) -> str:
    if not seen.failure.is_recoverable:
        return "A restart could not help."
    if facts.most is None:
        return "Its restart strategy allows no restart after it."
    if facts.most == 0:
        return "Its restart strategy is none."
    if facts.interval_ms is None:
        return f"Its restart strategy allows {facts.most} restarts, and they are used up."
    return f"Its restart strategy allows {facts.most} within {lasting(facts.interval_ms)}."


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
    answer: Json = {
        "exceptionName": seen.failure.kind,
        "stacktrace": without_credentials(seen.failure.text),
        "timestamp": seen.at_ms,
        "failureLabels": {},
    }
    if seen.task is not None and seen.attempt_id is not None:
        answer["taskName"] = f"{seen.task} - execution #{seen.attempt_id.attempt}"
    if seen.location is not None:
        answer["endpoint"] = endpoint_of(seen.location)
        answer["taskManagerId"] = taskmanager_name(job.job_id, seen.location.resource_id)
    return answer


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
