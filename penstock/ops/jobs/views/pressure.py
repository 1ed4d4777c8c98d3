"""How back-pressured the subtasks of a vertex are, worst first: bounded, unlike Flink's `/backpressure`. Flink has no such path.

Shares are from 0 to 1. The limits of the levels are Flink's.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from penstock.engine.model.messages import TaskIo
from penstock.ops.jobs.snapshots import AttemptSnapshot, JobSnapshot, VertexSnapshot
from penstock.ops.jobs.views.attempts import Json, endpoint_of
from penstock.ops.jobs.views.vertices import level_of

OF_A_PAGE: Final = 50
_MS: Final = 1000


def pressure(job: JobSnapshot, vertex: VertexSnapshot, page: int = 0) -> Json:
    """`/jobs/:jobid/vertices/:vertexid/pressure`. `page`: from 0. `unknown`: subtasks that do not run, or have not reported."""
    ones = zip(vertex.attempts, vertex.ios, strict=True)
    known = [(one, io) for one, io in ones if io is not None and not one.state.is_terminal]
    known.sort(key=lambda one: (-one[1].backpressured_ms_per_s, one[0].subtask))
    counts = Counter(level_of(io.backpressured_ms_per_s / _MS) for _, io in known)
    pages = max(1, math.ceil(len(known) / OF_A_PAGE))
    page = min(page, pages - 1)
    return {
        "now": job.now_ms,
        "level": level_of(known[0][1].backpressured_ms_per_s / _MS) if known else None,
        "levels": {level: counts[level] for level in ("ok", "low", "high")},
        "unknown": len(vertex.attempts) - len(known),
        "total": len(known),
        "page": page,
        "pages": pages,
        "subtasks": [_shares(*one) for one in known[page * OF_A_PAGE : (page + 1) * OF_A_PAGE]],
    }


def _shares(one: AttemptSnapshot, io: TaskIo) -> Json:
    return {
        "subtask": one.subtask,
        "attempt": one.attempt,
        "endpoint": endpoint_of(one.location),
        "level": level_of(io.backpressured_ms_per_s / _MS),
        "back-pressured": round(io.backpressured_ms_per_s / _MS, 3),
        "busy": round(io.busy_ms_per_s / _MS, 3),
        "idle": round(io.idle_ms_per_s / _MS, 3),
        "queued-out": io.buffers_out,
    }
