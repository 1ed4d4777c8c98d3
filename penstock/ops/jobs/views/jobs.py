"""Answers about jobs as a whole. Source: Flink JobsOverviewHandler, JobDetailsHandler, JobPlanHandler, JobConfigHandler."""

from __future__ import annotations

import html
from collections import Counter
from typing import Final

from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import JobId
from penstock.engine.model.options.scheduling import RestartOptions
from penstock.engine.model.states import ExecutionState, JobStatus, aggregate_state
from penstock.engine.model.texts.redaction import redacted
from penstock.ops.jobs.snapshots import DriverSnapshot, JobSnapshot, VertexFacts, VertexSnapshot
from penstock.ops.jobs.views.attempts import Json, counters_of, counts_of, span_of_all

_RESTARTS: Final = RestartOptions.TYPE.former_keys[0]
_SCHEDULER: Final = {JobType.STREAMING: "Default", JobType.BATCH: "AdaptiveBatch"}


def jobs(driver: DriverSnapshot) -> Json:
    """`/jobs`."""
    return {"jobs": [{"id": job.job_id, "status": str(job.status)} for job in driver.jobs]}


def overview(driver: DriverSnapshot) -> Json:
    """`/jobs/overview`."""
    return {"jobs": [job_in_list(job) for job in driver.jobs]}


def job_in_list(job: JobSnapshot) -> Json:
    """A job in the list of all jobs. An archive may have these fields only."""
    end = job.ended_ms
    counted: Counter[ExecutionState] = Counter()
    for vertex in job.vertices:
        counted.update(attempt.state for attempt in vertex.attempts)
    return {
        "jid": job.job_id,
        "name": job.facts.name,
        "start-time": job.facts.submitted_ms,
        "end-time": end,
        "duration": (job.now_ms if end < 0 else end) - job.facts.submitted_ms,
        "state": str(job.status),
        "last-modification": job.changed_ms,
        "tasks": {
            "running": counted[ExecutionState.RUNNING],
            **{str(state).lower(): counted[state] for state in ExecutionState},
            "total": sum(counted.values()),
        },
        "pending-operators": 0,
        "jobType": str(job.facts.job_type),
        "schedulerType": _SCHEDULER[job.facts.job_type],
    }


def details(job: JobSnapshot) -> Json:
    """`/jobs/:jobid`."""
    states = Counter(state_of(vertex) for vertex in job.vertices)
    end = job.ended_ms
    return {
        "jid": job.job_id,
        "application-id": job.job_id,
        "name": job.facts.name,
        "isStoppable": False,
        "state": str(job.status),
        "job-type": str(job.facts.job_type),
        "schedulerType": _SCHEDULER[job.facts.job_type],
        "start-time": job.facts.submitted_ms,
        "end-time": end,
        "duration": (job.now_ms if end < 0 else end) - job.facts.submitted_ms,
        "maxParallelism": -1,
        "now": job.now_ms,
        "timestamps": {str(status): job.timestamps.get(status, 0) for status in JobStatus},
        "vertices": [_vertex(vertex, job) for vertex in job.vertices],
        "status-counts": {str(state): states[state] for state in ExecutionState},
        "plan": _plan(job),
        "pending-operators": 0,
    }


def plan(job: JobSnapshot) -> Json:
    """`/jobs/:jobid/plan`."""
    return {"plan": _plan(job)}


def config(job: JobSnapshot) -> Json:
    """`/jobs/:jobid/config`."""
    return {
        "jid": job.job_id,
        "name": job.facts.name,
        "execution-config": {
            _RESTARTS: job.facts.restarts.strategy,
            "job-parallelism": job.facts.parallelism,
            "object-reuse-mode": False,
            "user-config": redacted(job.facts.user_config),
        },
    }


def status(job: JobSnapshot) -> Json:
    """`/jobs/:jobid/status`."""
    return {"status": str(job.status)}


def result(job: JobSnapshot) -> Json:
    """How a job has ended, without its failure: a part of `/jobs/:jobid/execution-result`."""
    ended = (JobStatus.CANCELED, JobStatus.FAILED)
    status = str(job.status) if job.status in ended else "SUCCEEDED"
    return {
        "id": job.job_id,
        "name": job.facts.name,
        "application-status": "UNKNOWN" if job.status is JobStatus.SUSPENDED else status,
        "accumulator-results": {},
        "net-runtime": max(0, job.ended_ms - job.facts.submitted_ms),
        "application-id": job.job_id,
        "start-time": job.facts.submitted_ms,
        "end-time": job.ended_ms,
    }


def no_rescales(job: JobSnapshot) -> str:
    """Why a job tells nothing of rescales."""
    return f"AdaptiveScheduler is not enabled for this job ({job.job_id})."


def accumulators(_job: JobSnapshot) -> Json:
    """`/jobs/:jobid/accumulators`: PyFlink has no accumulators, so there are none."""
    return {
        "job-accumulators": [],
        "user-task-accumulators": [],
        "serialized-user-task-accumulators": {},
    }


def state_of(vertex: VertexSnapshot) -> ExecutionState:
    """Return one state for all subtasks of a vertex."""
    return aggregate_state(Counter(attempt.state for attempt in vertex.attempts))


def group_id(name: str) -> str:
    """Return an id for a slot sharing group, which is known by its name here."""
    return name.encode().hex()[:32].ljust(32, "0")


def _vertex(vertex: VertexSnapshot, job: JobSnapshot) -> Json:
    start, end, duration = span_of_all(vertex.attempts, job.now_ms)
    return {
        "id": vertex.facts.vertex_id,
        "slotSharingGroupId": group_id(vertex.facts.slot_sharing_group),
        "name": vertex.facts.name,
        "maxParallelism": vertex.facts.max_parallelism,
        "parallelism": vertex.facts.parallelism,
        "status": str(state_of(vertex)),
        "start-time": start,
        "end-time": end,
        "duration": duration,
        "tasks": counts_of(vertex.attempts),
        "metrics": counters_of(vertex.ios, is_source=not vertex.facts.inputs),
    }


def _plan(job: JobSnapshot) -> Json:
    return {
        "jid": JobId(job.job_id),
        "name": job.facts.name,
        "type": str(job.facts.job_type),
        "nodes": [_node(vertex.facts) for vertex in reversed(job.vertices)],  # Sinks first.
    }


def _node(facts: VertexFacts) -> Json:
    node: Json = {
        "id": facts.vertex_id,
        "parallelism": facts.parallelism,
        "operator": "",
        "operator_strategy": "",
        "description": described(facts.name),
        "optimizer_properties": {},
    }
    if facts.inputs:
        node["inputs"] = [
            {
                "num": number,
                "id": one.source,
                "ship_strategy": one.ship_strategy,
                "exchange": one.exchange,
            }
            for number, one in enumerate(facts.inputs)
        ]
    return node


def described(name: str) -> str:
    """Return a chain as HTML: one operator a line."""
    first, *others = html.escape(name, quote=False).split(" -&gt; ")
    return "<br/>".join([first, *(f"+- {one}" for one in others)]) + "<br/>"
