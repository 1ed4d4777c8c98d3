"""Answers with figures of vertices over time. Flink has no such paths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from penstock.ops.jobs.snapshots import VertexSnapshot
from penstock.ops.jobs.views.attempts import Json
from penstock.ops.metrics.history_rings import FIGURES, Resolution, Row

OF_A_JOB: Final = (
    "numRecordsInPerSecond",
    "numRecordsOutPerSecond",
    "busyTimeMsPerSecond.max",
    "backPressuredTimeMsPerSecond.max",
)
"""The figures of all vertices of a job, unless others are asked for."""
_DIGITS: Final = 3


def of_vertex(
    vertex: VertexSnapshot, rows: Sequence[tuple[int, Row]], names: Sequence[str]
) -> Json:
    """A vertex with the figures of these names. Each list has one value for each time; null: it is not known."""
    places = [(name, FIGURES.index(name)) for name in names]
    return {
        "id": vertex.facts.vertex_id,
        "name": vertex.facts.name,
        "timestamps": [at_ms for at_ms, _ in rows],
        "figures": {name: [_shown(row[place]) for _, row in rows] for name, place in places},
    }


def history(now_ms: int, resolution: Resolution, figures: Json) -> Json:
    """`/jobs/:jobid/history` and `/jobs/:jobid/vertices/:vertexid/history`."""
    kept_ms = resolution.step_ms * resolution.rows
    return {"now": now_ms, "step": resolution.step_ms, "kept": kept_ms, **figures}


def _shown(value: float) -> float | int | None:
    if math.isnan(value):
        return None
    short = round(float(value), _DIGITS)
    return int(short) if short.is_integer() else short
