"""Requests of the dashboard that Flink's paths do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.hosting.clock import give_way
from penstock.hosting.observation.environment import environment
from penstock.hosting.rest.answers import Answer, Asked, RestError
from penstock.hosting.rest.pieces import pieces_of_archive
from penstock.hosting.rest.requests.handlers import Driver
from penstock.model.options.rest import WebOptions
from penstock.model.states import ExecutionState
from penstock.observation.jobs.snapshots import JobSnapshot, VertexSnapshot
from penstock.observation.metrics.entities import SubtaskScope
from penstock.observation.metrics.history_rings import Row
from penstock.observation.verdict.figures import StoredFigures
from penstock.observation.views import (
    archive,
    checkpoint_times,
    failure_groups,
    graph,
    lanes,
    options,
    skew,
    table,
    timeline,
    watermarks,
)
from penstock.observation.views.slots import SlotMap

_ORDERS: Final = ("asc", "desc")
_POOL_USAGE: Final = "Shuffle.Netty.Input.Buffers.inPoolUsage"


def job_head(driver: Driver, asked: Asked) -> Answer:
    """What each page of a job begins with. Raises RestError."""
    may_rescale = driver.settings.get(WebOptions.RESCALE)
    return Answer(graph.head_alone(driver.job(asked), may_rescale=may_rescale))


def job_graph(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/graph`. Raises RestError."""
    job = driver.job(asked)
    read = graph.consumed(job)

    def pool_usage(vertex: VertexSnapshot, subtask: int) -> float | None:
        scope = SubtaskScope(job.job_id, vertex.facts.vertex_id, subtask)
        with driver.observatory.reported() as store:
            value = store.value(scope, _POOL_USAGE)
        return float(value) if isinstance(value, int | float) else None

    nodes = []
    for vertex in job.vertices:
        is_sink = vertex.facts.vertex_id not in read
        rates = _latest(driver, job, vertex)
        nodes.append(graph.node(job, vertex, rates, pool_usage, is_sink=is_sink))
        give_way()
    return Answer(graph.graph(job, nodes))


def slots(driver: Driver, asked: Asked) -> Answer:
    """`/slots`. `jobid`: of this job only. Raises RestError: there is no such job."""
    now = driver.now()
    chosen = asked.query.get("jobid")
    jobs = [one for one in now.jobs if not chosen or one.job_id == chosen.lower()]
    if chosen and not jobs:
        raise RestError(404, f"Job {chosen} not found")
    told = SlotMap(jobs, now.now_ms, driver.observatory.spark_ui)
    for job in jobs:
        told.add(job)
        give_way()
    return Answer(told.told())


