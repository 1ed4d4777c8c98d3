"""The paths of the REST API, in one table, and the OpenAPI document that is made from the table.

A row names the view that answers. Every path exists with and without `/v1` before it. Source: Flink's REST API, version 1 (2.3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock import __version__
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
from penstock.ops.jobs.views.cluster import environment
from penstock.ops.rest.answers import Answer, Asked
from penstock.ops.rest.requests import actions, autoscaler_answers, handlers
from penstock.ops.rest.requests import dashboard_handlers as dashboard
from penstock.ops.rest.requests import history_handlers as history
from penstock.ops.rest.requests import log_handlers as logs
from penstock.ops.rest.requests import metric_handlers as metrics
from penstock.ops.rest.requests import session_handlers as session
from penstock.ops.rest.requests.handlers import Driver

View: TypeAlias = Callable[..., Any]
Subject: TypeAlias = Callable[[Any, Asked], tuple[Any, ...]]
_Row: TypeAlias = tuple[str, View, str]


def _request(driver: Any, asked: Asked) -> tuple[Any, Asked]:
    return driver, asked


@dataclass(frozen=True, slots=True)
class Route:
    """A request that the server answers.

    `path`: with its parameters in braces. `view`: returns JSON data or an Answer; None: the server's live streams answer.
    `of`: what the view gets. `changes`: the request changes something, so it needs the right to. `waits`: the view waits for others, so
    it runs on a thread of its own. `takes_data`: the body is no JSON but a job, which the driver opens and runs, or the answer has its
    rows. Whoever is another user shows the token for that, whatever the rule.
    """

    method: str
    path: str
    view: View | None
    summary: str
    query: tuple[str, ...] = ()
    of: Subject = _request
    changes: bool = False
    waits: bool = False
    takes_data: bool = False

    def answer(self, driver: Any, asked: Asked) -> Answer:
        """Raises RestError: the request cannot be answered."""
        assert self.view is not None
        found = self.view(*self.of(driver, asked))
        return found if isinstance(found, Answer) else Answer(found)

    @property
    def needs_leader(self) -> bool:
        """Whether only a driver that leads its job can answer. The others are about this process."""
        own = {"/config", "/openapi.json", "/proof", "/session", "/cluster"}
        return self.path not in own and "/jobmanager/" not in self.path

    @property
    def is_open(self) -> bool:
        """Whether everybody is answered: clients ask for the proof before they show the token."""
        return self.path == "/proof"


def _of_nothing(_driver: Driver, _asked: Asked) -> tuple[()]:
    return ()


def _of_now(driver: Driver, _asked: Asked) -> tuple[Any, ...]:
    return (driver.now(),)


def _of_job(driver: Driver, asked: Asked) -> tuple[Any, ...]:
    return (driver.job(asked),)


def _of_vertex_alone(driver: Driver, asked: Asked) -> tuple[Any, ...]:
    return driver.vertex(asked)[1:]


def _of_application(driver: Driver, asked: Asked) -> tuple[Any, ...]:
    return (driver.job(asked, "applicationid"),)


def _routes(
    prefix: str, of: Subject, *rows: _Row, waits: bool = False, takes_data: bool = False
) -> tuple[Route, ...]:
    """`rows`: method (GET if there is none), path after `prefix`, query; view; summary."""
    found = []
    for place, view, summary in rows:
        method, _, rest = place.rpartition(" ")
        path, _, query = rest.partition("?")
        names = tuple(query.split("&")) if query else ()
        is_change = takes_data or method not in {"", "GET"}
        route = Route(
            method or "GET", prefix + path, view, summary, names, of, is_change, waits, takes_data
        )
        found.append(route)
    return tuple(found)


_JOB: Final = "/jobs/{jobid}"
_VERTEX: Final = f"{_JOB}/vertices/{{vertexid}}"
_SUBTASK: Final = f"{_VERTEX}/subtasks/{{subtaskindex}}"
_CHECKPOINT: Final = f"{_JOB}/checkpoints/details/{{checkpointid}}"

_PROCESSES: Final = (
    *(
        route
        for process in ("/jobmanager", "/taskmanagers/{taskmanagerid}")
        for route in _routes(
            process, _request,
            ("/log", logs.log, "The log of the driver, or of a TaskManager."),
            ("/logs", logs.logs, "The files next to it."),
            ("/logs/{filename}", logs.log, "One of these files."),
            ("/stdout", logs.stdout, "What the process has printed."),
            ("/thread-dump", logs.threads, "The threads of the process."),
            waits=True,
        )
    ),
    *_routes("/jobmanager", _of_nothing, ("/environment", environment, "The driver's Python.")),
    *_routes(
        "/jobmanager", _request,
        ("/config", handlers.jobmanager_config, "The options of the driver's jobs."),
        ("/metrics?get", metrics.jobmanager, "Of the driver."),
    ),
    *_routes("/taskmanagers", _of_now, ("", taskmanagers.all_of, "All TaskManagers.")),
    *_routes(
        "/taskmanagers", _request,
        ("/health?sort&order&page&id", dashboard.taskmanagers_health,
         "TaskManagers with what their processes use, and lost ones. Not in Flink."),
        ("/metrics?get&agg&taskmanagers", metrics.all_taskmanagers, "Of TaskManagers."),
        ("/{taskmanagerid}", handlers.taskmanager_details, "A TaskManager."),
        ("/{taskmanagerid}/metrics?get", metrics.taskmanager, "Of one."),
    ),
)  # fmt: skip

_DRIVER: Final = (
    Route(
        "GET", "/live", None,
        "Server-sent events: what several paths answer, again and again. Not in Flink.",
        ("path", "interval"),
    ),
    *_routes(
        "", _request,
        ("/switches", dashboard.switches, "Switches of a demonstration. Not in Flink."),
        ("PUT /switches/{name}", dashboard.turn, "Turn one on or off. Not in Flink."),
        ("/config", handlers.dashboard_config, "What the dashboard may do."),
        ("/proof?nonce", handlers.proof, "That the server has the token. Not in Flink."),
        ("DELETE /cluster", session.shut_down, "End a session; refused by other drivers."),
        ("/slots?jobid", dashboard.slots,
         "TaskManagers, their slots, and who shares each. Not in Flink."),
        ("/session/jobs/{triggerid}", session.submission, "How that went. Not in Flink."),
        ("POST /savepoint-disposal", actions.dispose_savepoint, "Remove a savepoint."),
        ("/savepoint-disposal/{triggerid}", actions.disposal_status, "How that went."),
        ("POST /applications/{applicationid}/cancel", actions.cancel_application,
         "Cancel an application."),
    ),
    *_routes(
        "", _of_nothing,
        ("/session", session.session, "Whether this is a session. Not in Flink."),
        ("/datasets", lambda: {"dataSets": []}, "Cluster data sets: there are none."),
    ),
    *_routes(
        "/session/jobs", _request,
        ("POST ?penstock&python&pyspark&triggerId", session.submit,
         "Submit a job to a session. Not in Flink."),
        ("/{jobid}/rows/{stream}?after&chosen", session.rows,
         "Collected rows, for the client that submitted the job. Not in Flink."),
        takes_data=True,
    ),
    *_routes(
        "", _of_now,
        ("/overview", cluster.overview, "TaskManagers, slots and jobs in numbers."),
        ("/applications/overview", cluster.applications, "All applications: one for each job."),
        ("/jobs", jobs.jobs, "Ids and statuses of all jobs."),
        ("/jobs/overview", jobs.overview, "All jobs."),
    ),
    *_routes(
        "/applications/{applicationid}", _of_application,
        ("", cluster.application, "An application and its job."),
        ("/exceptions", exceptions.of_application, "What ended it."),
        ("/jobmanager/config", cluster.job_options, "Its options."),
    ),
)  # fmt: skip

_JOBS: Final = (
    *_routes("/jobs", _request, ("/metrics?get&agg&jobs", metrics.all_jobs, "Of jobs.")),
    *_routes(
        _JOB, _of_job,
        ("", jobs.details, "A job with its vertices and its plan."),
        ("/accumulators?includeSerializedValue", jobs.accumulators, "There are none."),
        ("/config", jobs.config, "How the job is executed."),
        ("/jobmanager/config", cluster.job_options, "The options of the job."),
        ("/jobmanager/environment", lambda _job: environment(), "The driver's Python."),
        ("/options", jobs.options,
         "All options with their values, and who set them. Not in Flink."),
        ("/plan", jobs.plan, "The plan of the job."),
        ("/checkpoints/strip", checkpoints.strip,
         "The last checkpoints, and what each waited for. Not in Flink."),
    ),
    *_routes(
        _JOB, Driver.checkpointing,
        ("/checkpoints", checkpoints.overview, "The checkpoints of a job."),
        ("/checkpoints/config", checkpoints.config, "How checkpoints are taken."),
    ),
    *_routes(
        _JOB, Driver.rescales,
        ("/rescales/config", lambda job, _: rescales.config(job), "When the job is rescaled."),
        ("/rescales/overview", rescales.overview, "How many rescales there were."),
        ("/rescales/history", rescales.history, "Those that are kept."),
        ("/rescales/summary", rescales.summary, "How long they took."),
    ),
    *_routes(
        _JOB, _request,
        ("/rescales/details/{rescaleuuid}", handlers.rescale_details, "One of them."),
        ("/archive", dashboard.job_archive,
         "The archive of the job as one file, as of now. Not in Flink."),
        ("/autoscaler", autoscaler_answers.autoscaler,
         "What the autoscaler measures and decides. Not in Flink."),
        ("/bottleneck", handlers.job_bottleneck, "Who limits the job. Not in Flink."),
        ("/exceptions?maxExceptions&failureLabelFilter", handlers.job_exceptions,
         "Failures, newest first."),
        ("/exceptions/groups?fingerprint", dashboard.exception_groups,
         "Failures by what failed where, the newest kind first. Not in Flink."),
        ("/execution-result", handlers.job_result, "How the job has ended."),
        ("/graph", dashboard.job_graph,
         "Vertices with rates and shares, and what flows between them. Not in Flink."),
        ("/head", dashboard.job_head, "Name, state and times. Not in Flink."),
        ("/history?step&since&get&vertices", history.job, "All vertices over time. Not in Flink."),
        ("/jobmanager/log-url", handlers.job_log_url, "Where the driver's logs are shown."),
        ("/metrics?get", metrics.job, "Of a job."),
        ("/metrics/top-n?metric&n", handlers.job_top, "The worst subtasks. Not in Flink."),
        ("/resource-requirements", actions.requirements, "What parallelism its vertices may have."),
        ("/status", handlers.job_status, "The status of the job."),
        ("/story?vertexid&subtaskindex&machine", dashboard.job_story,
         "What happened to the job, in order. Not in Flink."),
        ("/taskmanagers/{taskmanagerid}/log-url", handlers.taskmanager_log_url,
         "Where its logs are shown."),
        ("/timeline?vertexid&subtaskindex&offset", dashboard.job_timeline,
         "States over time, of the job and its vertices or of attempts. Not in Flink."),
        ("/watermarks", dashboard.job_watermarks,
         "The watermarks of all vertices, and what holds each. Not in Flink."),
        ("PATCH ?mode", actions.cancel, "Cancel a job."),
        ("PATCH /clientHeartbeat", session.heartbeat,
         "Report to a session that the client of the job lives."),
        ("PUT /resource-requirements", actions.change_requirements,
         "Change it, for all vertices at once."),
        ("POST /savepoints", actions.trigger_savepoint, "Take a savepoint."),
        ("/savepoints/{triggerid}", actions.savepoint_status, "How that went."),
        ("POST /stop", actions.stop, "Stop the job with a savepoint."),
        ("POST /checkpoints", actions.trigger_checkpoint, "Take a checkpoint."),
        ("/checkpoints/{triggerid}", actions.checkpoint_status, "How that went."),
    ),
    Route(
        "GET", f"{_JOB}/yarn-cancel", actions.cancel_job, "Cancel a job, as the dashboard does.",
        changes=True,
    ),
    *_routes(
        _CHECKPOINT, Driver.checkpoint,
        ("", lambda _, one: checkpoints.statistics(one, has_tasks=True),
         "One checkpoint, with its vertices."),
    ),
    *_routes(
        _CHECKPOINT, _request,
        ("/subtasks/{vertexid}", handlers.checkpoint_subtasks, "Its subtasks of a vertex."),
        ("/gantt?vertexid", dashboard.checkpoint_gantt,
         "A checkpoint subtask by subtask, worst first. Not in Flink."),
    ),
)  # fmt: skip

_VERTICES: Final = (
    *_routes(
        _VERTEX, Driver.vertex,
        ("", vertices.details, "A vertex with its subtasks."),
        ("/backpressure", vertices.backpressure, "Back pressure of each subtask."),
        ("/skew", bottleneck.skew, "How the records of a vertex are spread. Not in Flink."),
        ("/subtasktimes", vertices.times, "When each subtask entered its states."),
        ("/taskmanagers", vertices.taskmanagers, "Subtasks by TaskManager."),
    ),
    *_routes(
        _VERTEX, _of_vertex_alone,
        ("/accumulators", vertices.accumulators, "There are none."),
        ("/functions", vertices.functions,
         "How each row function runs, and why not on columns. Not in Flink."),
        ("/subtasks/accumulators", vertices.subtask_accumulators, "There are none."),
        ("/watermarks", vertices.watermarks, "Watermarks of the subtasks."),
    ),
    *_routes(
        _VERTEX, _request,
        ("/flamegraph?type&subtaskindex", logs.flame_graph, "Where time goes."),
        waits=True,
    ),
    *_routes(
        _VERTEX, _request,
        ("/history?step&since&get", history.vertex, "A vertex over time. Not in Flink."),
        ("/jm-operator-metrics?get", metrics.coordinators, "Of coordinators."),
        ("/lanes?since&sort", dashboard.vertex_lanes,
         "How its subtasks spend their time, over 10 minutes. Not in Flink."),
        ("/metrics?get", metrics.vertex, "Of the subtasks of a vertex."),
        ("/pressure?page", dashboard.vertex_pressure,
         "How many subtasks are back-pressured, and the worst of them. Not in Flink."),
        ("/subtasks/metrics?get&agg&subtasks", metrics.all_subtasks, "Aggregated."),
        ("/table?offset&limit&sort&order&state", dashboard.vertex_table,
         "A page of its subtasks in any order, and the spread of each figure. Not in Flink."),
    ),
    *_routes(
        _SUBTASK, Driver.subtask,
        ("", vertices.subtask, "The current attempt of a subtask."),
    ),
    *_routes(
        _SUBTASK, _request,
        ("/metrics?get", metrics.subtask, "Of a subtask."),
        ("/attempts/{attempt}", handlers.attempt_details, "An attempt of a subtask."),
        ("/attempts/{attempt}/accumulators", handlers.attempt_accumulators, "There are none."),
    ),
)  # fmt: skip

ROUTES: Final = (*_PROCESSES, *_DRIVER, *_JOBS, *_VERTICES)
UNSERVED: Final = (
    "/jobs", "/jars", "/jars/upload", "/jars/{jarid}", "/jars/{jarid}/plan", "/jars/{jarid}/run",
    "/jars/{jarid}/run-application", "/datasets/{datasetid}",
    "/datasets/delete/{triggerid}", "/jobmanager/profiler", "/jobmanager/profiler/{filename}",
    "/taskmanagers/{taskmanagerid}/profiler", "/taskmanagers/{taskmanagerid}/profiler/{filename}",
    f"{_JOB}/coordinators/{{operatoruid}}", f"{_JOB}/rescaling",
    f"{_JOB}/rescaling/{{triggerid}}", f"{_JOB}/yarn-stop",
)  # fmt: skip
"""Paths of Flink that need a JVM, or that Flink itself refuses; `/jobs` if it is posted to."""
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_NUMBERS: Final = frozenset({"subtaskindex", "attempt", "checkpointid"})
_IDS: Final = frozenset({"jobid", "vertexid", "triggerid", "applicationid"})


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI document of the routes, as JSON data. Source: OpenAPI 3.1; Flink's rest_v1_dispatcher.yml."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock REST API",
            "description": "The REST API of Flink 2.3, answered by the driver of Penstock's jobs.",
            "version": __version__,
        },
        "servers": [{"url": "/v1"}, {"url": "/"}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Errors": {
                    "type": "object",
                    "required": ["errors"],
                    "properties": {"errors": {"type": "array", "items": {"type": "string"}}},
                }
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-zA-Z0-9]+', '_', route.path)}",
        "summary": route.summary,
        "parameters": [
            *(_parameter(name) for name in _PARAMETER.findall(route.path)),
            *({"name": name, "in": "query", "schema": {"type": "string"}} for name in route.query),
        ],
        "responses": {
            "2XX": {"description": "The answer.", "content": {"application/json": {}}},
            "default": {
                "description": "An error.",
                "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/Errors"}}
                },
            },
        },
    }
    if not route.is_open:
        operation["security"] = [{}, {"token": []}]
    if route.method in {"POST", "PUT", "PATCH"}:
        body = {"application/json": {"schema": {"type": "object"}}}
        operation["requestBody"] = {"content": body}
    return operation


def _parameter(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if name in _NUMBERS:
        schema = {"type": "integer", "minimum": 0}
    elif name in _IDS:
        schema = {"type": "string", "pattern": "^[0-9a-fA-F]{32}$"}
    return {"name": name, "in": "path", "required": True, "schema": schema}
