"""What an archive keeps of a job: each path of the REST API about the job, with its answer.

Source: Flink's JsonArchivist handlers (2.3). A history server reads `/jobs/overview` into a class of its own, which takes Flink's
fields only, and passes all other answers on unread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from penstock.ops.jobs.diagnosis.history import Since
from penstock.ops.jobs.diagnosis.verdict import verdict_on
from penstock.ops.jobs.snapshots import (
    CheckpointSnapshot,
    DriverSnapshot,
    JobSnapshot,
    VertexSnapshot,
)
from penstock.ops.jobs.views import (
    bottleneck,
    checkpoints,
    cluster,
    exceptions,
    graph,
    history,
    jobs,
    rescales,
    story,
    timeline,
    vertices,
)
from penstock.ops.jobs.views.attempts import Json, attempts_of
from penstock.ops.jobs.views.rows import answer_of
from penstock.ops.metrics.history_rings import COARSE, FIGURES, FINE, Resolution, Rows

Entry: TypeAlias = tuple[str, "Json | Sequence[Json]"]
"""A path, and its answer."""
Figures: TypeAlias = Callable[[JobSnapshot, VertexSnapshot, Resolution], Rows]
"""What is kept of a vertex over time."""
_OF_AN_HOUR: Final = 3_600_000 // COARSE.step_ms


def _no_figures(_job: JobSnapshot, _vertex: VertexSnapshot, _resolution: Resolution) -> Rows:
    return ()


def archive_of(
    job: JobSnapshot, environment: Json, figures: Figures = _no_figures
) -> Iterator[Entry]:
    """Return the archive of a job, as it is now. `environment`: of its driver, as `/jobmanager/environment` answers it.

    `figures`: of a vertex over time.
    """
    root = f"/jobs/{job.job_id}"
    yield "/jobs/overview", jobs.overview(DriverSnapshot((job,), job.now_ms))
    yield root, jobs.details(job)
    yield f"{root}/config", jobs.config(job)
    yield f"{root}/plan", jobs.plan(job)
    yield f"{root}/exceptions", exceptions.history(job)
    yield f"{root}/accumulators", jobs.accumulators(job)
    yield f"{root}/jobmanager/config", cluster.job_options(job)
    yield f"{root}/jobmanager/environment", environment
    yield from _rescales(f"{root}/rescales", job)
    yield from _for_the_dashboard(root, job)
    yield from _over_time(root, job, figures)
    yield from _checkpoints(root, job)
    for vertex in job.vertices:
        yield from _vertex(f"{root}/vertices/{vertex.facts.vertex_id}", job, vertex)


def _for_the_dashboard(root: str, job: JobSnapshot) -> Iterator[Entry]:
    """What Flink does not have. There are no rates and no shares of time: they are of a moment."""
    read = graph.consumed(job)
    nodes = [
        graph.node(job, one, lambda *_: None, is_sink=one.facts.vertex_id not in read)
        for one in job.vertices
    ]
    yield f"{root}/graph", graph.graph(job, nodes)
    yield f"{root}/bottleneck", bottleneck.bottleneck(job, verdict_on(job, Since()))
    yield f"{root}/story", story.story(job)
    yield f"{root}/timeline", timeline.timeline(job)
    yield f"{root}/options", jobs.options(job)
    yield f"{root}/exceptions/groups", exceptions.groups(job)
    yield f"{root}/checkpoints/strip", checkpoints.strip(job)


def _over_time(root: str, job: JobSnapshot, figures: Figures) -> Iterator[Entry]:
    """Figures of the last 10 minutes if the job did not last longer, else of the last hour."""
    is_short = job.lasted_ms <= FINE.step_ms * FINE.rows
    resolution, most = (FINE, FINE.rows) if is_short else (COARSE, _OF_AN_HOUR)
    few: list[Json] = []
    for vertex in job.vertices:
        rows = figures(job, vertex, resolution)[-most:]
        few.append(history.of_vertex(vertex, rows, history.OF_A_JOB))
        figures_over_time = history.of_vertex(vertex, rows, FIGURES)
        path = f"{root}/vertices/{vertex.facts.vertex_id}/history"
        yield path, history.history(job.now_ms, resolution, figures_over_time)
    yield f"{root}/history", history.history(job.now_ms, resolution, {"vertices": few})


def _rescales(root: str, job: JobSnapshot) -> Iterator[Entry]:
    known = job.rescales
    if known is None:
        for name in ("config", "overview", "summary", "history"):
            yield f"{root}/{name}", _error(jobs.no_rescales(job))
        return
    yield f"{root}/config", rescales.config(job)
    yield f"{root}/overview", rescales.overview(job, known)
    yield f"{root}/summary", rescales.summary(job, known)
    yield f"{root}/history", rescales.history(job, known)
    for one in {
        found.rescale_id: found for found in (*known.latest.values(), *known.kept)
    }.values():
        yield f"{root}/details/{one.rescale_id}", rescales.details(job, one)


def _checkpoints(root: str, job: JobSnapshot) -> Iterator[Entry]:
    config = checkpoints.config(job)
    if config is None:
        text = checkpoints.not_enabled(job)
        yield f"{root}/checkpoints", _error(text)
        yield f"{root}/checkpoints/config", _error(text)
        return
    yield f"{root}/checkpoints", checkpoints.overview(job)
    yield f"{root}/checkpoints/config", config
    for one in _remembered(job):
        place = f"{root}/checkpoints/details/{one.checkpoint_id}"
        yield place, checkpoints.statistics(one, has_tasks=True)
        yield f"{place}/gantt", answer_of(checkpoints.gantt(job, one, job.vertices))
        for vertex_id in one.subtasks:
            yield f"{place}/subtasks/{vertex_id}", checkpoints.subtasks(one, vertex_id)


def _remembered(job: JobSnapshot) -> list[CheckpointSnapshot]:
    """Return those of the history, and the latest of each kind, which may be older."""
    known = job.checkpoints
    latest = (known.latest_completed, known.latest_savepoint, known.latest_failed)
    ones = (*known.history, *(one for one in latest if one is not None))
    return list({one.checkpoint_id: one for one in reversed(ones)}.values())


def _vertex(root: str, job: JobSnapshot, vertex: VertexSnapshot) -> Iterator[Entry]:
    yield root, vertices.details(job, vertex)
    yield f"{root}/subtasktimes", vertices.times(job, vertex)
    yield f"{root}/taskmanagers", vertices.taskmanagers(job, vertex)
    yield f"{root}/skew", bottleneck.skew(job, vertex)
    yield f"{root}/watermarks", vertices.watermarks(vertex)
    yield f"{root}/accumulators", vertices.accumulators(vertex)
    yield f"{root}/subtasks/accumulators", vertices.subtask_accumulators(vertex)
    for index in range(len(vertex.attempts)):
        for one in attempts_of(vertex, index):
            number = one.attempt.attempt
            place = f"{root}/subtasks/{index}/attempts/{number}"
            details = vertices.attempt(job, vertex, index, number)
            accumulators = vertices.attempt_accumulators(vertex, index, number)
            assert details is not None
            assert accumulators is not None
            yield place, details
            yield f"{place}/accumulators", accumulators


def _error(text: str) -> Json:
    return {"errors": [text]}
