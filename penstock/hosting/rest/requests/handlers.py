"""Which view answers which request. A handler gets what is known of the driver's jobs, and knows no server.

Source: Flink WebMonitorEndpoint's handlers; differs: answers are never older than the request.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from penstock import __version__
from penstock.hosting.observation.environment import environment
from penstock.hosting.observation.observatory import Observatory
from penstock.hosting.rest.answers import Answer, Asked, RestError
from penstock.hosting.rest.operations import Operations, throwable
from penstock.model.config import Settings
from penstock.model.ids import VertexId, taskmanager_name
from penstock.model.options.rest import RestOptions, WebOptions
from penstock.model.states import JobStatus
from penstock.observation.jobs.snapshots import (
    CheckpointSnapshot,
    DriverSnapshot,
    JobSnapshot,
    VertexSnapshot,
)
from penstock.observation.metrics.entities import TaskManagerScope
from penstock.observation.views import (
    bottleneck,
    checkpoints,
    cluster,
    exceptions,
    jobs,
    taskmanagers,
    vertices,
)
from penstock.observation.views.taskmanagers import present


@dataclass(frozen=True, slots=True)
class Driver:
    """What handlers know. `address`: of this server, for links."""

    observatory: Observatory
    settings: Settings
    operations: Operations
    address: str

    def now(self) -> DriverSnapshot:
        return self.observatory.snapshot()

    def job(self, asked: Asked) -> JobSnapshot:
        """Raises RestError: the id is no id, or of no job."""
        job_id = asked.hex_id("jobid")
        job = self.observatory.job(job_id)
        if job is None:
            raise RestError(404, f"Job {job_id} not found")
        return job

    def vertex(self, asked: Asked) -> tuple[JobSnapshot, VertexSnapshot]:
        """Raises RestError."""
        job = self.job(asked)
        vertex_id = asked.hex_id("vertexid")
        vertex = job.vertex(vertex_id)
        if vertex is None:
            raise RestError(404, f"JobVertex {vertex_id} not found")
        return job, vertex

    def subtask(self, asked: Asked) -> tuple[JobSnapshot, VertexSnapshot, int]:
        """Raises RestError."""
        job, vertex = self.vertex(asked)
        index = asked.number("subtaskindex")
        if index >= len(vertex.attempts):
            raise RestError(404, f"Invalid subtask index for vertex {vertex.facts.vertex_id}")
        return job, vertex, index

    def taskmanager(self, asked: Asked) -> str:
        """Raises RestError: it is not there; with Flink's status."""
        name = asked.path["taskmanagerid"]
        names = {taskmanager_name(job.job_id, one.resource_id) for job, one in present(self.now())}
        if name not in names:
            raise RestError(500, "Internal server error.", f"TaskManager {name} not found")
        return name

    def checkpoint(self, asked: Asked) -> tuple[JobSnapshot, CheckpointSnapshot]:
        """Raises RestError."""
        job = self.job(asked)
        checkpoint_id = asked.number("checkpointid")
        found = job.checkpoints.of(checkpoint_id)
        if found is None:
            raise RestError(
                404, f"Could not find checkpointing statistics for checkpoint {checkpoint_id}."
            )
        return job, found


# ------------------------------------------------------------------ the driver


def dashboard_config(driver: Driver, _asked: Asked) -> Answer:
    zone = time.localtime()
    switches = {
        cluster.Action.CANCEL: driver.settings.get(WebOptions.CANCEL),
        cluster.Action.RESCALE: driver.settings.get(WebOptions.RESCALE),
    }
    return Answer(
        cluster.dashboard_config(
            refresh_ms=driver.settings.get(WebOptions.REFRESH_INTERVAL),
            zone=(zone.tm_zone, zone.tm_gmtoff),
            version=__version__,
            may={action for action, is_on in switches.items() if is_on},
            is_elastic=any(one.rescales is not None for one in driver.now().jobs),
        )
    )


def overview(driver: Driver, _asked: Asked) -> Answer:
    return Answer(cluster.overview(driver.now(), __version__))


def datasets(_driver: Driver, _asked: Asked) -> Answer:
    return Answer({"dataSets": []})


def no_dataset(_driver: Driver, asked: Asked) -> Answer:
    raise RestError(404, f"Cluster data set {asked.path.get('datasetid', '')} not found.")


def no_jars(_driver: Driver, _asked: Asked) -> Answer:
    raise RestError(
        501,
        "Penstock runs programs in Python and takes no jars or execution plans. Start a program "
        "with "
        "`penstock run my_job.py`, or with spark-submit.",
    )


