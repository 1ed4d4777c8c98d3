"""Answers that draw a conclusion: who limits a job, and which of its subtasks are the worst. Flink has no such paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.ops.jobs.diagnosis.limits import Limit
from penstock.ops.jobs.diagnosis.skew import Skew
from penstock.ops.jobs.diagnosis.stragglers import Straggler
from penstock.ops.jobs.diagnosis.troubles import Repeated, Waiting
from penstock.ops.jobs.diagnosis.verdict import Verdict
from penstock.ops.jobs.diagnosis.watermarks import NO_WATERMARK_MS, Holder
from penstock.ops.jobs.snapshots import JobSnapshot
from penstock.ops.jobs.views.attempts import Json, endpoint_of

MOST_SHOWN: Final = 20
FIGURES: Final = {
    "busyTimeMsPerSecond": "busy_ms_per_s",
    "backPressuredTimeMsPerSecond": "backpressured_ms_per_s",
    "idleTimeMsPerSecond": "idle_ms_per_s",
    "numRecordsIn": "records_in",
    "numRecordsOut": "records_out",
    "numLateRecordsDropped": "late_records_dropped",
}
"""What subtasks can be ranked by, by Flink's names."""


def bottleneck(job: JobSnapshot, verdict: Verdict) -> Json:
    """`/jobs/:jobid/bottleneck`."""
    now_ms = job.now_ms
    return {
        "sentence": verdict.sentence,
        "sentences": list(verdict.sentences),
        "healthy": verdict.is_healthy,
        "now": now_ms,
        "limit": None if verdict.limit is None else _limit(verdict.limit),
        "further-limits": [_limit(one) for one in verdict.further_limits],
        "skewed": [_skew(one) for one in verdict.skewed],
        "watermark": None if verdict.watermark is None else _holder(verdict.watermark, now_ms),
        "checkpoint": None if verdict.straggler is None else _straggler(verdict.straggler),
        "waiting": None if verdict.waiting is None else _waiting(verdict.waiting),
        "restarts": None if verdict.repeated is None else _repeated(verdict.repeated),
        "vertices": {
            vertex_id: {
                "busy": shares.busy,
                "usual-busy": shares.usual_busy,
                "back-pressured": shares.blocked,
                "busiest-subtask": shares.busiest,
            }
            for vertex_id, shares in verdict.shares.items()
        },
    }


def _place(one: Limit | Skew | Holder | Straggler | Waiting | Repeated) -> Json:
    return {"vertex-id": one.vertex_id, "vertex-name": one.name, "subtask": one.subtask}


def _limit(limit: Limit) -> Json:
    return {
        **_place(limit),
        "busy": limit.busy,
        "only-one-subtask": limit.is_one_subtask,
        "waiting-vertices": list(limit.upstream),
        "since": limit.since_ms,
    }


def _skew(skew: Skew) -> Json:
    return {**_place(skew), "factor": skew.factor}


def _holder(holder: Holder, now_ms: int) -> Json:
    """`lag` None: there is no watermark yet."""
    has_one = holder.watermark_ms > NO_WATERMARK_MS
    return {
        **_place(holder),
        "watermark": holder.watermark_ms,
        "lag": now_ms - holder.watermark_ms if has_one else None,
        "held": holder.is_held,
        "split": holder.split,
        "consumer": holder.consumer,
        "behind": holder.ahead_ms,
        "since": holder.since_ms,
    }


def _straggler(straggler: Straggler) -> Json:
    return {
        "id": straggler.checkpoint_id,
        **_place(straggler),
        "after": straggler.after_ms,
        "missing": straggler.is_missing,
        "others": straggler.others,
        "reason": straggler.reason,
        "slow": straggler.is_slow,
    }


def _waiting(waiting: Waiting) -> Json:
    return {
        **_place(waiting),
        "state": waiting.state,
        "count": waiting.count,
        "of": waiting.of,
        "since": waiting.since_ms,
        "reason": waiting.reason,
    }


def _repeated(repeated: Repeated) -> Json:
    return {
        **_place(repeated),
        "count": repeated.count,
        "since": repeated.since_ms,
        "cause": repeated.cause,
    }


def top(job: JobSnapshot, figure: str, most: int) -> Json:
    """`/jobs/:jobid/metrics/top-n`: the subtasks that have most of a figure. `figure`: a key of FIGURES."""
    found = sorted(_figures(job, FIGURES[figure]), key=lambda one: -one["value"])
    return {"metric": figure, "total": len(found), "subtasks": found[:most]}


def _figures(job: JobSnapshot, name: str) -> Iterator[dict[str, Any]]:
    for vertex in job.vertices:
        for attempt, io in zip(vertex.attempts, vertex.ios, strict=True):
            if io is not None and not attempt.state.is_terminal:
                yield {
                    "vertex-id": vertex.facts.vertex_id,
                    "vertex-name": vertex.facts.name,
                    "subtask": attempt.subtask,
                    "attempt": attempt.attempt,
                    "endpoint": endpoint_of(attempt.location),
                    "value": getattr(io, name),
                }
