"""What requests are about: the driver, its jobs, vertices, subtasks and checkpoints. And answers of Flink's paths that no view gives alone.

Source: Flink WebMonitorEndpoint's handlers; differs: answers are never older than the request.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from penstock.engine.model.config import Settings
from penstock.engine.model.elastic import Rescales
from penstock.engine.model.ids import VertexId, taskmanager_name
from penstock.engine.model.options.rest import RestOptions, WebOptions
from penstock.engine.model.states import JobStatus
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
    jobs,
    rescales,
    taskmanagers,
    vertices,
)
from penstock.ops.jobs.views.taskmanagers import present
from penstock.ops.metrics.entities import TaskManagerScope
from penstock.ops.registry.job_registry import JobRegistry
from penstock.ops.rest.address_book import proof_of
from penstock.ops.rest.answers import Asked, RestError
from penstock.ops.rest.operations import Operations, throwable


@dataclass(frozen=True, slots=True)
class Driver:
    """What requests may ask. `address`: of this server, for links. `token`: whoever shows it may change something."""

    job_registry: JobRegistry
    settings: Settings
    operations: Operations
    address: str
    token: str

    def now(self) -> DriverSnapshot:
        return self.job_registry.snapshot()

    def job(self, asked: Asked, name: str = "jobid") -> JobSnapshot:
        """Raises RestError: the id is no id, or of no job."""
        job_id = asked.hex_id(name)
        job = self.job_registry.job(job_id)
        if job is None:
            what = "Job" if name == "jobid" else "Application"
            raise RestError(404, f"{what} {job_id} not found")
        return job

    def vertex(self, asked: Asked) -> tuple[JobSnapshot, VertexSnapshot]:
        """Raises RestError."""
        job = self.job(asked)
        return job, vertex_in(job, asked.hex_id("vertexid"))

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
        if name not in self.taskmanagers():
            raise RestError(500, "Internal server error.", f"TaskManager {name} not found")
        return name

    def taskmanagers(self) -> list[str]:
        """Return the ids of all TaskManagers that are there."""
        return [
            taskmanager_name(job.job_id, one.resource_id)
            for job in self.now().jobs
            for one in present(job)
        ]

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

    def checkpointing(self, asked: Asked) -> tuple[JobSnapshot]:
        """Raises RestError: no such job, or it takes no checkpoints at all."""
        job = self.job(asked)
        if job.facts.checkpoints is None:
            raise RestError(404, checkpoints.not_enabled(job))
        return (job,)

    def rescales(self, asked: Asked) -> tuple[JobSnapshot, Rescales]:
        """Raises RestError: no such job, or nobody has asked to rescale it."""
        job = self.job(asked)
        if job.rescales is None:
            raise RestError(404, jobs.no_rescales(job))
        return job, job.rescales


def vertex_in(job: JobSnapshot, vertex_id: str) -> VertexSnapshot:
    """Raises RestError: there is no such vertex."""
    vertex = job.vertex(vertex_id.lower())
    if vertex is None:
        raise RestError(404, f"JobVertex {vertex_id} not found")
    return vertex


def chosen_vertex(job: JobSnapshot, asked: Asked) -> VertexSnapshot | None:
    """Return the vertex of the query; None: it names none. Raises RestError: there is no such vertex."""
    vertex_id = asked.query.get("vertexid")
    return vertex_in(job, vertex_id) if vertex_id else None


def chosen_subtask(vertex: VertexSnapshot, asked: Asked) -> int | None:
    """Return the subtask of the query; None: it names none. Raises RestError: the vertex has no such subtask."""
    subtask = asked.query_number("subtaskindex", -1)
    if subtask >= len(vertex.attempts):
        raise RestError(404, f"Invalid subtask index for vertex {vertex.facts.vertex_id}")
    return None if subtask < 0 else subtask


def dashboard_config(driver: Driver, _asked: Asked) -> Any:
    zone = time.localtime()
    switches = {
        cluster.Action.CANCEL: driver.settings.get(WebOptions.CANCEL),
        cluster.Action.RESCALE: driver.settings.get(WebOptions.RESCALE),
    }
    return cluster.dashboard_config(
        refresh_ms=driver.settings.get(WebOptions.REFRESH_INTERVAL),
        zone=(zone.tm_zone, zone.tm_gmtoff),
        may={action for action, is_on in switches.items() if is_on},
        is_elastic=any(one.rescales is not None for one in driver.now().jobs),
    )


def proof(driver: Driver, asked: Asked) -> Any:
    """`/proof?nonce=`: a client asks before it shows the token to a process of another user."""
    return {"proof": proof_of(driver.token, asked.query.get("nonce", ""), _port_of(driver.address))}


def _port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def jobmanager_config(driver: Driver, _asked: Asked) -> Any:
    merged: dict[str, str] = {}
    for job in driver.now().jobs:
        merged.update(job.facts.configuration)
    merged[RestOptions.ADDRESS.key] = driver.settings.get(RestOptions.ADDRESS) or "localhost"
    merged[RestOptions.PORT.key] = driver.address.rpartition(":")[2]
    return cluster.pairs(merged)


def taskmanager_details(driver: Driver, asked: Asked) -> Any:
    name = asked.path["taskmanagerid"]
    with driver.job_registry.metrics() as store:
        metrics = taskmanagers.metrics_of(store.values(TaskManagerScope(name)))
    details = taskmanagers.details(driver.now(), name, metrics)
    if details is None:  # Flink answers 500 here.
        raise RestError(500, "Internal server error.", f"TaskManager {name} not found")
    return details


def job_bottleneck(driver: Driver, asked: Asked) -> Any:
    job = driver.job(asked)
    return bottleneck.bottleneck(job, driver.job_registry.verdict(job))


def job_top(driver: Driver, asked: Asked) -> Any:
    figure = asked.one_of("metric", bottleneck.FIGURES, "busyTimeMsPerSecond")
    most = max(1, asked.query_number("n", bottleneck.MOST_SHOWN))
    return bottleneck.top(driver.job(asked), figure, most)


def job_status(driver: Driver, asked: Asked) -> Any:
    job_id = asked.hex_id("jobid")
    job = driver.job_registry.job(job_id)
    if job is None:  # Flink answers 500 here, and 404 elsewhere.
        raise RestError(500, "Internal server error.", f"Job {job_id} not found")
    return jobs.status(job)


def job_exceptions(driver: Driver, asked: Asked) -> Any:
    most = asked.query_number("maxExceptions", exceptions.MOST_SHOWN)
    return exceptions.history(driver.job(asked), most)


def job_result(driver: Driver, asked: Asked) -> Any:
    """`/jobs/:jobid/execution-result`: an attached client asks until the job has ended."""
    job = driver.job(asked)
    if not job.status.is_terminal:
        return {"status": {"id": "IN_PROGRESS"}}
    result = jobs.result(job)
    if job.failure is not None and job.status is not JobStatus.FINISHED:
        result["failure-cause"] = throwable(job.failure.kind, job.failure.text)
    return {"status": {"id": "COMPLETED"}, "job-execution-result": result}


def job_log_url(driver: Driver, asked: Asked) -> Any:
    driver.job(asked)
    return {"url": f"{driver.address}/#/driver/log"}


def taskmanager_log_url(driver: Driver, asked: Asked) -> Any:
    driver.job(asked)
    return {"url": f"{driver.address}/#/taskmanagers/{asked.path['taskmanagerid']}/log"}


def attempt_details(driver: Driver, asked: Asked) -> Any:
    number = asked.number("attempt")
    return _attempt(asked, vertices.attempt(*driver.subtask(asked), number))


def attempt_accumulators(driver: Driver, asked: Asked) -> Any:
    _, vertex, index = driver.subtask(asked)
    return _attempt(asked, vertices.attempt_accumulators(vertex, index, asked.number("attempt")))


def _attempt(asked: Asked, answer: Any) -> Any:
    if answer is None:
        raise RestError(404, f"Invalid attempt num {asked.path['attempt']}")
    return answer


def checkpoint_subtasks(driver: Driver, asked: Asked) -> Any:
    job, checkpoint = driver.checkpoint(asked)
    vertex_id = VertexId(asked.hex_id("vertexid"))
    if job.vertex(vertex_id) is None or vertex_id not in checkpoint.subtasks:
        raise RestError(404, f"There is no checkpoint statistics for task {vertex_id}.")
    return checkpoints.subtasks(checkpoint, vertex_id)


def rescale_details(driver: Driver, asked: Asked) -> Any:
    job, known = driver.rescales(asked)
    name = asked.path["rescaleuuid"]
    found = known.find(name)
    if found is None:
        raise RestError(404, f"There is no rescale {name}, or it is not kept any more.")
    return rescales.details(job, found)