# ------------------------------------------------------------------ applications


def applications(driver: Driver, _asked: Asked) -> Answer:
    return Answer(cluster.applications(driver.now()))


def application(driver: Driver, asked: Asked) -> Answer:
    return Answer(cluster.application(_application(driver, asked)))


def application_exceptions(driver: Driver, asked: Asked) -> Answer:
    return Answer(exceptions.of_application(_application(driver, asked)))


def application_jobmanager_config(driver: Driver, asked: Asked) -> Answer:
    return Answer(cluster.pairs(_application(driver, asked).facts.configuration))


def _application(driver: Driver, asked: Asked) -> JobSnapshot:
    application_id = asked.hex_id("applicationid")
    job = driver.observatory.job(application_id)
    if job is None:
        raise RestError(404, f"Application {application_id} not found")
    return job


# ------------------------------------------------------------------ jobs


def job_ids(driver: Driver, _asked: Asked) -> Answer:
    return Answer(jobs.jobs(driver.now()))


def jobs_overview(driver: Driver, _asked: Asked) -> Answer:
    return Answer(jobs.overview(driver.now()))


def job_details(driver: Driver, asked: Asked) -> Answer:
    return Answer(jobs.details(driver.job(asked)))


def job_plan(driver: Driver, asked: Asked) -> Answer:
    return Answer(jobs.plan(driver.job(asked)))


def job_bottleneck(driver: Driver, asked: Asked) -> Answer:
    job = driver.job(asked)
    return Answer(bottleneck.bottleneck(job, driver.observatory.verdict(job)))


def job_top(driver: Driver, asked: Asked) -> Answer:
    figure = asked.query.get("metric", "busyTimeMsPerSecond")
    if figure not in bottleneck.FIGURES:
        raise RestError(
            400, f"metric is {figure!r}, expected one of {', '.join(bottleneck.FIGURES)}."
        )
    most = max(1, asked.query_number("n", bottleneck.MOST_SHOWN))
    return Answer(bottleneck.top(driver.job(asked), figure, most))


def job_config(driver: Driver, asked: Asked) -> Answer:
    return Answer(jobs.config(driver.job(asked)))


def job_status(driver: Driver, asked: Asked) -> Answer:
    job_id = asked.hex_id("jobid")
    job = driver.observatory.job(job_id)
    if job is None:  # Flink answers 500 here, and 404 elsewhere.
        raise RestError(500, "Internal server error.", f"Job {job_id} not found")
    return Answer(jobs.status(job))


def job_accumulators(driver: Driver, asked: Asked) -> Answer:
    driver.job(asked)
    return Answer(jobs.accumulators())


def job_exceptions(driver: Driver, asked: Asked) -> Answer:
    most = asked.query_number("maxExceptions", exceptions.MOST_SHOWN)
    return Answer(exceptions.history(driver.job(asked), most))


def job_jobmanager_config(driver: Driver, asked: Asked) -> Answer:
    return Answer(cluster.pairs(driver.job(asked).facts.configuration))


def job_result(driver: Driver, asked: Asked) -> Answer:
    """`/jobs/:jobid/execution-result`: an attached client asks until the job has ended."""
    job = driver.job(asked)
    if not job.status.is_terminal:
        return Answer({"status": {"id": "IN_PROGRESS"}})
    result = jobs.result(job)
    if job.failure is not None and job.status is not JobStatus.FINISHED:
        result["failure-cause"] = throwable(job.failure.kind, job.failure.text)
    return Answer({"status": {"id": "COMPLETED"}, "job-execution-result": result})


def job_environment(driver: Driver, asked: Asked) -> Answer:
    driver.job(asked)
    return jobmanager_environment(driver, asked)


def jobmanager_environment(_driver: Driver, _asked: Asked) -> Answer:
    return Answer(environment())


def job_log_url(driver: Driver, asked: Asked) -> Answer:
    driver.job(asked)
    return Answer({"url": f"{driver.address}/#/driver/log"})


def taskmanager_log_url(driver: Driver, asked: Asked) -> Answer:
    driver.job(asked)
    return Answer({"url": f"{driver.address}/#/taskmanagers/{asked.path['taskmanagerid']}/log"})


def no_coordinator(driver: Driver, asked: Asked) -> Answer:
    driver.job(asked)
    raise RestError(
        501, "Requests to coordinators are Java objects, which Penstock's coordinators cannot read."
    )


