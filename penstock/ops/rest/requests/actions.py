"""Requests that change something: cancel, stop, savepoints, checkpoints, requirements. Source: Flink JobCancellationHandler, SavepointHandlers,
CheckpointHandlers, SavepointDisposalHandlers, JobResourceRequirementsHandler (docs/spec/elasticity.md#requirements); differs: every
streaming job can be asked for its requirements, whatever its scheduler.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any, Final

from penstock.engine.hosting.checkpoints.reader import read_savepoint
from penstock.engine.hosting.jobmanager.handle import (
    JobHasEnded,
    RequirementsRefused,
    UpdateUnderWay,
)
from penstock.engine.machines.dispatcher import Cancelled
from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.elastic import (
    requirements_from_plain,
    requirements_to_plain,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.program import JobControl
from penstock.engine.model.states import JobStatus
from penstock.ops.rest.answers import Answer, Asked, RestError, bad_parameter
from penstock.ops.rest.requests.handlers import Driver
from penstock.ops.rest.session_place import SESSION_PLACE

_CHECKPOINT_TYPES: Final = ("CONFIGURED", "FULL", "INCREMENTAL")
_FORMATS: Final = ("CANONICAL", "NATIVE")
_STOP_IS_GONE: Final = (
    'The termination mode "stop" has been removed. For an ungraceful shutdown, please use "cancel" '
    "instead. For a graceful shutdown, please use /jobs/:jobid/stop instead."
)
_DISPOSAL: Final = "savepoint-disposal"


def cancel(driver: Driver, asked: Asked) -> Answer:
    """PATCH /jobs/:jobid. A job that is canceled already is fine; one that has ended otherwise is not."""
    mode = asked.query.get("mode", "cancel").lower()
    if mode == "stop":
        raise RestError(308, _STOP_IS_GONE)
    if mode != "cancel":
        raise bad_parameter("query", "mode", asked.query["mode"])
    return cancel_job(driver, asked)


def cancel_job(driver: Driver, asked: Asked, name: str = "jobid") -> Answer:
    """Cancel the job that the path names."""
    job_id = asked.hex_id(name)
    session = SESSION_PLACE.session
    if session is not None and session.cancel(job_id) is Cancelled.ACCEPTED:
        return Answer({}, 202)  # Perhaps it does not run yet.
    job = driver.job_registry.job(job_id)
    if job is None:
        raise RestError(404, f"Job could not be found: {job_id}")
    if job.status.is_terminal and job.status is not JobStatus.CANCELED:
        raise RestError(
            409,
            "Job cancellation failed because the job has already reached another terminal state "
            f"({job.status}).",
        )
    control = driver.job_registry.control(job_id)
    if control is not None and not job.status.is_terminal:
        control.cancel()
    return Answer({}, 202)


def cancel_application(driver: Driver, asked: Asked) -> Answer:
    return cancel_job(driver, asked, "applicationid")


def trigger_savepoint(driver: Driver, asked: Asked) -> Answer:
    """POST /jobs/:jobid/savepoints."""
    control = control_of(driver, asked)
    _check_format(asked)
    directory = _directory(asked, "target-directory")
    cancels = asked.flag("cancel-job")

    def work() -> dict[str, Any]:
        folder = control.start_savepoint(CheckpointType.SAVEPOINT, directory)(None)
        if cancels:
            control.cancel()
        return {"location": folder}

    return _started(driver, asked, f"savepoint {control.job_id}", work)


def stop(driver: Driver, asked: Asked) -> Answer:
    """POST /jobs/:jobid/stop: a savepoint, with which the job ends."""
    control = control_of(driver, asked)
    _check_format(asked)
    directory = _directory(asked, "targetDirectory")
    kind = CheckpointType.STOP_DRAIN if asked.flag("drain") else CheckpointType.STOP_SUSPEND
    return _started(
        driver,
        asked,
        f"savepoint {control.job_id}",
        lambda: {"location": control.start_savepoint(kind, directory)(None)},
    )


def _status(kind: str) -> Callable[[Driver, Asked], Any]:
    """Return the view that shows how such an operation on a job went."""
    return lambda driver, asked: driver.operations.status(
        f"{kind} {asked.hex_id('jobid')}", asked.hex_id("triggerid")
    )


savepoint_status: Final = _status("savepoint")
"""Of a stop, too."""
checkpoint_status: Final = _status("checkpoint")


def trigger_checkpoint(driver: Driver, asked: Asked) -> Answer:
    """POST /jobs/:jobid/checkpoints. A FULL one is not different here: every checkpoint can be restored alone."""
    kind = asked.text("checkpointType") or "CONFIGURED"
    if kind not in _CHECKPOINT_TYPES:
        raise RestError(
            400, f"checkpointType is {kind!r}, expected one of {', '.join(_CHECKPOINT_TYPES)}."
        )
    control = control_of(driver, asked)

    def work() -> dict[str, Any]:
        folder = control.start_savepoint(CheckpointType.CHECKPOINT, None)(None)
        return {"checkpointId": int(folder.rstrip("/").rpartition("-")[2])}

    return _started(driver, asked, f"checkpoint {control.job_id}", work, "failureCause")


def dispose_savepoint(driver: Driver, asked: Asked) -> Any:
    """POST /savepoint-disposal."""
    path = _directory(asked, "savepoint-path")
    if not path:
        raise RestError(400, "Field savepoint-path must not be omitted or be null.")

    def work() -> dict[str, Any]:
        read_savepoint(path).dispose()
        return {}

    return {"request-id": driver.operations.start(_DISPOSAL, work)}


def disposal_status(driver: Driver, asked: Asked) -> Any:
    """GET /savepoint-disposal/:triggerid."""
    return driver.operations.status(_DISPOSAL, asked.hex_id("triggerid"))


def requirements(driver: Driver, asked: Asked) -> Any:
    """GET: the bounds of all vertices."""
    control = control_of(driver, asked)
    with _refusals():
        return requirements_to_plain(control.resource_requirements())


def change_requirements(driver: Driver, asked: Asked) -> Any:
    """PUT: other bounds, for all vertices at once. Answers when they are recorded; the job changes when it has the slots."""
    control = control_of(driver, asked)
    try:
        wanted = requirements_from_plain(asked.body)
    except ConfigurationError as error:
        raise RestError(400, str(error)) from error
    with _refusals():
        control.require_resources(wanted)
    return {}


@contextlib.contextmanager
def _refusals() -> Generator[None]:
    """Raises RestError: the job does not do what it is asked for."""
    try:
        yield
    except RequirementsRefused as error:
        raise RestError(400, str(error)) from error
    except (JobHasEnded, UpdateUnderWay) as error:
        raise RestError(409, str(error)) from error
    except (ConfigurationError, ExternalError, OSError) as error:
        raise RestError(500, "Internal server error.", str(error)) from error


def control_of(driver: Driver, asked: Asked) -> JobControl:
    """Raises RestError: no such job, or it is not started yet."""
    job = driver.job(asked)
    control = driver.job_registry.control(job.job_id)
    if control is None:
        raise RestError(503, f"Job {job.job_id} is not started yet. Ask again later.")
    return control


def _directory(asked: Asked, name: str) -> str | None:
    """Return the folder that the body names; None: it names none, so the configured one is meant. Raises RestError.

    A stranger would write or remove files as the driver's user wherever that one may.
    """
    directory = asked.text(name)
    if directory is not None and asked.is_stranger:
        raise RestError(
            403,
            "Only the driver's user, or who shows the driver's token, may name a folder "
            f"('{name}'). Without one a savepoint goes to "
            "execution.checkpointing.savepoint-dir.",
        )
    return directory


def _check_format(asked: Asked) -> None:
    wanted = asked.text("formatType")
    if wanted is not None and wanted.upper() not in _FORMATS:
        raise RestError(400, f"formatType is {wanted!r}, expected CANONICAL or NATIVE.")


def _started(
    driver: Driver, asked: Asked, subject: str, work: Any, failure_key: str = "failure-cause"
) -> Answer:
    key = driver.operations.start(subject, work, asked.text("triggerId"), failure_key)
    return Answer({"request-id": key}, 202)
