"""Requests for the rescales of a job: `/jobs/:jobid/rescales/*`. The answers are in `observation.views.rescales`."""

from __future__ import annotations

from penstock.hosting.rest.answers import Answer, Asked, RestError
from penstock.hosting.rest.requests.handlers import Driver
from penstock.model.elastic.rescales import Rescales
from penstock.observation.jobs.snapshots import JobSnapshot
from penstock.observation.views import jobs, rescales


def config(driver: Driver, asked: Asked) -> Answer:
    return Answer(rescales.config(_known(driver, asked)[0]))


def overview(driver: Driver, asked: Asked) -> Answer:
    return Answer(rescales.overview(*_known(driver, asked)))


def past(driver: Driver, asked: Asked) -> Answer:
    return Answer(rescales.history(*_known(driver, asked)))


def summary(driver: Driver, asked: Asked) -> Answer:
    return Answer(rescales.summary(_known(driver, asked)[1]))


def details(driver: Driver, asked: Asked) -> Answer:
    job, known = _known(driver, asked)
    name = asked.path["rescaleuuid"]
    found = known.find(name)
    if found is None:
        raise RestError(404, f"There is no rescale {name}, or it is not kept any more.")
    return Answer(rescales.details(job, found))


def _known(driver: Driver, asked: Asked) -> tuple[JobSnapshot, Rescales]:
    """Raises RestError: no such job, or nobody has asked to rescale it."""
    job = driver.job(asked)
    if job.rescales is None:
        raise RestError(404, jobs.no_rescales(job))
    return job, job.rescales