def no_operation(driver: Driver, asked: Asked) -> Answer:
    driver.job(asked)
    raise RestError(404, f"Operation not found under key: {asked.path['triggerid']}")


def jobmanager_config(driver: Driver, _asked: Asked) -> Answer:
    merged: dict[str, str] = {}
    for job in driver.now().jobs:
        merged.update(job.facts.configuration)
    merged[RestOptions.ADDRESS.key] = driver.settings.get(RestOptions.ADDRESS) or "localhost"
    merged[RestOptions.PORT.key] = driver.address.rpartition(":")[2]
    return Answer(cluster.pairs(merged))


# ------------------------------------------------------------------ vertices


def vertex_details(driver: Driver, asked: Asked) -> Answer:
    return Answer(vertices.details(*driver.vertex(asked)))


def vertex_times(driver: Driver, asked: Asked) -> Answer:
    return Answer(vertices.times(*driver.vertex(asked)))


def vertex_taskmanagers(driver: Driver, asked: Asked) -> Answer:
    return Answer(vertices.taskmanagers(*driver.vertex(asked)))


def vertex_accumulators(driver: Driver, asked: Asked) -> Answer:
    return Answer(vertices.accumulators(driver.vertex(asked)[1]))


def subtasks_accumulators(driver: Driver, asked: Asked) -> Answer:
    return Answer(vertices.subtask_accumulators(driver.vertex(asked)[1]))


def vertex_backpressure(driver: Driver, asked: Asked) -> Answer:
    return Answer(vertices.backpressure(*driver.vertex(asked)))


def vertex_watermarks(driver: Driver, asked: Asked) -> Answer:
    return Answer(vertices.watermarks(driver.vertex(asked)[1]))


def vertex_functions(driver: Driver, asked: Asked) -> Answer:
    return Answer(vertices.functions(driver.vertex(asked)[1]))


def subtask_details(driver: Driver, asked: Asked) -> Answer:
    return Answer(vertices.subtask(*driver.subtask(asked)))


def attempt_details(driver: Driver, asked: Asked) -> Answer:
    job, vertex, index = driver.subtask(asked)
    return _attempt(asked, vertices.attempt(job, vertex, index, asked.number("attempt")))


def attempt_accumulators(driver: Driver, asked: Asked) -> Answer:
    _, vertex, index = driver.subtask(asked)
    return _attempt(asked, vertices.attempt_accumulators(vertex, index, asked.number("attempt")))


def _attempt(asked: Asked, told: Any) -> Answer:
    if told is None:
        raise RestError(404, f"Invalid attempt num {asked.path['attempt']}")
    return Answer(told)


# ------------------------------------------------------------------ checkpoints


def checkpoints_overview(driver: Driver, asked: Asked) -> Answer:
    job = driver.job(asked)
    if checkpoints.config(job) is None:
        raise _no_checkpoints(job)
    return Answer(checkpoints.overview(job))


def checkpoints_config(driver: Driver, asked: Asked) -> Answer:
    job = driver.job(asked)
    told = checkpoints.config(job)
    if told is None:
        raise _no_checkpoints(job)
    return Answer(told)


def _no_checkpoints(job: JobSnapshot) -> RestError:
    return RestError(404, checkpoints.not_enabled(job))


def checkpoint_details(driver: Driver, asked: Asked) -> Answer:
    return Answer(checkpoints.statistics(driver.checkpoint(asked)[1], has_tasks=True))


def checkpoint_subtasks(driver: Driver, asked: Asked) -> Answer:
    job, checkpoint = driver.checkpoint(asked)
    vertex_id = VertexId(asked.hex_id("vertexid"))
    if job.vertex(vertex_id) is None or vertex_id not in checkpoint.subtasks:
        raise RestError(
            404,
            f"There is no checkpoint statistics for task {vertex_id}.",
        )
    return Answer(checkpoints.subtasks(checkpoint, vertex_id))


# ------------------------------------------------------------------ TaskManagers


def all_taskmanagers(driver: Driver, _asked: Asked) -> Answer:
    return Answer(taskmanagers.all_of(driver.now()))


def taskmanager_details(driver: Driver, asked: Asked) -> Answer:
    name = asked.path["taskmanagerid"]
    with driver.observatory.metrics() as store:
        metrics = taskmanagers.metrics_of(store.values(TaskManagerScope(name)))
    told = taskmanagers.details(driver.now(), name, metrics)
    if told is None:  # Flink answers 500 here.
        raise RestError(500, "Internal server error.", f"TaskManager {name} not found")
    return Answer(told)
