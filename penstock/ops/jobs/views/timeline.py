"""States over time: of a job, its vertices and its attempts, with marks where something happened. Flink has no such path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from penstock.engine.model.ids import taskmanager_name
from penstock.engine.model.texts.bounded_text import shortened
from penstock.engine.model.texts.error_text import headline_of
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.jobs.failure_record import read_failure
from penstock.ops.jobs.lane import MOST_CHANGES, Lane
from penstock.ops.jobs.snapshots import AttemptSnapshot, JobSnapshot, VertexSnapshot
from penstock.ops.jobs.story_record import StoryKind
from penstock.ops.jobs.views.attempts import Json, attempts_of

MOST_LANES: Final = 200
MOST_SPANS: Final = 6_000
"""Of all vertices together, where none is chosen."""
MOST_MARKS: Final = 1_000
_LEAST_SPANS: Final = 20
_MOST_OF_CAUSE: Final = 300
_MARKS: Final = frozenset({
    StoryKind.RESTART, StoryKind.RESTORE, StoryKind.SAVEPOINT, StoryKind.CHECKPOINT_FAILED,
})  # fmt: skip


def timeline(job: JobSnapshot) -> Json:
    """`/jobs/:jobid/timeline`: the job and its vertices."""
    most = max(_LEAST_SPANS, MOST_SPANS // max(1, len(job.vertices)))
    marks = sorted(_marks(job), key=lambda one: one["at"])
    return {
        **_axis(job),
        "job": _lane(job.story.statuses, job.until_ms, has_ended=job.ended_ms >= 0),
        "vertices": [
            {
                "id": one.facts.vertex_id,
                "name": one.facts.name,
                **_lane(one.lane, job.until_ms, most, has_ended=job.ended_ms >= 0),
            }
            for one in job.vertices
        ],
        "marks-total": len(marks) + sum(job.story.forgotten_kinds.get(one, 0) for one in _MARKS),
        "marks": marks[-MOST_MARKS:],
    }


def of_vertex(
    job: JobSnapshot, vertex: VertexSnapshot, subtask: int | None, offset: int = 0
) -> Json:
    """The same with `vertexid`: a lane for each attempt of its subtasks. Those with most attempts come first, the newest attempt of each last.

    `subtask` None: of all subtasks. `offset`: how many lanes come before these.
    """
    chosen = range(len(vertex.attempts)) if subtask is None else [subtask]
    ordered = sorted(chosen, key=lambda one: -len(vertex.former.get(one, ())))
    total = sum(1 + len(vertex.former.get(one, ())) for one in ordered)
    lanes = _page(vertex, ordered, offset)
    causes = _causes(job, vertex)
    return {
        **_axis(job),
        "id": vertex.facts.vertex_id,
        "name": vertex.facts.name,
        "vertex": _lane(vertex.lane, job.until_ms, has_ended=job.ended_ms >= 0),
        "total": total,
        "offset": offset,
        "shown": len(lanes),
        "attempts": [_attempt(job, one, causes) for one in lanes],
    }


def _axis(job: JobSnapshot) -> Json:
    to = None if job.ended_ms < 0 else job.ended_ms
    return {"now": job.now_ms, "from": job.facts.submitted_ms, "to": to}


def _page(vertex: VertexSnapshot, subtasks: Sequence[int], offset: int) -> list[AttemptSnapshot]:
    found: list[AttemptSnapshot] = []
    passed = 0
    for subtask in subtasks:
        count = 1 + len(vertex.former.get(subtask, ()))
        if passed + count > offset:
            found += [
                one.attempt for one in attempts_of(vertex, subtask)[max(0, offset - passed) :]
            ]
        passed += count
        if len(found) >= MOST_LANES:
            break
    return found[:MOST_LANES]


def _lane(lane: Lane, now_ms: int, most: int = MOST_CHANGES, *, has_ended: bool) -> Json:
    """Each state with its begin and its end; None: it lasts. `most`: how many of the last ones."""
    changes = lane.changes[-most:]
    ends: list[int | None] = [at_ms for _, at_ms in changes[1:]]
    ends.append(now_ms if has_ended else None)
    return {
        "total": len(lane.changes) + lane.forgotten,
        "shown": len(changes),
        "kept": MOST_CHANGES,
        "spans": [
            {"state": state, "from": at_ms, "to": end}
            for (state, at_ms), end in zip(changes, ends, strict=False)
        ],
    }


def _causes(job: JobSnapshot, vertex: VertexSnapshot) -> dict[tuple[int, int], str]:
    """What attempts of the vertex failed with, by subtask and attempt, from the newest failures of the job."""
    return {
        (seen.attempt_id.subtask, seen.attempt_id.attempt): read_failure(seen.failure).headline
        for root, others in job.failures
        for seen in (root, *others)
        if seen.attempt_id is not None and seen.attempt_id.vertex_id == vertex.facts.vertex_id
    }


def _attempt(job: JobSnapshot, one: AttemptSnapshot, causes: Mapping[tuple[int, int], str]) -> Json:
    """An attempt itself knows no more of its end than what kind of failure it was."""
    ends: list[int | None] = [at_ms for _, at_ms in one.since[1:]]
    ends.append(one.since[-1][1] if one.state.is_terminal else None)
    location = one.location
    known = causes.get((one.subtask, one.attempt)) or headline_of(one.cause, one.cause.strip())
    cause = shortened(without_credentials(known), _MOST_OF_CAUSE)
    return {
        "subtask": one.subtask,
        "attempt": one.attempt,
        "state": str(one.state),
        "host": location and location.host,
        "taskmanager-id": location and taskmanager_name(job.job_id, location.resource_id),
        "cause": cause or None,
        "spans": [
            {"state": str(state), "from": at_ms, "to": end}
            for (state, at_ms), end in zip(one.since, ends, strict=True)
        ],
    }


def _marks(job: JobSnapshot) -> Iterator[Json]:
    for one in job.story.events:
        if one.kind in _MARKS:
            yield {"at": one.at_ms, "kind": str(one.kind), "text": without_credentials(one.text)}
    for root, _ in job.failures:
        headline = without_credentials(read_failure(root.failure).headline)
        attempt_id = root.attempt_id
        yield {
            "at": root.at_ms,
            "kind": str(StoryKind.FAILURE),
            "text": shortened(headline, _MOST_OF_CAUSE),
            "vertex-id": None if attempt_id is None else attempt_id.vertex_id,
            "subtask": None if attempt_id is None else attempt_id.subtask,
        }
