"""Requests for metrics. Source: Flink AbstractMetricsHandler, AbstractAggregatingMetricsHandler."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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


def jobmanager(driver: Driver, asked: Asked) -> Any:
    return _values(driver, asked, JobManagerScope())


def taskmanager(driver: Driver, asked: Asked) -> Any:
    return _values(driver, asked, TaskManagerScope(driver.taskmanager(asked)))


def job(driver: Driver, asked: Asked) -> Any:
    return _values(driver, asked, JobScope(driver.job(asked).job_id))


def vertex(driver: Driver, asked: Asked) -> Any:
    found, of = driver.vertex(asked)
    return _values(driver, asked, VertexScope(found.job_id, of.facts.vertex_id))


def coordinators(driver: Driver, asked: Asked) -> Any:
    found, of = driver.vertex(asked)
    return _values(driver, asked, CoordinatorScope(found.job_id, of.facts.vertex_id))


def subtask(driver: Driver, asked: Asked) -> Any:
    found, of, index = driver.subtask(asked)
    return _values(driver, asked, SubtaskScope(found.job_id, of.facts.vertex_id, index))


def all_jobs(driver: Driver, asked: Asked) -> Any:
    """`/jobs/metrics`. `jobs`: only these."""
    chosen = asked.query.get("jobs")
    known = [one.job_id for one in driver.now().jobs]
    wanted = known if not chosen else [one for one in chosen.split(",") if one in known]
    return _aggregates(driver, asked, [JobScope(one) for one in wanted])


def all_subtasks(driver: Driver, asked: Asked) -> Any:
    """`/jobs/:jobid/vertices/:vertexid/subtasks/metrics`. `subtasks`: only these, for example 1,3-5."""
    found, of = driver.vertex(asked)
    chosen = asked.query.get("subtasks")
    known = range(len(of.attempts))
    wanted = known if not chosen else [one for one in _indices(chosen) if one in known]
    vertex_id = of.facts.vertex_id
    scopes = [SubtaskScope(found.job_id, vertex_id, one) for one in wanted]
    return _aggregates(driver, asked, scopes)


def all_taskmanagers(driver: Driver, asked: Asked) -> Any:
    """`/taskmanagers/metrics`. `taskmanagers`: only these."""
    chosen = asked.query.get("taskmanagers")
    known = driver.taskmanagers()
    wanted = known if not chosen else [one for one in chosen.split(",") if one in known]
    return _aggregates(driver, asked, [TaskManagerScope(one) for one in wanted])


def _indices(text: str) -> Iterator[int]:
    """What is no number in the list is ignored, as Flink does."""
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is not None:
            first = int(found[1])
            yield from range(first, int(found[2] or first) + 1)


def _values(driver: Driver, asked: Asked, scope: Scope) -> Any:
    names = _names(asked)
    with driver.job_registry.metrics() as store:
        if names is None:
            return Rows(store.ids(scope), _id)
        found = store.values(scope, names)
    return [{"id": one, "value": value} for one, value in found.items()]


def _aggregates(driver: Driver, asked: Asked, scopes: Sequence[Scope]) -> Any:
    names, wanted = _names(asked), _aggregations(asked)
    with driver.job_registry.metrics() as store:
        if names is None:
            return Rows(store.ids_of(scopes), _id)
        found = store.aggregate(scopes, names, wanted)
    return [_told(one.id, one.numbers) for one in found]


def _id(name: str) -> dict[str, str]:
    return {"id": name}


def _told(name: str, numbers: Any) -> dict[str, Any]:
    return {"id": name, **{str(kind): float(number) for kind, number in numbers.items()}}


def _names(asked: Asked) -> list[str] | None:
    """None: the ids are asked for, not values."""
    given = asked.query.get("get")
    return None if not given else [one for one in given.split(",") if one]


def _aggregations(asked: Asked) -> frozenset[Aggregation]:
    given = asked.query.get("agg")
    if not given:
        return ALL
    try:
        return frozenset(Aggregation(one.strip().lower()) for one in given.split(","))
    except ValueError:
        raise bad_parameter("query", "agg", given) from None
