"""Requests for figures over time. Flink has no such paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.engine.hosting.os.clock import give_way
from penstock.ops.jobs.views import history
from penstock.ops.metrics.history_rings import COARSE, FIGURES, FINE, Resolution
from penstock.ops.rest.answers import Asked, RestError
from penstock.ops.rest.requests.handlers import Driver, vertex_in

_LAST: Final = 60
"""How many of the newest times the answer about all vertices of a job has, unless a time is given."""


def vertex(driver: Driver, asked: Asked) -> Any:
    """One vertex with all figures. Raises RestError."""
    job, found = driver.vertex(asked)
    resolution, names = _resolution(asked), _names(asked, FIGURES)
    rows = driver.job_registry.figures(job, found, resolution, asked.query_number("since", 0))
    return history.history(job.now_ms, resolution, history.of_vertex(found, rows, names))


def job(driver: Driver, asked: Asked) -> Any:
    """All vertices of a job, or those of these ids, with few figures. Raises RestError."""
    found = driver.job(asked)
    chosen = [vertex_in(found, name) for name in asked.parts("vertices")]
    resolution, names = _resolution(asked), _names(asked, history.OF_A_JOB)
    newest_ms = found.now_ms - _LAST * resolution.step_ms
    since_ms = asked.query_number("since", newest_ms)
    vertices = []
    for one in chosen or found.vertices:
        rows = driver.job_registry.figures(found, one, resolution, since_ms)
        vertices.append(history.of_vertex(one, rows, names))
        give_way()
    return history.history(found.now_ms, resolution, {"vertices": vertices})


def _resolution(asked: Asked) -> Resolution:
    step_ms = asked.query_number("step", FINE.step_ms)
    for one in (FINE, COARSE):
        if one.step_ms == step_ms:
            return one
    raise RestError(400, f"step is {step_ms}, expected {FINE.step_ms} or {COARSE.step_ms} (ms).")


def _names(asked: Asked, usual: Sequence[str]) -> Sequence[str]:
    names = asked.parts("get")
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise RestError(
            400, f"get has {', '.join(unknown)}, expected some of {', '.join(FIGURES)}."
        )
    return names or usual
