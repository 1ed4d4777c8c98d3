"""Answers that draw a conclusion: who limits a job, and which of its subtasks are the worst. Flink has no such paths.

How the records of a vertex are spread over its subtasks and their key groups. Flink has no such path.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from statistics import median
from typing import Any, Final

from penstock.engine.metrics.registry import quantile
from penstock.engine.model.key_groups import key_group_range
from penstock.engine.model.states import ExecutionState
from penstock.ops.jobs.diagnosis.limits import Limit
from penstock.ops.jobs.diagnosis.shares import live
from penstock.ops.jobs.diagnosis.stragglers import Skew, Straggler
from penstock.ops.jobs.diagnosis.troubles import Repeated, Waiting
from penstock.ops.jobs.diagnosis.verdict import Verdict
from penstock.ops.jobs.diagnosis.watermarks import NO_WATERMARK_MS, Holder
from penstock.ops.jobs.snapshots import AttemptSnapshot, JobSnapshot, VertexSnapshot
from penstock.ops.jobs.views.attempts import Json, endpoint_of, place_of, times_of

MOST_ROWS: Final = 200
_BY_KEY: Final = "HASH"
_QUANTILES: Final = {"min": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}
_DIGITS: Final = 3
_NO_REPORT: Final = "no subtask has reported yet"
_ONE_SUBTASK: Final = "it has one subtask only"
_NO_RECORDS: Final = "no subtask has got records yet"
_NOT_KEYED: Final = "its input is not sent by key, so its subtasks have no key groups"


def skew(job: JobSnapshot, vertex: VertexSnapshot) -> Json:
    """`/jobs/:jobid/vertices/:vertexid/skew`: subtasks with most records first. They count since the start of each attempt."""
    known = [
        (io.records_in, attempt)
        for attempt, io in zip(vertex.attempts, vertex.ios, strict=True)
        if io is not None
    ]
    counts = sorted(count for count, _ in known)
    usual = median(counts[:-1]) if len(counts) > 1 else None
    keyed = any(one.ship_strategy == _BY_KEY for one in vertex.facts.inputs)
    worst = heapq.nsmallest(MOST_ROWS, known, key=lambda one: (-one[0], one[1].subtask))
    factor = _factor(counts[-1] if counts else 0, usual)
    answer = {
        "now": job.now_ms,
        "id": vertex.facts.vertex_id,
        "name": vertex.facts.name,
        "parallelism": len(vertex.attempts),
        "max-parallelism": vertex.facts.max_parallelism,
        "keyed": keyed,
        "records": sum(counts) if counts else None,
        "usual": usual,
        "factor": factor,
        "quantiles": _quantiles(counts),
        "total": len(vertex.attempts),
        "reported": len(known),
        "shown": len(worst),
        "subtasks": [_row(vertex, one, usual, keyed=keyed) for one in worst],
    }
    return {**answer, "why": _why(counts, factor, keyed=keyed)}


def _why(counts: Sequence[int], factor: float | None, *, keyed: bool) -> Json:
    """Why figures are missing."""
    why = {} if keyed else {"key-groups": _NOT_KEYED}
    if not counts:
        return why | dict.fromkeys(("records", "usual", "factor", "quantiles"), _NO_REPORT)
    if len(counts) == 1:
        return why | dict.fromkeys(("usual", "factor"), _ONE_SUBTASK)
    return why if factor is not None else why | {"factor": _NO_RECORDS}


def _factor(count: int, usual: float | None) -> float | None:
    """How many times the records of the usual one of the others; None: nobody has records, or there are no others."""
    return None if usual is None or not count else round(count / max(usual, 1), _DIGITS)


def _quantiles(ordered: Sequence[int]) -> Json | None:
    return {name: quantile(ordered, at) for name, at in _QUANTILES.items()} if ordered else None


def _row(
    vertex: VertexSnapshot, one: tuple[int, AttemptSnapshot], usual: float | None, *, keyed: bool
) -> Json:
    count, attempt = one
    subtask, maximum = attempt.subtask, vertex.facts.max_parallelism
    groups = None
    if keyed and len(vertex.attempts) <= maximum:
        first, last = key_group_range(maximum, len(vertex.attempts), subtask)
        size = last - first + 1
        groups = {"first": first, "last": last, "records-each": round(count / size, _DIGITS)}
    return {
        "subtask": subtask,
        "attempt": attempt.attempt,
        "running-since": times_of(attempt).get(ExecutionState.RUNNING),
        "records": count,
        "factor": _factor(count, usual),
        "key-groups": groups,
    }


MOST_SHOWN: Final = 20
FIGURES: Final = {
    "busyTimeMsPerSecond": "recent.busy_ms_per_s",
    "backPressuredTimeMsPerSecond": "recent.backpressured_ms_per_s",
    "idleTimeMsPerSecond": "recent.idle_ms_per_s",
    "numRecordsIn": "records_in",
    "numRecordsOut": "records_out",
    "numLateRecordsDropped": "late_records_dropped",
}
"""What subtasks can be ranked by, by Flink's names."""


def bottleneck(job: JobSnapshot, verdict: Verdict) -> Json:
    """`/jobs/:jobid/bottleneck`."""
    holder = _part(verdict.watermark)
    if holder is not None:
        has_one = holder["watermark"] > NO_WATERMARK_MS
        holder["lag"] = job.now_ms - holder["watermark"] if has_one else None
    return {
        "sentence": verdict.sentence,
        "sentences": list(verdict.sentences),
        "healthy": verdict.is_healthy,
        "now": job.now_ms,
        "limit": _part(verdict.limit),
        "further-limits": [_part(one) for one in verdict.further_limits],
        "skewed": [_part(one) for one in verdict.skewed],
        "watermark": holder,
        "checkpoint": _part(verdict.straggler),
        "waiting": _part(verdict.waiting),
        "restarts": _part(verdict.repeated),
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


def _part(one: Limit | Skew | Holder | Straggler | Waiting | Repeated | None) -> Json | None:
    """A part of the verdict, by the names of REST: `since_ms` is `since`, and `is_slow` is `slow`."""
    if one is None:
        return None
    answer: Json = {}
    for field in fields(one):
        value, plain = getattr(one, field.name), field.name.removeprefix("is_").removesuffix("_ms")
        key = _KEYS.get(field.name) or plain.replace("_", "-")
        answer[key] = list(value) if isinstance(value, tuple) else value
    return answer


_KEYS: Final = {
    "name": "vertex-name",
    "is_one_subtask": "only-one-subtask",
    "upstream": "waiting-vertices",
    "ahead_ms": "behind",
    "checkpoint_id": "id",
}
"""Names that are others than those of the fields."""


def top(job: JobSnapshot, figure: str, most: int) -> Json:
    """`/jobs/:jobid/metrics/top-n`: the subtasks that have most of a figure. `figure`: a key of FIGURES."""
    found = sorted(_figures(job, FIGURES[figure]), key=lambda one: -one["value"])
    return {"metric": figure, "total": len(found), "subtasks": found[:most]}


def _figures(job: JobSnapshot, name: str) -> Iterator[dict[str, Any]]:
    for vertex in job.vertices:
        for attempt, io in live(vertex):
            yield {
                **place_of(vertex, attempt.subtask),
                "attempt": attempt.attempt,
                "endpoint": endpoint_of(attempt.location),
                "value": attrgetter(name)(io),
            }
