"""Requests about the session of this process: what it is, jobs for it, and its end. A driver of a program refuses them.

Source: Flink JobSubmitHandler, ShutdownHandler; differs: a path and a media type of our own, because what is submitted is no Java.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.ops.rest.answers import Answer, Asked, RestError
from penstock.ops.rest.requests.handlers import Driver
from penstock.ops.rest.session_place import MEDIA, SESSION_PLACE, SessionPort

_SUBMISSION: Final = "job submission"


def session() -> Any:
    """GET /session. A driver of a program says that it is none."""
    found = SESSION_PLACE.session
    return {"session": False} if found is None else {"session": True, **found.about()}


def submit(driver: Driver, asked: Asked) -> Answer:
    """POST /session/jobs: opened and started on a thread of its own."""
    found = _session()
    if asked.media != MEDIA:
        raise RestError(415, f"A job is sent as {MEDIA}, got {asked.media or 'no media type'}.")
    try:
        found.check(asked.query)
    except ConfigurationError as error:
        raise RestError(409, str(error)) from None
    key = driver.operations.start(
        _SUBMISSION, lambda: found.submit(asked.data), asked.query.get("triggerId")
    )
    return Answer({"request-id": key}, 202)


def submission(driver: Driver, asked: Asked) -> Any:
    """GET /session/jobs/:triggerid: how the submission went."""
    return driver.operations.status(_SUBMISSION, asked.hex_id("triggerid"))


def rows(_driver: Driver, asked: Asked) -> Any:
    """GET /session/jobs/:jobid/rows/:stream: the piece after `after`, for the client that collects."""
    job_id, stream, chosen = asked.hex_id("jobid"), asked.path["stream"], asked.query.get("chosen")
    try:
        piece = _session().rows(job_id, stream, asked.query_number("after", 0), chosen or "")
    except ExternalError as error:
        raise RestError(410, str(error)) from None
    return piece


def heartbeat(driver: Driver, asked: Asked) -> Answer:
    """PATCH /jobs/:jobid/clientHeartbeat: the client of the job lives. Only jobs of a session whose rows it collects end without it."""
    if SESSION_PLACE.session is None:
        driver.job(asked)
        return Answer({}, 202)
    until = asked.body.get("expiredTimestamp")
    if not isinstance(until, int) or isinstance(until, bool):
        raise RestError(400, f"'expiredTimestamp' must be epoch milliseconds, got {until!r}.")
    job_id = asked.hex_id("jobid")
    if not SESSION_PLACE.session.client_lives(job_id, until):
        raise RestError(404, f"Job {job_id} is not known to this cluster, or has ended.")
    return Answer({}, 202)


def shut_down(_driver: Driver, _asked: Asked) -> Any:
    """DELETE /cluster."""
    if SESSION_PLACE.session is None:
        raise RestError(
            403,
            "This REST server belongs to the driver of a program, and ends with it. Cancel its "
            "jobs, or end the program.",
        )
    SESSION_PLACE.session.stop()
    return {}


def _session() -> SessionPort:
    """Raises RestError: this driver takes no jobs."""
    found = SESSION_PLACE.session
    if found is None:
        raise RestError(
            403,
            "This driver runs a program of its own and takes no jobs. Start one that does with "
            "`penstock session`.",
        )
    return found
