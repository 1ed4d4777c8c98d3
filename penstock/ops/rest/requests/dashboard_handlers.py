"""Requests of the dashboard that Flink's paths do not answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.engine.hosting.os.clock import give_way, giving_way
from penstock.engine.model.options.rest import WebOptions
from penstock.engine.model.states import ExecutionState
from penstock.ops.jobs.diagnosis.watermarks import StoredFigures
from penstock.ops.jobs.snapshots import VertexSnapshot
from penstock.ops.jobs.views import (
    archive,
    checkpoints,
    exceptions,
    graph,
    health,
    lanes,
    table,
    timeline,
    vertices,
    watermarks,
)
from penstock.ops.jobs.views.cluster import environment
from penstock.ops.jobs.views.rows import answer_of
from penstock.ops.jobs.views.slots import slot_map
from penstock.ops.jobs.views.story import story
from penstock.ops.metrics.entities import SubtaskScope, TaskManagerScope
from penstock.ops.rest.answers import Answer, Asked, RestError
from penstock.ops.rest.pieces import blocks_of, pieces_of_archive
from penstock.ops.rest.requests.handlers import Driver, chosen_subtask, chosen_vertex

_SWITCH: Final = re.compile(r"[a-z][a-z0-9-]*")
_ORDERS: Final = ("asc", "desc")
_POOL_USAGE: Final = "Shuffle.Netty.Input.Buffers.inPoolUsage"


def job_head(driver: Driver, asked: Asked) -> Any:
    """What each page of a job begins with. Raises RestError."""
    may_rescale = driver.settings.get(WebOptions.RESCALE)
    return graph.head_alone(driver.job(asked), may_rescale=may_rescale)


def job_graph(driver: Driver, asked: Asked) -> Any:
    """`/jobs/:jobid/graph`. Raises RestError."""
    job = driver.job(asked)
    read = graph.consumed(job)

    def pool_usage(vertex: VertexSnapshot, subtask: int) -> float | None:
        scope = SubtaskScope(job.job_id, vertex.facts.vertex_id, subtask)
        with driver.job_registry.reported() as store:
            value = store.value(scope, _POOL_USAGE)
        return float(value) if isinstance(value, int | float) else None

    nodes = []
    for vertex in job.vertices:
        is_sink = vertex.facts.vertex_id not in read
        nodes.append(graph.node(job, vertex, pool_usage, is_sink=is_sink))
        give_way()
    return graph.graph(job, nodes)


def slots(driver: Driver, asked: Asked) -> Any:
    """`/slots`. `jobid`: of this job only. Raises RestError: there is no such job."""
    now = driver.now()
    chosen = asked.query.get("jobid")
    jobs = [one for one in now.jobs if not chosen or one.job_id == chosen.lower()]
    if chosen and not jobs:
        raise RestError(404, f"Job {chosen} not found")
    return answer_of(slot_map(jobs, now.now_ms, driver.job_registry.spark_ui), give_way)


def exception_groups(driver: Driver, asked: Asked) -> Any:
    """`/jobs/:jobid/exceptions/groups`. `fingerprint`: this group only, with its whole text. Raises RestError."""
    return exceptions.groups(driver.job(asked), asked.query.get("fingerprint") or None)


def job_watermarks(driver: Driver, asked: Asked) -> Any:
    """`/jobs/:jobid/watermarks`. Raises RestError."""
    job = driver.job(asked)
    answers = []
    stands = driver.job_registry.since(job).watermarks
    for vertex in job.vertices:
        stand = stands.get(vertex.facts.vertex_id)
        with driver.job_registry.reported() as store:
            figures = StoredFigures(store, job.job_id)
            speed = 1.0 if stand is None else stand.speed
            answers.append(watermarks.of_vertex(job, vertex, figures, speed))
        give_way()
    return watermarks.watermarks(job, answers)


def checkpoint_gantt(driver: Driver, asked: Asked) -> Any:
    """`/jobs/:jobid/checkpoints/details/:checkpointid/gantt`. `vertexid`: of this vertex only. Raises RestError."""
    job, checkpoint = driver.checkpoint(asked)
    chosen = chosen_vertex(job, asked)
    shown = job.vertices if chosen is None else [chosen]
    return answer_of(checkpoints.gantt(job, checkpoint, shown), give_way)


def job_timeline(driver: Driver, asked: Asked) -> Any:
    """`/jobs/:jobid/timeline`. Raises RestError.

    `vertexid`: the attempts of this vertex; `subtaskindex`: of this subtask; `offset`: how many lanes are left out.
    """
    job = driver.job(asked)
    vertex = chosen_vertex(job, asked)
    if vertex is None:
        return timeline.timeline(job)
    offset = max(0, asked.query_number("offset", 0))
    return timeline.of_vertex(job, vertex, chosen_subtask(vertex, asked), offset)


def vertex_lanes(driver: Driver, asked: Asked) -> Any:
    """`/jobs/:jobid/vertices/:vertexid/lanes`. `since`: only later steps, in epoch ms; `sort`: which subtasks are the worst. Raises RestError."""
    job, vertex = driver.vertex(asked)
    sort = asked.one_of("sort", lanes.FIGURES, "busy")
    since_ms = asked.query_number("since", 0)
    with driver.job_registry.histories() as histories:
        kept = histories.lanes_of(job.job_id).vertices.get(vertex.facts.vertex_id)
        steps = None if kept is None else kept.steps(job.until_ms, since_ms)
    return lanes.lanes(job, vertex, steps, sort)


def job_archive(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/archive`: a file that `penstock history` reads. Raises RestError."""
    job = driver.job(asked)
    entries = archive.archive_of(job, environment(), driver.job_registry.figures)
    headers = {"Content-Disposition": f'attachment; filename="{job.job_id}"'}
    return Answer(blocks_of(giving_way(pieces_of_archive(entries))), headers=headers)


