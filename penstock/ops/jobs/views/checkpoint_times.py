"""Where the time of checkpoints goes: a strip of the last ones, and one of them subtask by subtask. Flink has no such paths.

Durations are ms, sizes bytes. What is not known is None.
"""

from __future__ import annotations

import heapq
from typing import Final, TypeAlias

from penstock.engine.model.ids import VertexId
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.jobs.checkpoint_record import MOST_BRIEFS, brief_of, missing_of
from penstock.ops.jobs.snapshots import (
    CheckpointBrief,
    CheckpointSnapshot,
    JobSnapshot,
    SubtaskCheckpoint,
    VertexSnapshot,
)
from penstock.ops.jobs.views.attempts import Json

MOST_ROWS: Final = 200
_TOO_MANY: Final = 5 * MOST_ROWS
_Part: TypeAlias = "tuple[tuple[bool, int], VertexSnapshot, SubtaskCheckpoint | int]"
"""Whether a subtask is missing and how long it took; the vertex; and the acknowledgement or the missing subtask."""


def strip(job: JobSnapshot) -> Json:
    """`/jobs/:jobid/checkpoints/strip`: newest first. Of those beyond the last 60 only failed ones are told."""
    known = job.checkpoints
    pending = [
        brief_of(one, job.now_ms)
        for one in known.history
        if not one.is_completed and not one.is_failed
    ]
    ones = [*pending, *known.briefs]
    facts = job.facts.checkpoints
    return {
        "now": job.now_ms,
        "interval": None if facts is None else facts.interval_ms,
        "total": known.completed + known.failed + known.in_progress,
        "completed": known.completed,
        "failed": known.failed,
        "in-progress": known.in_progress,
        "shown": len(ones),
        "kept": MOST_BRIEFS,
        "checkpoints": [_brief(job, one) for one in ones],
    }


def _brief(job: JobSnapshot, one: CheckpointBrief) -> Json:
    has_ended = one.ended_ms >= 0
    until_ms = one.ended_ms if has_ended else job.now_ms
    return {
        "id": one.checkpoint_id,
        "kind": "savepoint" if one.checkpoint_type.is_savepoint else "checkpoint",
        "unaligned": one.is_unaligned,
        "state": _state(is_failed=one.failure is not None, has_ended=has_ended),
        "triggered": one.triggered_ms,
        "ended": one.ended_ms if has_ended else None,
        "duration": max(0, until_ms - one.triggered_ms),
        "state-bytes": one.state_bytes,
        "written-bytes": one.written_bytes,
        "subtasks": one.subtasks,
        "acknowledged": one.acknowledged,
        "failure": None if one.failure is None else without_credentials(one.failure),
        "straggler": _straggler(job, one),
        "has-details": job.checkpoints.of(one.checkpoint_id) is not None,
    }


def _state(*, is_failed: bool, has_ended: bool) -> str:
    if is_failed:
        return "FAILED"
    return "COMPLETED" if has_ended else "IN_PROGRESS"


def _straggler(job: JobSnapshot, one: CheckpointBrief) -> Json | None:
    if one.straggler is None:
        return None
    vertex_id, subtask = one.straggler
    vertex = job.vertex(vertex_id)
    return {
        "vertex-id": vertex_id,
        "vertex-name": None if vertex is None else vertex.facts.name,
        "subtask": subtask,
        "after": one.after_ms,
        "missing": one.is_missing,
    }


class Gantt:
    """`/jobs/:jobid/checkpoints/details/:checkpointid/gantt`. Told of one vertex after the other."""

    def __init__(self, job: JobSnapshot, checkpoint: CheckpointSnapshot) -> None:
        self._job = job
        self._checkpoint = checkpoint
        has_ended = checkpoint.ended_ms >= 0
        until_ms = checkpoint.ended_ms if has_ended else job.now_ms
        self._lasted_ms = max(0, until_ms - checkpoint.triggered_ms)
        self._total = 0
        self._missing = 0
        self._worst: list[_Part] = []

    def add(self, vertex: VertexSnapshot) -> None:
        """Add the subtasks of a vertex that have a part in the checkpoint."""
        vertex_id: VertexId = vertex.facts.vertex_id
        acks = self._checkpoint.acks.get(vertex_id, ())
        missing = list(missing_of(self._checkpoint, vertex_id))
        triggered_ms = self._checkpoint.triggered_ms
        found: list[_Part] = [((True, self._lasted_ms), vertex, one) for one in missing]
        by_subtask = sorted(acks, key=lambda ack: ack.subtask)
        found += [((False, ack.ack_ms - triggered_ms), vertex, ack) for ack in by_subtask]
        self._total += len(found)
        self._missing += len(missing)
        self._worst += found
        if len(self._worst) > _TOO_MANY:
            self._forget_the_best()

    def _forget_the_best(self) -> None:
        """Of equal ones the first stays the first: they are added from the sources on."""
        self._worst = heapq.nlargest(MOST_ROWS, self._worst, key=lambda one: one[0])

    def told(self) -> Json:
        """Return the answer: subtasks that are missing first, then those that took longest."""
        self._forget_the_best()
        one = self._checkpoint
        return {
            "now": self._job.now_ms,
            "id": one.checkpoint_id,
            "kind": "savepoint" if one.checkpoint_type.is_savepoint else "checkpoint",
            "unaligned": one.is_unaligned,
            "state": _state(is_failed=one.is_failed, has_ended=one.ended_ms >= 0),
            "triggered": one.triggered_ms,
            "ended": None if one.ended_ms < 0 else one.ended_ms,
            "duration": self._lasted_ms,
            "failure": None if one.failure is None else without_credentials(one.failure),
            "total": self._total,
            "missing": self._missing,
            "shown": len(self._worst),
            "subtasks": [self._row(vertex, found) for _, vertex, found in self._worst],
        }

    def _row(self, vertex: VertexSnapshot, found: SubtaskCheckpoint | int) -> Json:
        place = {"vertex-id": vertex.facts.vertex_id, "vertex-name": vertex.facts.name}
        if isinstance(found, int):
            names = ("start-delay", "alignment", "sync", "async", "end", "state-bytes")
            more = ("written-bytes", "in-flight-bytes", "processed-bytes", "unaligned")
            unknown = dict.fromkeys((*names, *more))
            return {**place, "subtask": found, "missing": True, "after": self._lasted_ms, **unknown}
        metrics = found.metrics
        return {
            **place,
            "subtask": found.subtask,
            "missing": False,
            "after": max(0, found.ack_ms - self._checkpoint.triggered_ms),
            "start-delay": round(metrics.start_delay_ms),
            "alignment": round(metrics.alignment_ms),
            "sync": round(metrics.sync_ms),
            "async": round(metrics.async_ms),
            "end": found.ack_ms,
            "state-bytes": found.state_bytes,
            "written-bytes": metrics.written_bytes,
            "in-flight-bytes": metrics.bytes_in_flight,
            "processed-bytes": metrics.processed_bytes,
            "unaligned": self._checkpoint.is_unaligned or metrics.bytes_in_flight > 0,
        }
