"""Requests for metrics. Source: Flink AbstractMetricsHandler, AbstractAggregatingMetricsHandler."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from penstock.ops.jobs.views.rows import Rows
from penstock.ops.metrics.entities import (
    CoordinatorScope,
    JobManagerScope,
    JobScope,
    Scope,
    SubtaskScope,
    TaskManagerScope,
    VertexScope,
)
from penstock.ops.metrics.store import ALL, Aggregation
from penstock.ops.rest.answers import Asked, bad_parameter
from penstock.ops.rest.requests.handlers import Driver

_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?")


def _of(scope_of: Callable[[Driver, Asked], Scope]) -> Callable[[Driver, Asked], Any]:
    """Return the view of one entity's metrics: their ids, or the values of those that are named."""

    def view(driver: Driver, asked: Asked) -> Any:
        scope, names = scope_of(driver, asked), asked.parts("get")
        with driver.job_registry.metrics() as store:
            if not names:
                return Rows(store.ids(scope), _id)
            found = store.values(scope, names)
        return [{"id": one, "value": value} for one, value in found.items()]

    return view


def _place(driver: Driver, asked: Asked) -> tuple[str, str]:
    found, of = driver.vertex(asked)
    return found.job_id, of.facts.vertex_id


jobmanager: Final = _of(lambda *_: JobManagerScope())
taskmanager: Final = _of(lambda driver, asked: TaskManagerScope(driver.taskmanager(asked)))
job: Final = _of(lambda driver, asked: JobScope(driver.job(asked).job_id))
vertex: Final = _of(lambda driver, asked: VertexScope(*_place(driver, asked)))
coordinators: Final = _of(lambda driver, asked: CoordinatorScope(*_place(driver, asked)))
subtask: Final = _of(
    lambda driver, asked: SubtaskScope(*_place(driver, asked), driver.subtask(asked)[2])
)


def all_jobs(driver: Driver, asked: Asked) -> Any:
    """`/jobs/metrics`. `jobs`: only these."""
    known = [one.job_id for one in driver.now().jobs]
    return _aggregates(driver, asked, [JobScope(one) for one in _chosen(asked, "jobs", known)])


def all_subtasks(driver: Driver, asked: Asked) -> Any:
    """`/jobs/:jobid/vertices/:vertexid/subtasks/metrics`. `subtasks`: only these, for example 1,3-5."""
    found, of = driver.vertex(asked)
    known = range(len(of.attempts))
    chosen = asked.parts("subtasks")
    wanted = [one for one in _indices(chosen) if one in known] if chosen else known
    scopes = [SubtaskScope(found.job_id, of.facts.vertex_id, one) for one in wanted]
    return _aggregates(driver, asked, scopes)


def all_taskmanagers(driver: Driver, asked: Asked) -> Any:
    """`/taskmanagers/metrics`. `taskmanagers`: only these."""
    wanted = _chosen(asked, "taskmanagers", driver.taskmanagers())
    return _aggregates(driver, asked, [TaskManagerScope(one) for one in wanted])


def _chosen(asked: Asked, name: str, known: Sequence[str]) -> Sequence[str]:
    """Return those of the query that there are; all, if it names none."""
    chosen = asked.parts(name)
    return [one for one in chosen if one in known] if chosen else known


def _indices(parts: Sequence[str]) -> Iterator[int]:
    """What is no number in the list is ignored, as Flink does."""
    for part in parts:
        found = _RANGE.fullmatch(part)
        if found is not None:
            first = int(found[1])
            yield from range(first, int(found[2] or first) + 1)


def _aggregates(driver: Driver, asked: Asked, scopes: Sequence[Scope]) -> Any:
    names, wanted = asked.parts("get"), _aggregations(asked)
    with driver.job_registry.metrics() as store:
        if not names:
            return Rows(store.ids_of(scopes), _id)
        found = store.aggregate(scopes, names, wanted)
    return [_aggregate(one.id, one.numbers) for one in found]


def _id(name: str) -> dict[str, str]:
    return {"id": name}


def _aggregate(name: str, numbers: Any) -> dict[str, Any]:
    return {"id": name, **{str(kind): float(number) for kind, number in numbers.items()}}


def _aggregations(asked: Asked) -> frozenset[Aggregation]:
    try:
        return frozenset(Aggregation(one.lower()) for one in asked.parts("agg")) or ALL
    except ValueError:
        raise bad_parameter("query", "agg", asked.query["agg"]) from None
