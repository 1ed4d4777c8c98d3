"""Requests of pages about processes and about single vertices that Flink's paths do not answer."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.hosting.clock import give_way
from penstock.hosting.rest.answers import Answer, Asked, RestError
from penstock.hosting.rest.requests.handlers import Driver
from penstock.observation.metrics.entities import TaskManagerScope
from penstock.observation.views import health, pressure


def taskmanagers_health(driver: Driver, asked: Asked) -> Answer:
    """`/taskmanagers/health`. Raises RestError: the order is unknown."""
    sort, order = asked.query.get("sort", ""), asked.query.get("order", "asc")
    if sort and sort not in health.ORDERS:
        raise RestError(400, f"sort is {sort!r}, expected one of {', '.join(health.ORDERS)}.")
    if order not in {"asc", "desc"}:
        raise RestError(400, f"order is {order!r}, expected asc or desc.")
    page, name = max(0, asked.query_number("page", 0)), asked.query.get("id", "")
    now = driver.now()
    with driver.observatory.reported() as store:

        def values(taskmanager: str) -> Mapping[str, str]:
            return store.values(TaskManagerScope(taskmanager), health.FIGURES.values())

        found = health.Health(now.now_ms, health.Chosen(sort, order == "desc", page, name), values)
        for job in now.jobs:
            found.add(job)
        told = found.told()
    give_way()
    return Answer(told)


def vertex_pressure(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/vertices/:vertexid/pressure`. `page`: from 0. Raises RestError."""
    job, vertex = driver.vertex(asked)
    return Answer(pressure.pressure(job, vertex, max(0, asked.query_number("page", 0))))
