"""Answers about one vertex and its subtasks.

Source: Flink JobVertexDetailsHandler, JobVertexTaskManagersHandler, SubtasksTimesHandler, SubtaskCurrentAttemptDetailsHandler,
JobVertexBackPressureHandler.

How back-pressured the subtasks of a vertex are, worst first: bounded, unlike Flink's `/backpressure`. Flink has no such path.

Shares are from 0 to 1. The limits of the levels are Flink's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from penstock.engine.model.graph.job_graph import FieldsRead, OperatorInfo
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.states import ExecutionState, aggregate_state
from penstock.ops.jobs.snapshots import AttemptSnapshot, JobSnapshot, VertexSnapshot
from penstock.ops.jobs.views.attempts import (
    UNASSIGNED,
    Json,
    aggregated,
    attempt_details,
    attempts_of,
    counters_of,
    counts_of,
    endpoint_of,
    span_of_all,
    taskmanager_of,
    times_of,
)
from penstock.ops.jobs.views.rows import Rows

LOW, HIGH = 0.10, 0.5
"""Up to LOW a subtask is not back-pressured; above HIGH it is highly so."""


def details(job: JobSnapshot, vertex: VertexSnapshot) -> Json:
    """`/jobs/:jobid/vertices/:vertexid`."""
    ones = list(zip(vertex.attempts, vertex.ios, strict=True))
    return {
        "id": vertex.facts.vertex_id,
        "name": vertex.facts.name,
        "parallelism": vertex.facts.parallelism,
        "maxParallelism": vertex.facts.max_parallelism,
        "now": job.now_ms,
        "subtasks": Rows(ones, lambda one: _attempt(job, vertex, *one)),
        "aggregated": aggregated(ones, job.now_ms, is_source=not vertex.facts.inputs),
    }


def subtask(job: JobSnapshot, vertex: VertexSnapshot, index: int) -> Json:
    """`/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex`: the current attempt."""
    return _attempt(job, vertex, vertex.attempts[index], vertex.ios[index])


def attempt(job: JobSnapshot, vertex: VertexSnapshot, index: int, number: int) -> Json | None:
    """The same of any attempt that is remembered; None: it is not."""
    for one in attempts_of(vertex, index):
        if one.attempt.attempt == number:
            return _attempt(job, vertex, one.attempt, one.io)
    return None


def _attempt(
    job: JobSnapshot, vertex: VertexSnapshot, one: AttemptSnapshot, io: TaskIo | None
) -> Json:
    return attempt_details(one, io, job, is_source=not vertex.facts.inputs)


def times(job: JobSnapshot, vertex: VertexSnapshot) -> Json:
    """`/jobs/:jobid/vertices/:vertexid/subtasktimes`."""
    return {
        "id": vertex.facts.vertex_id,
        "name": vertex.facts.name,
        "now": job.now_ms,
        "subtasks": Rows(vertex.attempts, lambda one: _times(one, job.now_ms)),
    }


def _times(one: AttemptSnapshot, now_ms: int) -> Json:
    known = times_of(one)
    start = known.get(ExecutionState.SCHEDULED, -1)
    end = known[one.state] if one.state.is_terminal else now_ms
    return {
        "subtask": one.subtask,
        "endpoint": endpoint_of(one.location),
        # Flink's dashboard shows a host that Flink does not send.
        "host": UNASSIGNED if one.location is None else one.location.host,
        "duration": -1 if start < 0 else end - start,
        "timestamps": {str(state): known.get(state, 0) for state in ExecutionState},
    }


def taskmanagers(job: JobSnapshot, vertex: VertexSnapshot) -> Json:
    """`/jobs/:jobid/vertices/:vertexid/taskmanagers`."""
    by_place: dict[tuple[str, str], list[tuple[AttemptSnapshot, TaskIo | None]]] = {}
    for one, io in zip(vertex.attempts, vertex.ios, strict=True):
        place = taskmanager_of(job, one.location), endpoint_of(one.location)
        by_place.setdefault(place, []).append((one, io))
    return {
        "id": vertex.facts.vertex_id,
        "name": vertex.facts.name,
        "now": job.now_ms,
        "taskmanagers": [_place(*place, ones, job, vertex) for place, ones in by_place.items()],
    }


def _place(
    name: str,
    endpoint: str,
    ones: list[tuple[AttemptSnapshot, TaskIo | None]],
    job: JobSnapshot,
    vertex: VertexSnapshot,
) -> Json:
    is_source = not vertex.facts.inputs
    attempts = [one for one, _ in ones]
    start, end, duration = span_of_all(attempts, job.now_ms)
    return {
        "endpoint": endpoint,
        "status": str(aggregate_state(Counter(one.state for one in attempts))),
        "start-time": start,
        "end-time": end,
        "duration": duration,
        "metrics": counters_of([io for _, io in ones], is_source=is_source),
        "status-counts": counts_of(attempts),
        "taskmanager-id": name,
        "aggregated": aggregated(ones, job.now_ms, is_source=is_source),
    }


def accumulators(vertex: VertexSnapshot) -> Json:
    """`/jobs/:jobid/vertices/:vertexid/accumulators`: PyFlink has none."""
    return {"id": vertex.facts.vertex_id, "user-accumulators": []}


def subtask_accumulators(vertex: VertexSnapshot) -> Json:
    """`/jobs/:jobid/vertices/:vertexid/subtasks/accumulators`."""
    return {
        "id": vertex.facts.vertex_id,
        "parallelism": vertex.facts.parallelism,
        "subtasks": Rows(vertex.attempts, _without_accumulators),
    }


def _without_accumulators(one: AttemptSnapshot) -> Json:
    return {
        "subtask": one.subtask,
        "attempt": one.attempt,
        "endpoint": endpoint_of(one.location),
        "host": UNASSIGNED if one.location is None else one.location.host,
        "user-accumulators": [],
    }


def attempt_accumulators(vertex: VertexSnapshot, index: int, number: int) -> Json | None:
    """`.../attempts/:attempt/accumulators`; None: the attempt is not remembered."""
    if all(one.attempt.attempt != number for one in attempts_of(vertex, index)):
        return None
    return {
        "subtask": index,
        "attempt": number,
        "id": f"{vertex.facts.vertex_id}_{index}_{number}",
        "user-accumulators": [],
    }


def backpressure(job: JobSnapshot, vertex: VertexSnapshot) -> Json:
    """`/jobs/:jobid/vertices/:vertexid/backpressure`."""
    if all(io is None for io in vertex.ios):
        return {"status": "deprecated", "subtasks": []}
    ones = list(zip(vertex.attempts, vertex.ios, strict=True))
    level = level_of(max((_blocked(*one) for one in ones), default=0.0))
    return {
        "status": "ok",
        "backpressureLevel": level,
        "backpressure-level": level,
        "end-timestamp": job.now_ms,
        "subtasks": Rows(ones, lambda one: _shares(*one)),
    }


def _blocked(one: AttemptSnapshot, io: TaskIo | None) -> float:
    return 0.0 if io is None or one.state.is_terminal else io.recent.backpressured_ms_per_s / 1000


def _shares(one: AttemptSnapshot, io: TaskIo | None) -> Json:
    live = TaskIo() if io is None or one.state.is_terminal else io
    ratio = live.recent.backpressured_ms_per_s / _MS
    level = level_of(ratio)
    return {
        "subtask": one.subtask,
        "backpressureLevel": level,
        "backpressure-level": level,
        "ratio": ratio,
        "idleRatio": live.recent.idle_ms_per_s / _MS,
        "busyRatio": live.recent.busy_ms_per_s / _MS,
    }


def level_of(ratio: float) -> str:
    """Return Flink's word for a share of back pressure."""
    if ratio <= LOW:
        return "ok"
    return "low" if ratio <= HIGH else "high"


