"""The paths of the REST API, in one table: the server routes by it, and the OpenAPI document is made of it.

Every path exists with and without `/v1` before it. Source: Flink's REST API, version 1 (2.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.hosting.rest.answers import Answer, Asked, RestError
from penstock.hosting.rest.requests import (
    actions,
    autoscaler_answers,
    dashboard_handlers,
    handlers,
    history_handlers,
    log_handlers,
    metric_handlers,
    page_handlers,
    requirements,
    rescales,
    session_handlers,
    story_handlers,
    switches,
)

Handler: TypeAlias = Callable[[handlers.Driver, Asked], Answer]


@dataclass(frozen=True, slots=True)
class Route:
    """`path`: with its parameters in braces. `changes`: the request changes something, so it needs the right to.
    `waits`: the handler waits for others, so it runs on a thread of its own. `streams`: the server's live streams answer, where it has
    some. `takes_data`: the body is no JSON but a job, which the driver opens and runs, or the answer has its rows. Whoever is another user
    shows the token for that, whatever the rule.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    query: tuple[str, ...] = ()
    changes: bool = False
    waits: bool = False
    streams: bool = False
    takes_data: bool = False

    @property
    def needs_leader(self) -> bool:
        """Whether only a driver that leads its job can answer. The others are about this process."""
        own = {"/config", "/openapi.json", "/session", "/cluster"}
        return self.path not in own and "/jobmanager/" not in self.path


_JOB: Final = "/jobs/{jobid}"
_VERTEX: Final = f"{_JOB}/vertices/{{vertexid}}"
_SUBTASK: Final = f"{_VERTEX}/subtasks/{{subtaskindex}}"
_CHECKPOINT: Final = f"{_JOB}/checkpoints/details/{{checkpointid}}"
_APPLICATION: Final = "/applications/{applicationid}"
_RESCALES: Final = f"{_JOB}/rescales"


def _get(path: str, handler: Handler, summary: str, *query: str) -> Route:
    return Route("GET", path, handler, summary, query)


def _change(method: str, path: str, handler: Handler, summary: str, *query: str) -> Route:
    return Route(method, path, handler, summary, query, changes=True)


def _wait(path: str, handler: Handler, summary: str, *query: str) -> Route:
    return Route("GET", path, handler, summary, query, waits=True)


_TASKMANAGER: Final = "/taskmanagers/{taskmanagerid}"
_LOGS: Final = (
    _wait("/jobmanager/log", log_handlers.jobmanager_log, "The driver's log."),
    _wait("/jobmanager/logs", log_handlers.jobmanager_logs, "The files beside it."),
    _wait("/jobmanager/logs/{filename}", log_handlers.jobmanager_log, "One of these files."),
    _wait("/jobmanager/stdout", log_handlers.jobmanager_stdout, "What the driver has printed."),
    _wait("/jobmanager/thread-dump", log_handlers.jobmanager_threads, "The driver's threads."),
    _wait(f"{_TASKMANAGER}/log", log_handlers.taskmanager_log, "A TaskManager's log."),
    _wait(f"{_TASKMANAGER}/logs", log_handlers.taskmanager_logs, "The files beside it."),
    _wait(f"{_TASKMANAGER}/logs/{{filename}}", log_handlers.taskmanager_log, "One of these."),
    _wait(f"{_TASKMANAGER}/stdout", log_handlers.taskmanager_stdout, "What its tasks printed."),
    _wait(f"{_TASKMANAGER}/thread-dump", log_handlers.taskmanager_threads, "Its threads."),
    _wait(
        f"{_VERTEX}/flamegraph",
        log_handlers.flame_graph,
        "Where time goes.",
        "type",
        "subtaskindex",
    ),
)

