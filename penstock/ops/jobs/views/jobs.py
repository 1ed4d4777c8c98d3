"""Answers about jobs as a whole. Source: Flink JobsOverviewHandler, JobDetailsHandler, JobPlanHandler, JobConfigHandler.

All options of a job: what holds, what would hold if nobody had set it, and who has. Flink has no such path.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from penstock.engine.model.config import Layer
from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import JobId
from penstock.engine.model.options.catalogue import (
    GROUPS,
    WITHOUT_EFFECT,
    documentation,
    find_option,
)
from penstock.engine.model.options.option import NAME, Option
from penstock.engine.model.options.scheduling import RestartOptions
from penstock.engine.model.states import ExecutionState, JobStatus, aggregate_state
from penstock.engine.model.texts.redaction import HIDDEN, is_secret, redacted
from penstock.ops.jobs.snapshots import DriverSnapshot, JobSnapshot, VertexFacts, VertexSnapshot
from penstock.ops.jobs.views.attempts import Json, counters_of, counts_of, span_of_all

_PAGE: Final = "reference/configuration/"
_WITHOUT_EFFECT: Final = "Accepted without effect"
_UNKNOWN: Final = "Not known to Penstock"


def options(job: JobSnapshot) -> Json:
    """`/jobs/:jobid/options`. Links are relative to the first page of the documentation."""
    found = _Options(job)
    subjects = [*found.subjects()]
    return {
        "subjects": subjects,
        "total": sum(len(one["options"]) for one in subjects),
        "set": sum(option["set"] for one in subjects for option in one["options"]),
        "job-parameters": redacted(job.facts.user_config),
    }


class _Options:
    """The options of one job. `_listed`: the keys of those that had their turn."""

    def __init__(self, job: JobSnapshot) -> None:
        self._values = job.facts.configuration
        self._origins = job.facts.options.origins
        self._host_defaults = job.facts.options.host_defaults
        self._listed: set[str] = set()

    def subjects(self) -> Iterator[Json]:
        unused: list[Option[Any]] = []
        for group in GROUPS:
            options = group.options()
            unused += [one for one in options if not one.is_used]
            used = [one for one in options if one.is_used]
            yield self._subject(group.title, " ".join((group.__doc__ or "").split()), used)
        text = (
            "Programs for Flink set these options. Penstock checks their values and ignores them."
        )
        yield self._subject(_WITHOUT_EFFECT, text, [*unused, *WITHOUT_EFFECT])
        others = [key for key in sorted(self._values) if key not in self._listed]
        if others:
            text = "Penstock ignores these keys. They may be of other software, or misspelt."
            rows = [self._row(key, None, None) for key in others]
            yield {"subject": _UNKNOWN, "doc": text, "page": None, "options": rows}

    def _subject(self, title: str, text: str, known: Sequence[Option[Any]]) -> Json:
        docs = documentation()
        rows = [
            self._row(one.key, one, docs[option.key])
            for option in known
            for one in self._each(option)
        ]
        self._listed |= {one["key"] for one in rows}
        return {"subject": title, "doc": text, "page": page_of(title), "options": rows}

    def _each(self, option: Option[Any]) -> Iterator[Option[Any]]:
        """An option for several names, and after it each name that is set."""
        yield option
        if NAME in option.key:
            pattern = re.compile(re.escape(option.key).replace(re.escape(NAME), "([^.]+)"))
            for key in sorted(self._values):
                named = pattern.fullmatch(key)
                # A key that is an option itself, or fits another one, is not meant.
                if named is not None and find_option(key) == option.of(named[1]):
                    yield option.of(named[1])

    def _row(self, key: str, option: Option[Any] | None, doc: str | None) -> Json:
        by = key
        if key not in self._values and option is not None and option.fallback is not None:
            by = option.fallback.key
        origin = self._origins.get(by, Layer.DEFAULT)
        is_set = by in self._values and origin is not Layer.DEFAULT
        flinks = None if option is None else option.default
        default = self._host_defaults.get(key, flinks)
        value = self._values.get(by, default) if is_set else default
        return {
            "key": key,
            "value": HIDDEN if value is not None and is_secret(key) else value,
            "default": default,
            "flink-default": flinks,
            "set": is_set,
            "set-by": str(origin) if is_set else None,
            "set-as": by if is_set and by != key else None,
            "type": None if option is None else option.kind.name,
            "doc": doc,
        }


def page_of(title: str) -> str:
    """Return where the documentation has a subject."""
    return f"{_PAGE}#{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')}"


_RESTARTS: Final = RestartOptions.TYPE.former_keys[0]


def _scheduler(job: JobSnapshot) -> str:
    """Source: Flink SchedulerType."""
    if job.facts.job_type is JobType.BATCH:
        return "AdaptiveBatch"
    return "Default" if job.rescales is None else "Adaptive"


def jobs(driver: DriverSnapshot) -> Json:
    """`/jobs`."""
    return {"jobs": [{"id": job.job_id, "status": str(job.status)} for job in driver.jobs]}


def overview(driver: DriverSnapshot) -> Json:
    """`/jobs/overview`."""
    return {"jobs": [job_in_list(job) for job in driver.jobs]}


def job_in_list(job: JobSnapshot) -> Json:
    """A job in the list of all jobs. An archive may have these fields only."""
    counted: Counter[ExecutionState] = Counter()
    for vertex in job.vertices:
        counted.update(attempt.state for attempt in vertex.attempts)
    return {
        "jid": job.job_id,
        "name": job.facts.name,
        "start-time": job.facts.submitted_ms,
        "end-time": job.ended_ms,
        "duration": job.lasted_ms,
        "state": str(job.status),
        "last-modification": job.changed_ms,
        "tasks": {
            "running": counted[ExecutionState.RUNNING],
            **{str(state).lower(): counted[state] for state in ExecutionState},
            "total": sum(counted.values()),
        },
        "pending-operators": 0,
        "jobType": str(job.facts.job_type),
        "schedulerType": _scheduler(job),
    }


def details(job: JobSnapshot) -> Json:
    """`/jobs/:jobid`."""
    states = Counter(state_of(vertex) for vertex in job.vertices)
    return {
        "jid": job.job_id,
        "application-id": job.job_id,
        "name": job.facts.name,
        "isStoppable": False,
        "state": str(job.status),
        "job-type": str(job.facts.job_type),
        "schedulerType": _scheduler(job),
        "start-time": job.facts.submitted_ms,
        "end-time": job.ended_ms,
        "duration": job.lasted_ms,
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
    """Return why a job has no rescales to show."""
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