def exception_groups(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/exceptions/groups`. `fingerprint`: this group only, with its whole text. Raises RestError."""
    return Answer(failure_groups.groups(driver.job(asked), asked.query.get("fingerprint") or None))


def job_options(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/options`. Raises RestError."""
    return Answer(options.options(driver.job(asked)))


def job_watermarks(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/watermarks`. Raises RestError."""
    job = driver.job(asked)
    told = []
    stands = driver.observatory.since(job).watermarks
    for vertex in job.vertices:
        stand = stands.get(vertex.facts.vertex_id)
        with driver.observatory.reported() as store:
            figures = StoredFigures(store, job.job_id)
            speed = 1.0 if stand is None else stand.speed
            told.append(watermarks.of_vertex(job, vertex, figures, speed))
        give_way()
    return Answer(watermarks.watermarks(job, told))


def checkpoint_strip(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/checkpoints/strip`. A job that takes none has an empty one. Raises RestError."""
    return Answer(checkpoint_times.strip(driver.job(asked)))


def checkpoint_gantt(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/checkpoints/details/:checkpointid/gantt`. `vertexid`: of this vertex only. Raises RestError."""
    job, checkpoint = driver.checkpoint(asked)
    chosen = _chosen(job, asked)
    told = checkpoint_times.Gantt(job, checkpoint)
    for vertex in job.vertices if chosen is None else [chosen]:
        told.add(vertex)
        give_way()
    return Answer(told.told())


def job_timeline(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/timeline`. `vertexid`: the attempts of this vertex; `subtaskindex`: of this subtask; `offset`: so many lanes are
    left out. Raises RestError.
    """
    job = driver.job(asked)
    vertex = _chosen(job, asked)
    if vertex is None:
        return Answer(timeline.timeline(job))
    subtask = asked.query_number("subtaskindex", -1)
    if subtask >= len(vertex.attempts):
        raise RestError(404, f"Invalid subtask index for vertex {vertex.facts.vertex_id}")
    offset = max(0, asked.query_number("offset", 0))
    return Answer(timeline.of_vertex(job, vertex, None if subtask < 0 else subtask, offset))


def vertex_skew(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/vertices/:vertexid/skew`. Raises RestError."""
    return Answer(skew.skew(*driver.vertex(asked)))


def vertex_lanes(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/vertices/:vertexid/lanes`. `since`: only later steps, in epoch ms; `sort`: which subtasks are the worst. Raises RestError."""
    job, vertex = driver.vertex(asked)
    sort = asked.query.get("sort") or "busy"
    if sort not in lanes.FIGURES:
        raise RestError(400, f"sort is {sort!r}, expected one of {', '.join(lanes.FIGURES)}.")
    since_ms = asked.query_number("since", 0)
    with driver.observatory.histories() as histories:
        known = histories.lanes_of(job.job_id)
        kept = None if known is None else known.vertices.get(vertex.facts.vertex_id)
        end_ms = job.now_ms if job.ended_ms < 0 else job.ended_ms
        steps = None if kept is None else kept.steps(end_ms, since_ms)
    return Answer(lanes.lanes(job, vertex, steps, sort))


def job_archive(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/archive`: a file that `penstock history` reads. Raises RestError."""
    job = driver.job(asked)
    entries = archive.archive_of(job, environment(), driver.observatory.figures)
    headers = {"Content-Disposition": f'attachment; filename="{job.job_id}"'}
    return Answer(_giving_way(pieces_of_archive(entries)), headers=headers)


def _giving_way(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        give_way()
        yield piece


def vertex_table(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/vertices/:vertexid/table`. Raises RestError: the query names what there is not."""
    job, vertex = driver.vertex(asked)
    sort, order = asked.query.get("sort") or "subtask", asked.query.get("order") or "asc"
    if sort not in table.SORTS:
        raise RestError(400, f"sort is {sort!r}, expected one of {', '.join(table.SORTS)}.")
    if order not in _ORDERS:
        raise RestError(400, f"order is {order!r}, expected one of {', '.join(_ORDERS)}.")
    offset, limit = asked.query_number("offset", 0), asked.query_number("limit", table.LIMIT)
    with driver.observatory.histories() as histories:
        known = histories.lanes_of(job.job_id)
        before = None if known is None else known.before(vertex.facts.vertex_id)
    found = table.Table(job, vertex, before, _states(asked))
    for _ in found.measure():
        give_way()
    page = found.page(max(0, offset), max(1, limit), sort, is_descending=order == "desc")
    return Answer(page)


def _states(asked: Asked) -> frozenset[ExecutionState]:
    """Raises RestError: one of them is no state."""
    given = asked.query.get("state") or ""
    try:
        return frozenset(ExecutionState(one.strip().upper()) for one in given.split(",") if one)
    except ValueError:
        raise RestError(
            400, f"state is {given!r}, expected some of {', '.join(ExecutionState)}."
        ) from None


def _chosen(job: JobSnapshot, asked: Asked) -> VertexSnapshot | None:
    """Return the vertex of the query; None: it names none. Raises RestError: there is no such vertex."""
    vertex_id = asked.query.get("vertexid")
    if not vertex_id:
        return None
    vertex = job.vertex(vertex_id.lower())
    if vertex is None:
        raise RestError(404, f"JobVertex {vertex_id} not found")
    return vertex


def _latest(driver: Driver, job: JobSnapshot, vertex: VertexSnapshot) -> Row | None:
    """Return the newest figures of a vertex; None: it has no history."""
    with driver.observatory.histories() as histories:
        known = histories.of(job.job_id)
        kept = None if known is None else known.vertices.get(vertex.facts.vertex_id)
        if kept is None:
            return None
        return kept.fine.latest(job.now_ms, graph.RATES_WITHIN_MS, graph.RATES.values())
