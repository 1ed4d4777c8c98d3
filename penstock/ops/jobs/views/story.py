"""Answers about what happened to a job, in order. Flink has no such path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from penstock.engine.model.states import ExecutionState
from penstock.engine.model.texts.amounts import counted
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.jobs.failure_record import FailureSeen
from penstock.ops.jobs.snapshots import AttemptSnapshot, JobSnapshot, VertexSnapshot
from penstock.ops.jobs.story_record import StoryEvent, StoryKind
from penstock.ops.jobs.views.attempts import Json, attempts_of

_MILESTONES: Final = ((ExecutionState.RUNNING, "runs"), (ExecutionState.FINISHED, "has finished"))


def story(
    job: JobSnapshot,
    vertex: VertexSnapshot | None = None,
    subtask: int | None = None,
    machine: Sequence[str] = (),
) -> Json:
    """`/jobs/:jobid/story`, oldest first.

    `vertex`: the states of its attempts are included; with `subtask` those of this one only.
    `machine`: lines of the job's machine.
    """
    found = [
        *map(_of_job, job.story.events),
        *_failures(job, vertex, subtask),
        *(_vertices(job) if vertex is None else _attempts(vertex, subtask)),
    ]
    return {
        "job": job.job_id,
        "now": job.now_ms,
        "forgotten": job.story.forgotten,
        "events": sorted(found, key=lambda one: one["timestamp"]),
        "machine": [without_credentials(line) for line in machine],
    }


def _of_job(one: StoryEvent) -> Json:
    cause = {} if one.taskmanager is None else {"taskmanager": one.taskmanager}
    return _event(one.at_ms, one.kind, one.text, **cause)


def _event(at_ms: int, kind: StoryKind, text: str, **more: Any) -> Json:
    return {"timestamp": at_ms, "kind": str(kind), "text": without_credentials(text), **more}


def _failures(
    job: JobSnapshot, vertex: VertexSnapshot | None, subtask: int | None
) -> Iterator[Json]:
    for root, concurrent in job.failures:
        for seen in (root, *concurrent):
            if _is_of(seen, vertex, subtask):
                yield _failure(seen)


def _is_of(seen: FailureSeen, vertex: VertexSnapshot | None, subtask: int | None) -> bool:
    """Whether a failure belongs to the story. One of the job as a whole belongs to every story."""
    attempt_id = seen.attempt_id
    if vertex is None or attempt_id is None:
        return True
    is_here = attempt_id.vertex_id == vertex.facts.vertex_id
    return is_here and subtask in {None, attempt_id.subtask}


def _failure(seen: FailureSeen) -> Json:
    who = "the job" if seen.task is None else seen.task
    event = _event(seen.at_ms, StoryKind.FAILURE, f"{who} failed: {_headline(seen.failure.text)}")
    if seen.attempt_id is not None:
        event |= {
            "vertex-id": seen.attempt_id.vertex_id,
            "subtask": seen.attempt_id.subtask,
            "attempt": seen.attempt_id.attempt,
        }
    return event


def _headline(text: str) -> str:
    """Return the line of a traceback that has the error."""
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    errors = [line for line in lines if not line.startswith("Traceback")]
    return errors[-1] if errors else text.strip()


def _vertices(job: JobSnapshot) -> Iterator[Json]:
    """When all current subtasks of a vertex ran, and when all had finished."""
    for vertex in job.vertices:
        for state, verb in _MILESTONES:
            at_ms = _all_since(vertex, state)
            if at_ms is not None:
                subtasks = counted(len(vertex.attempts), "subtask")
                text = f"'{vertex.facts.name}' {verb}: {subtasks}"
                yield _event(at_ms, StoryKind.VERTEX, text, **{"vertex-id": vertex.facts.vertex_id})


def _all_since(vertex: VertexSnapshot, state: ExecutionState) -> int | None:
    """Return when the last subtask came into a state; None: one has not been in it."""
    latest = None
    for one in vertex.attempts:
        at_ms = next((at_ms for known, at_ms in one.since if known is state), None)
        if at_ms is None:
            return None
        latest = at_ms if latest is None else max(latest, at_ms)
    return latest


def _attempts(vertex: VertexSnapshot, subtask: int | None) -> Iterator[Json]:
    chosen: Iterable[int] = range(len(vertex.attempts)) if subtask is None else [subtask]
    for index in chosen:
        for former in attempts_of(vertex, index):
            yield from _states(vertex, former.attempt)


def _states(vertex: VertexSnapshot, one: AttemptSnapshot) -> Iterator[Json]:
    who = f"'{vertex.facts.name}' subtask {one.subtask}, attempt {one.attempt}"
    for state, at_ms in one.since:
        text = f"{who} is {state}"
        if state is ExecutionState.DEPLOYING and one.location is not None:
            text += f" on {one.location.resource_id} ({one.location.host})"
        if state is one.state and one.cause:
            text += f": {_headline(one.cause)}"
        yield _event(
            at_ms,
            StoryKind.SUBTASK,
            text,
            **{
                "vertex-id": vertex.facts.vertex_id,
                "subtask": one.subtask,
                "attempt": one.attempt,
                "state": str(state),
            },
        )