_OWN: Final = (
    _get(
        "/slots",
        dashboard_handlers.slots,
        "TaskManagers, their slots, and who shares each. Not in Flink.",
        "jobid",
    ),
    _get(f"{_JOB}/head", dashboard_handlers.job_head, "Name, state and times. Not in Flink."),
    _get(
        f"{_JOB}/graph",
        dashboard_handlers.job_graph,
        "The vertices of a job with rates and shares, and what flows between them. Not in Flink.",
    ),
    _get(
        f"{_JOB}/autoscaler",
        autoscaler_answers.autoscaler,
        "What the autoscaler measures and decides. Not in Flink.",
    ),
    _get(f"{_JOB}/bottleneck", handlers.job_bottleneck, "Who limits the job. Not in Flink."),
    _get(
        f"{_JOB}/exceptions/groups",
        dashboard_handlers.exception_groups,
        "Failures by what failed where, the newest kind first. Not in Flink.",
        "fingerprint",
    ),
    _get(
        f"{_JOB}/options",
        dashboard_handlers.job_options,
        "All options with their values, and who set them. Not in Flink.",
    ),
    _get(
        f"{_JOB}/watermarks",
        dashboard_handlers.job_watermarks,
        "The watermarks of all vertices, and what holds each. Not in Flink.",
    ),
    _get(
        f"{_JOB}/checkpoints/strip",
        dashboard_handlers.checkpoint_strip,
        "The last checkpoints, and what each waited for. Not in Flink.",
    ),
    _get(
        f"{_CHECKPOINT}/gantt",
        dashboard_handlers.checkpoint_gantt,
        "A checkpoint subtask by subtask, worst first. Not in Flink.",
        "vertexid",
    ),
    _get(
        f"{_JOB}/timeline",
        dashboard_handlers.job_timeline,
        "States over time, of the job and its vertices or of attempts. Not in Flink.",
        "vertexid",
        "subtaskindex",
        "offset",
    ),
    _get(
        f"{_VERTEX}/skew",
        dashboard_handlers.vertex_skew,
        "How the records of a vertex are spread. Not in Flink.",
    ),
    _get(
        f"{_VERTEX}/lanes",
        dashboard_handlers.vertex_lanes,
        "How its subtasks spend their time, over 10 minutes. Not in Flink.",
        "since",
        "sort",
    ),
    _get(
        f"{_JOB}/archive",
        dashboard_handlers.job_archive,
        "The archive of the job as one file, as of now. Not in Flink.",
    ),
    _get(
        f"{_VERTEX}/table",
        dashboard_handlers.vertex_table,
        "A page of its subtasks in any order, and the spread of each figure. Not in Flink.",
        "offset",
        "limit",
        "sort",
        "order",
        "state",
    ),
    _get(
        f"{_JOB}/metrics/top-n",
        handlers.job_top,
        "The worst subtasks. Not in Flink.",
        "metric",
        "n",
    ),
    _get(
        f"{_JOB}/history",
        history_handlers.job,
        "All vertices over time. Not in Flink.",
        "step",
        "since",
        "get",
        "vertices",
    ),
    _get(
        f"{_VERTEX}/history",
        history_handlers.vertex,
        "A vertex over time. Not in Flink.",
        "step",
        "since",
        "get",
    ),
    _get(
        f"{_JOB}/story",
        story_handlers.job_story,
        "What happened to the job, in order. Not in Flink.",
        "vertexid",
        "subtaskindex",
        "machine",
    ),
)

_METRICS: Final = (
    _get("/jobs/metrics", metric_handlers.all_jobs, "Metrics of jobs.", "get", "agg", "jobs"),
    _get(
        "/taskmanagers/metrics",
        metric_handlers.all_taskmanagers,
        "Of TaskManagers.",
        "get",
        "agg",
        "taskmanagers",
    ),
    _get("/jobmanager/metrics", metric_handlers.jobmanager, "Of the driver.", "get"),
    _get("/taskmanagers/{taskmanagerid}/metrics", metric_handlers.taskmanager, "Of one.", "get"),
    _get(f"{_JOB}/metrics", metric_handlers.job, "Of a job.", "get"),
    _get(f"{_VERTEX}/metrics", metric_handlers.vertex, "Of the subtasks of a vertex.", "get"),
    _get(f"{_VERTEX}/jm-operator-metrics", metric_handlers.coordinators, "Of coordinators.", "get"),
    _get(
        f"{_VERTEX}/subtasks/metrics",
        metric_handlers.all_subtasks,
        "Aggregated.",
        "get",
        "agg",
        "subtasks",
    ),
    _get(f"{_SUBTASK}/metrics", metric_handlers.subtask, "Of a subtask.", "get"),
)


def _no_stream(_driver: handlers.Driver, _asked: Asked) -> Answer:
    raise RestError(404, "This server has no live streams.")


