"""How the subtasks of a vertex spend their time, over time. Flink has no such path."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

from penstock.ops.jobs.snapshots import JobSnapshot, VertexSnapshot
from penstock.ops.jobs.views.attempts import Json
from penstock.ops.jobs.views.rows import Rows
from penstock.ops.metrics.history_rings import STEP_MS, STEPS, UNKNOWN, Step

MOST_ROWS: Final = 200
_NO_ALIGNMENT: Final = "how long a subtask aligns is measured for each checkpoint, not over time"
_NOT_KEPT: Final = "the driver has no room for the lanes of this vertex"
FIGURES: Final = {
    "busy": attrgetter("recent.busy_ms_per_s"),
    "back-pressured": attrgetter("recent.backpressured_ms_per_s"),
}
"""What rows can be ranked by."""

_Key: TypeAlias = Callable[[int], tuple[float, int]]


def lanes(
    job: JobSnapshot, vertex: VertexSnapshot, steps: Sequence[Step] | None, sort: str
) -> Json:
    """`/jobs/:jobid/vertices/:vertexid/lanes`: shares in percent; the rest of a step is idle. None: not known.

    `steps` None: there are no lanes of this vertex. `sort`: a key of FIGURES; the subtasks with most of it now come first.
    """
    chosen = heapq.nsmallest(MOST_ROWS, range(len(vertex.attempts)), key=_worst(vertex, sort))
    why = {"aligning": _NO_ALIGNMENT}
    if steps is None:
        why["subtasks"] = _NOT_KEPT
    known = steps or ()
    return {
        "now": job.now_ms,
        "id": vertex.facts.vertex_id,
        "name": vertex.facts.name,
        "step": STEP_MS,
        "kept": STEP_MS * STEPS,
        "total": len(vertex.attempts),
        "shown": len(chosen),
        "timestamps": [one.at_ms for one in known],
        "subtasks": Rows(chosen, lambda subtask: _row(vertex, known, subtask)),
        "why": why,
    }


def _worst(vertex: VertexSnapshot, sort: str) -> _Key:
    figure = FIGURES[sort]

    def key(subtask: int) -> tuple[float, int]:
        io = vertex.ios[subtask]
        is_over = io is None or vertex.attempts[subtask].state.is_terminal
        return (1.0 if is_over else -figure(io), subtask)

    return key


def _row(vertex: VertexSnapshot, steps: Sequence[Step], subtask: int) -> Json:
    one = vertex.attempts[subtask]
    return {
        "subtask": subtask,
        "attempt": one.attempt,
        "state": str(one.state),
        "busy": [_shown(step.busy, subtask) for step in steps],
        "back-pressured": [_shown(step.blocked, subtask) for step in steps],
        "aligning": None,
    }


def _shown(shares: bytes, subtask: int) -> int | None:
    """A BATCH job may have had fewer subtasks."""
    value = shares[subtask] if subtask < len(shares) else UNKNOWN
    return None if value == UNKNOWN else value