def vertex_table(driver: Driver, asked: Asked) -> Any:
    """`/jobs/:jobid/vertices/:vertexid/table`. Raises RestError: the query names what there is not."""
    job, vertex = driver.vertex(asked)
    sort = asked.one_of("sort", table.SORTS, "subtask")
    order = asked.one_of("order", _ORDERS, "asc")
    offset, limit = asked.query_number("offset", 0), asked.query_number("limit", table.LIMIT)
    found = table.Table(job, vertex, _states(asked))
    for _ in found.measure():
        give_way()
    return found.page(max(0, offset), max(1, limit), sort, is_descending=order == "desc")


def _states(asked: Asked) -> frozenset[ExecutionState]:
    """Raises RestError: one of them is no state."""
    try:
        return frozenset(ExecutionState(one.upper()) for one in asked.parts("state"))
    except ValueError:
        text = f"state is {asked.query['state']!r}, expected some of {', '.join(ExecutionState)}."
        raise RestError(400, text) from None


def taskmanagers_health(driver: Driver, asked: Asked) -> Any:
    """`/taskmanagers/health`. Raises RestError: the order is unknown."""
    sort = asked.one_of("sort", health.ORDERS, "") if asked.query.get("sort") else ""
    order = asked.one_of("order", _ORDERS, "asc")
    page, name = max(0, asked.query_number("page", 0)), asked.query.get("id", "")
    now = driver.now()
    with driver.job_registry.reported() as store:

        def values(taskmanager: str) -> Mapping[str, str]:
            return store.values(TaskManagerScope(taskmanager), health.FIGURES.values())

        chosen = health.Chosen(sort, order == "desc", page, name)
        return health.health(now.jobs, now.now_ms, chosen, values)


def vertex_pressure(driver: Driver, asked: Asked) -> Any:
    """`/jobs/:jobid/vertices/:vertexid/pressure`. `page`: from 0. Raises RestError."""
    job, vertex = driver.vertex(asked)
    return vertices.pressure(job, vertex, max(0, asked.query_number("page", 0)))


def job_story(driver: Driver, asked: Asked) -> Any:
    """`/jobs/:jobid/story`. `vertexid`, `subtaskindex`: whose attempts are included. `machine`: the job's machine's lines."""
    job = driver.job(asked)
    vertex = chosen_vertex(job, asked)
    subtask = None if vertex is None else chosen_subtask(vertex, asked)
    count = asked.query_number("machine", 0)
    control = driver.job_registry.control(job.job_id) if count > 0 else None
    lines = control.story(_part(vertex, subtask)) if isinstance(control, JobHandle) else []
    return story(job, vertex, subtask, lines[-count:] if count > 0 else [])


def _part(vertex: VertexSnapshot | None, subtask: int | None) -> str:
    """What the lines of the machine have that are about these attempts, which it names so: `1f5c0a9b[0]#2`."""
    if vertex is None:
        return ""
    begin = f"{vertex.facts.vertex_id[:8]}["
    return begin if subtask is None else f"{begin}{subtask}]"


def switches(driver: Driver, _asked: Asked) -> Any:
    """The switches that a program offers for demonstrations, by name: files of a folder, which its functions look at.

    `<name>.text` says what the switch does, in one line; it is on while `<name>.on` exists.
    """
    folder = _switches(driver)
    found = [] if folder is None else sorted(folder.glob("*.text"))
    return {"switches": [_switch(one.with_suffix("")) for one in found]}


def turn(driver: Driver, asked: Asked) -> Any:
    """Turn a switch on or off: `{"on": true}`. Raises RestError."""
    folder, name = _switches(driver), asked.path["name"]
    if folder is None or not _SWITCH.fullmatch(name) or not (folder / f"{name}.text").is_file():
        raise RestError(404, f"This driver's program offers no switch '{name}'.")
    if asked.flag("on"):
        (folder / f"{name}.on").touch()
    else:
        (folder / f"{name}.on").unlink(missing_ok=True)
    return _switch(folder / name)


def _switches(driver: Driver) -> Path | None:
    folder = driver.settings.get(WebOptions.SWITCHES)
    return None if folder is None else Path(folder)


def _switch(path: Path) -> dict[str, Any]:
    text = path.with_suffix(".text").read_text(encoding="utf-8").strip()
    return {"name": path.name, "text": text, "on": path.with_suffix(".on").exists()}