_DRIVER: Final = (
    Route(
        "GET",
        "/live",
        _no_stream,
        "Server-sent events: what several paths answer, again and again. Not in Flink.",
        ("path", "interval"),
        streams=True,
    ),
    _get("/switches", switches.all_switches, "Switches of a demonstration. Not in Flink."),
    _change("PUT", "/switches/{name}", switches.turn, "Turn one on or off. Not in Flink."),
    _get("/config", handlers.dashboard_config, "What the dashboard may do."),
    _get("/overview", handlers.overview, "TaskManagers, slots and jobs in numbers."),
    _change(
        "DELETE", "/cluster", session_handlers.shut_down, "End a session; refused by other drivers."
    ),
    _get("/session", session_handlers.session, "Whether this is a session. Not in Flink."),
    Route(
        "POST",
        "/session/jobs",
        session_handlers.submit,
        "Submit a job to a session. Not in Flink.",
        ("penstock", "python", "pyspark", "triggerId"),
        changes=True,
        takes_data=True,
    ),
    Route(
        "GET",
        "/session/jobs/{jobid}/rows/{stream}",
        session_handlers.rows,
        "Collected rows, for the client that submitted the job. Not in Flink.",
        ("after", "chosen"),
        changes=True,
        takes_data=True,
    ),
    _get("/session/jobs/{triggerid}", session_handlers.submission, "How that went. Not in Flink."),
    _get("/datasets", handlers.datasets, "Cluster data sets: there are none."),
    _change("DELETE", "/datasets/{datasetid}", handlers.no_dataset, "There are none."),
    _get("/datasets/delete/{triggerid}", handlers.no_dataset, "There are none."),
    _get("/jobmanager/environment", handlers.jobmanager_environment, "The driver's Python."),
    _get("/jobmanager/config", handlers.jobmanager_config, "The options of the driver's jobs."),
    _get("/applications/overview", handlers.applications, "All applications: one for each job."),
    _get(_APPLICATION, handlers.application, "An application and its job."),
    _change("POST", f"{_APPLICATION}/cancel", actions.cancel_application, "Cancel an application."),
    _get(f"{_APPLICATION}/exceptions", handlers.application_exceptions, "What ended it."),
    _get(
        f"{_APPLICATION}/jobmanager/config", handlers.application_jobmanager_config, "Its options."
    ),
)

_JOBS: Final = (
    _get("/jobs", handlers.job_ids, "Ids and statuses of all jobs."),
    _change("POST", "/jobs", handlers.no_jars, "Refused: an execution plan of Java."),
    _get("/jobs/overview", handlers.jobs_overview, "All jobs."),
    _get(_JOB, handlers.job_details, "A job with its vertices and its plan."),
    _change("PATCH", _JOB, actions.cancel, "Cancel a job.", "mode"),
    _change(
        "GET", f"{_JOB}/yarn-cancel", actions.cancel_job, "Cancel a job, as the dashboard does."
    ),
    _change("GET", f"{_JOB}/yarn-stop", actions.stop_is_gone, "Refused: removed in Flink."),
    _get(
        f"{_JOB}/accumulators",
        handlers.job_accumulators,
        "Accumulators: there are none.",
        "includeSerializedValue",
    ),
    _get(f"{_JOB}/config", handlers.job_config, "How the job is executed."),
    _get(
        f"{_JOB}/exceptions",
        handlers.job_exceptions,
        "Failures, newest first.",
        "maxExceptions",
        "failureLabelFilter",
    ),
    _get(f"{_JOB}/jobmanager/config", handlers.job_jobmanager_config, "The options of the job."),
    _get(f"{_JOB}/execution-result", handlers.job_result, "How the job has ended."),
    _get(f"{_JOB}/jobmanager/environment", handlers.job_environment, "The driver's Python."),
    _get(f"{_JOB}/jobmanager/log-url", handlers.job_log_url, "Where the driver's logs are shown."),
    _get(
        f"{_JOB}/taskmanagers/{{taskmanagerid}}/log-url",
        handlers.taskmanager_log_url,
        "Where its logs are shown.",
    ),
    _get(
        f"{_JOB}/resource-requirements",
        requirements.requirements,
        "What parallelism its vertices may have.",
    ),
    _change(
        "PATCH",
        f"{_JOB}/clientHeartbeat",
        session_handlers.heartbeat,
        "Tell a session that the client of the job lives.",
    ),
    _change(
        "PUT",
        f"{_JOB}/resource-requirements",
        requirements.change_requirements,
        "Change it, for all vertices at once.",
    ),
    _change(
        "POST",
        f"{_JOB}/coordinators/{{operatoruid}}",
        handlers.no_coordinator,
        "Refused: Java objects.",
    ),
    _get(f"{_JOB}/plan", handlers.job_plan, "The plan of the job."),
    _get(f"{_JOB}/status", handlers.job_status, "The status of the job."),
)

