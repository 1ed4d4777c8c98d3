"""Requests for figures over time. Flink has no such paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.hosting.clock import give_way
from penstock.hosting.observation.histories import Histories
from penstock.hosting.rest.answers import Answer, Asked, RestError
from penstock.hosting.rest.requests.handlers import Driver
from penstock.observation.jobs.snapshots import JobSnapshot, VertexSnapshot
from penstock.observation.metrics.history_rings import COARSE, FIGURES, FINE, Resolution
from penstock.observation.views import history
from penstock.observation.views.attempts import Json

_LAST: Final = 60
"""So many of the newest times are told of all vertices of a job, unless a time is given."""


def vertex(driver: Driver, asked: Asked) -> Answer:
    """One vertex with all figures. Raises RestError."""
    job, found = driver.vertex(asked)
    resolution, names = _resolution(asked), _names(asked, FIGURES)
    since_ms = asked.query_number("since", 0)
    with driver.observatory.histories() as histories:
        told = _told(histories, job, found, (resolution, since_ms, names))
    return Answer(history.history(job.now_ms, resolution, told))


def job(driver: Driver, asked: Asked) -> Answer:
    """All vertices of a job, or those of these ids, with few figures. Raises RestError."""
    found = driver.job(asked)
    vertices = _vertices(found, asked)
    resolution, names = _resolution(asked), _names(asked, history.OF_A_JOB)
    newest_ms = found.now_ms - _LAST * resolution.step_ms
    since_ms = asked.query_number("since", newest_ms)
    told = []
    for one in vertices:
        with driver.observatory.histories() as histories:
            told.append(_told(histories, found, one, (resolution, since_ms, names)))
        give_way()
    return Answer(history.history(found.now_ms, resolution, {"vertices": told}))


def _told(
    histories: Histories,
    job: JobSnapshot,
    vertex: VertexSnapshot,
    asked: tuple[Resolution, int, Sequence[str]],
) -> Json:
    """`asked`: resolution, since when, which figures."""
    resolution, since_ms, names = asked
    known = histories.of(job.job_id)
    kept = None if known is None else known.vertices.get(vertex.facts.vertex_id)
    ended_ms = job.now_ms if job.ended_ms < 0 else job.ended_ms  # A job that has ended keeps all.
    rows = [] if kept is None else list(kept.of(resolution).rows(ended_ms, since_ms))
    return history.of_vertex(vertex, rows, names)


def _vertices(job: JobSnapshot, asked: Asked) -> Sequence[VertexSnapshot]:
    given = asked.query.get("vertices")
    if not given:
        return job.vertices
    found = []
    for name in given.split(","):
        vertex = job.vertex(name.strip().lower())
        if vertex is None:
            raise RestError(404, f"JobVertex {name.strip()} not found")
        found.append(vertex)
    return found


def _resolution(asked: Asked) -> Resolution:
    step_ms = asked.query_number("step", FINE.step_ms)
    for one in (FINE, COARSE):
        if one.step_ms == step_ms:
            return one
    raise RestError(400, f"step is {step_ms}, expected {FINE.step_ms} or {COARSE.step_ms} (ms).")


def _names(asked: Asked, usual: Sequence[str]) -> Sequence[str]:
    given = asked.query.get("get")
    if not given:
        return usual
    names = [name.strip() for name in given.split(",")]
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise RestError(
            400, f"get has {', '.join(unknown)}, expected some of {', '.join(FIGURES)}."
        )
    return names