def watermarks(vertex: VertexSnapshot) -> Sequence[Json]:
    """`/jobs/:jobid/vertices/:vertexid/watermarks`. Sources have no input, so theirs is empty."""
    if not vertex.facts.inputs:
        return []
    known = [
        (one.subtask, io.watermark_ms)
        for one, io in zip(vertex.attempts, vertex.ios, strict=True)
        if io is not None
    ]
    return Rows(known, lambda one: _metric(f"{one[0]}.currentInputWatermark", one[1]))


def functions(vertex: VertexSnapshot) -> Json:
    """`/jobs/:jobid/vertices/:vertexid/functions`, which Flink does not have: how each row function and key selector runs, and why not
    on columns.
    """
    found: list[Json] = []
    for info in vertex.facts.operators:
        if info.reads is not None:
            found.append(_fields_read(info, info.reads))
        found += [
            _strategy(info, "key selector", one.defined_at, one.strategy, one.why)
            for one in info.selectors
        ]
        one = info.function
        if one is not None:
            found.append(_strategy(info, "function", info.defined_at, one.strategy, one.why))
    return {"functions": found}


def _fields_read(info: OperatorInfo, read: FieldsRead) -> Json:
    return {
        "operator": info.name,
        "kind": "source",
        "defined-at": info.defined_at,
        "fields-parsed": list(read.names),
        "fields-declared": read.declared,
        "why-all-fields": read.why_all,
    }


def _strategy(info: OperatorInfo, kind: str, defined_at: str, strategy: str, why: str) -> Json:
    return {
        "operator": info.name,
        "kind": kind,
        "defined-at": defined_at,
        "strategy": strategy,
        "why-not-columns": why,
    }


def _metric(name: str, value: int) -> Json:
    return {"id": name, "value": str(value)}


OF_A_PAGE: Final = 50
_MS: Final = 1000


def pressure(job: JobSnapshot, vertex: VertexSnapshot, page: int = 0) -> Json:
    """`/jobs/:jobid/vertices/:vertexid/pressure`. `page`: from 0. `unknown`: subtasks that do not run, or have not reported."""
    ones = zip(vertex.attempts, vertex.ios, strict=True)
    known = [(one, io) for one, io in ones if io is not None and not one.state.is_terminal]
    known.sort(key=lambda one: (-one[1].recent.backpressured_ms_per_s, one[0].subtask))
    counts = Counter(level_of(io.recent.backpressured_ms_per_s / _MS) for _, io in known)
    pages = max(1, math.ceil(len(known) / OF_A_PAGE))
    page = min(page, pages - 1)
    return {
        "now": job.now_ms,
        "level": level_of(known[0][1].recent.backpressured_ms_per_s / _MS) if known else None,
        "levels": {level: counts[level] for level in ("ok", "low", "high")},
        "unknown": len(vertex.attempts) - len(known),
        "total": len(known),
        "page": page,
        "pages": pages,
        "subtasks": [
            _pressure_shares(*one) for one in known[page * OF_A_PAGE : (page + 1) * OF_A_PAGE]
        ],
    }


def _pressure_shares(one: AttemptSnapshot, io: TaskIo) -> Json:
    return {
        "subtask": one.subtask,
        "attempt": one.attempt,
        "endpoint": endpoint_of(one.location),
        "level": level_of(io.recent.backpressured_ms_per_s / _MS),
        "back-pressured": round(io.recent.backpressured_ms_per_s / _MS, 3),
        "busy": round(io.recent.busy_ms_per_s / _MS, 3),
        "idle": round(io.recent.idle_ms_per_s / _MS, 3),
        "queued-out": io.buffers_out,
    }