_VERTICES: Final = (
    _get(_VERTEX, handlers.vertex_details, "A vertex with its subtasks."),
    _get(f"{_VERTEX}/accumulators", handlers.vertex_accumulators, "There are none."),
    _get(f"{_VERTEX}/backpressure", handlers.vertex_backpressure, "Back pressure of each subtask."),
    _get(
        f"{_VERTEX}/pressure",
        page_handlers.vertex_pressure,
        "How many subtasks are back-pressured, and the worst of them. Not in Flink.",
        "page",
    ),
    _get(
        f"{_VERTEX}/functions",
        handlers.vertex_functions,
        "How each row function runs, and why not on columns. Not in Flink.",
    ),
    _get(f"{_VERTEX}/subtasktimes", handlers.vertex_times, "When each subtask entered its states."),
    _get(f"{_VERTEX}/taskmanagers", handlers.vertex_taskmanagers, "Subtasks by TaskManager."),
    _get(f"{_VERTEX}/watermarks", handlers.vertex_watermarks, "Watermarks of the subtasks."),
    _get(f"{_VERTEX}/subtasks/accumulators", handlers.subtasks_accumulators, "There are none."),
    _get(_SUBTASK, handlers.subtask_details, "The current attempt of a subtask."),
    _get(f"{_SUBTASK}/attempts/{{attempt}}", handlers.attempt_details, "An attempt of a subtask."),
    _get(f"{_SUBTASK}/attempts/{{attempt}}/accumulators", handlers.attempt_accumulators, "None."),
)

_CHECKPOINTS: Final = (
    _get(f"{_JOB}/checkpoints", handlers.checkpoints_overview, "The checkpoints of a job."),
    _change("POST", f"{_JOB}/checkpoints", actions.trigger_checkpoint, "Take a checkpoint."),
    _get(f"{_JOB}/checkpoints/config", handlers.checkpoints_config, "How checkpoints are taken."),
    _get(f"{_JOB}/checkpoints/{{triggerid}}", actions.checkpoint_status, "How that went."),
    _get(_CHECKPOINT, handlers.checkpoint_details, "One checkpoint, with its vertices."),
    _get(
        f"{_CHECKPOINT}/subtasks/{{vertexid}}",
        handlers.checkpoint_subtasks,
        "Its subtasks of a vertex.",
    ),
    _change("POST", f"{_JOB}/savepoints", actions.trigger_savepoint, "Take a savepoint."),
    _get(f"{_JOB}/savepoints/{{triggerid}}", actions.savepoint_status, "How that went."),
    _change("POST", f"{_JOB}/stop", actions.stop, "Stop the job with a savepoint."),
    _change("POST", "/savepoint-disposal", actions.dispose_savepoint, "Remove a savepoint."),
    _get("/savepoint-disposal/{triggerid}", actions.disposal_status, "How that went."),
    _get(f"{_RESCALES}/config", rescales.config, "When the job is rescaled."),
    _get(f"{_RESCALES}/overview", rescales.overview, "How many rescales there were."),
    _get(f"{_RESCALES}/history", rescales.past, "Those that are kept."),
    _get(f"{_RESCALES}/summary", rescales.summary, "How long they took."),
    _get(f"{_RESCALES}/details/{{rescaleuuid}}", rescales.details, "One of them."),
    _get(f"{_JOB}/rescaling/{{triggerid}}", handlers.no_operation, "There is none."),
    _change(
        "PATCH", f"{_JOB}/rescaling", actions.no_rescaling, "Refused, as in Flink.", "parallelism"
    ),
)

_TASKMANAGERS: Final = (
    _get(
        "/taskmanagers/health",
        page_handlers.taskmanagers_health,
        "TaskManagers with what their processes use, and lost ones. Not in Flink.",
        "sort",
        "order",
        "page",
        "id",
    ),
    _get("/taskmanagers", handlers.all_taskmanagers, "All TaskManagers."),
    _get("/taskmanagers/{taskmanagerid}", handlers.taskmanager_details, "A TaskManager."),
)

_JARS: Final = tuple(
    Route(
        method, path, handlers.no_jars, "Refused: Penstock takes no jars.", changes=method != "GET"
    )
    for method, path in (
        ("GET", "/jars"),
        ("POST", "/jars/upload"),
        ("DELETE", "/jars/{jarid}"),
        ("GET", "/jars/{jarid}/plan"),
        ("POST", "/jars/{jarid}/plan"),
        ("POST", "/jars/{jarid}/run"),
        ("POST", "/jars/{jarid}/run-application"),
    )
)

_PROFILERS: Final = tuple(
    Route(
        method,
        f"{process}/profiler{file}",
        log_handlers.no_profiler,
        "Refused: profilers of Java.",
        changes=method != "GET",
    )
    for process in ("/jobmanager", _TASKMANAGER)
    for method, file in (("GET", ""), ("POST", ""), ("GET", "/{filename}"))
)

ROUTES: Final = (
    *_LOGS,
    *_PROFILERS,
    *_OWN,
    *_METRICS,
    *_DRIVER,
    *_JOBS,
    *_VERTICES,
    *_CHECKPOINTS,
    *_TASKMANAGERS,
    *_JARS,
)
