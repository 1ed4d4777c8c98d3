"""Answers about a driver as a whole: its jobs in numbers, its applications, what the dashboard may do.

Source: Flink ClusterOverviewHandler, DashboardConfigHandler, ApplicationsOverviewHandler. Each job is an application of its own, as a job
is that is submitted alone to a Flink cluster.

The environment of this process. Source: Flink EnvironmentInfo; differs: Python in the place of the JVM, modules in that of classes.
"""

from __future__ import annotations

import platform
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, Final

from penstock import __version__
from penstock.engine.model.states import JobStatus
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.jobs.snapshots import DriverSnapshot, JobSnapshot
from penstock.ops.jobs.views.attempts import Json
from penstock.ops.jobs.views.jobs import job_in_list
from penstock.ops.jobs.views.taskmanagers import slots_of


def environment() -> dict[str, Any]:
    """Return the answer of `/jobmanager/environment`, without secrets."""
    version = f"Python {platform.python_version()} ({platform.python_implementation()})"
    options = [without_credentials(option) for option in sys.orig_argv[1:]]
    return {
        "jvm": {"version": version, "arch": platform.machine(), "options": options},
        "classpath": [str(one) for one in sys.path],
    }


FLINK_VERSION: Final = "2.3.0"
"""The version whose REST API this is; clients compare it with their own."""
_APPLICATION_STATUS: Final = {
    JobStatus.INITIALIZING: "CREATED",
    JobStatus.CREATED: "CREATED",
    JobStatus.FAILING: "FAILING",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELLING: "CANCELING",
    JobStatus.CANCELED: "CANCELED",
    JobStatus.FINISHED: "FINISHED",
}


class Action(StrEnum):
    """What the dashboard may be kept from."""

    CANCEL = "cancel"
    RESCALE = "rescale"


def overview(driver: DriverSnapshot) -> Json:
    """`/overview`."""
    statuses = Counter(job.status for job in driver.jobs)
    statuses.update(driver.expired)
    totals = [slots_of(job) for job in driver.jobs]
    ended = (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED, JobStatus.SUSPENDED)
    return {
        "taskmanagers": sum(taskmanagers for taskmanagers, _, _ in totals),
        "slots-total": sum(total for _, total, _ in totals),
        "slots-available": sum(free for _, _, free in totals),
        "jobs-running": sum(count for status, count in statuses.items() if status not in ended),
        "jobs-finished": statuses[JobStatus.FINISHED],
        "jobs-cancelled": statuses[JobStatus.CANCELED],
        "jobs-failed": statuses[JobStatus.FAILED],
        "flink-version": FLINK_VERSION,
        "flink-commit": f"penstock-{__version__}",
    }


def applications(driver: DriverSnapshot) -> Json:
    """`/applications/overview`."""
    return {"applications": [application_in_list(job) for job in driver.jobs]}


def application_in_list(job: JobSnapshot) -> Json:
    """An application in the list of all."""
    return {
        "id": job.job_id,
        "name": f"SingleJobApplication({job.facts.name})",
        "start-time": job.facts.submitted_ms,
        "end-time": job.ended_ms,
        "duration": job.lasted_ms,
        "status": _APPLICATION_STATUS.get(job.status, "RUNNING"),
        "jobs": {str(job.status): 1},
    }


def application(job: JobSnapshot) -> Json:
    """`/applications/:applicationid`."""
    answer = application_in_list(job)
    known: dict[str, int] = {}
    for status, at_ms in job.timestamps.items():
        name = _APPLICATION_STATUS.get(status, "RUNNING")
        known[name] = min(at_ms, known.get(name, at_ms))
    names = ("CREATED", "RUNNING", "FAILING", "FAILED", "CANCELING", "FINISHED", "CANCELED")
    answer["timestamps"] = {name: known.get(name, 0) for name in names}
    answer["jobs"] = [job_in_list(job)]
    return answer


def job_options(job: JobSnapshot) -> list[Json]:
    """`/jobs/:jobid/jobmanager/config`."""
    return pairs(job.facts.configuration)


def pairs(values: Mapping[str, str]) -> list[Json]:
    """Return options as Flink lists them: by key."""
    return [{"key": key, "value": value} for key, value in sorted(values.items())]


def dashboard_config(
    *,
    refresh_ms: int,
    zone: tuple[str, int],
    may: Collection[Action],
    is_elastic: bool = False,
    is_history: bool = False,
) -> Json:
    """`/config`: what the dashboard may do. `zone`: name of the time zone, and its offset in seconds.

    `is_elastic`: what Flink's dashboard asks of the Adaptive scheduler has an answer for some job. Penstock can rescale every
    streaming job; its own dashboard asks the job (`graph.head_alone`).
    """
    return {
        "refresh-interval": refresh_ms,
        "timezone-name": zone[0],
        "timezone-offset": zone[1] * 1000,
        "flink-version": FLINK_VERSION,
        "flink-revision": f"penstock-{__version__}",
        "features": {
            "web-submit": False,
            "web-cancel": Action.CANCEL in may,
            "web-rescale": Action.RESCALE in may and is_elastic,
            "web-history": is_history,
        },
    }
