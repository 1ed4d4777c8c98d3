"""What parallelism a running job may have: `/jobs/:jobid/resource-requirements`. Source: Flink JobResourceRequirementsHandler,
JobResourceRequirementsUpdateHandler (docs/spec/elasticity.md#requirements). Differs: every streaming job can be asked, whatever its scheduler.
"""

from __future__ import annotations

from penstock.hosting.jobmanager.rescales import RequirementsRefused, UpdateUnderWay
from penstock.hosting.rest.answers import Answer, Asked, RestError
from penstock.hosting.rest.requests.actions import control_of
from penstock.hosting.rest.requests.handlers import Driver
from penstock.model.elastic.parallelism_bounds import requirements_from_plain, requirements_to_plain
from penstock.model.errors import ConfigurationError, ExternalError


def requirements(driver: Driver, asked: Asked) -> Answer:
    """GET: the bounds of all vertices."""
    control = control_of(driver, asked)
    try:
        return Answer(requirements_to_plain(control.resource_requirements()))
    except (ConfigurationError, ExternalError) as error:
        raise _impossible(error) from error


def change_requirements(driver: Driver, asked: Asked) -> Answer:
    """PUT: other bounds, for all vertices at once. Answers when they are recorded; the job changes when it has the slots."""
    control = control_of(driver, asked)
    try:
        wanted = requirements_from_plain(asked.body)
    except ConfigurationError as error:
        raise RestError(400, str(error)) from error
    try:
        control.require_resources(wanted)
    except RequirementsRefused as error:
        raise RestError(400, str(error)) from error
    except UpdateUnderWay as error:
        raise RestError(409, str(error)) from error
    except (ConfigurationError, ExternalError, OSError) as error:
        raise _impossible(error) from error
    return Answer({})


def _impossible(error: Exception) -> RestError:
    return RestError(500, "Internal server error.", str(error))
