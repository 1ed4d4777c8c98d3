"""Answers about the checkpoints of a job.

Source: Flink CheckpointingStatisticsHandler, CheckpointStatisticDetailsHandler, TaskCheckpointStatisticDetailsHandler, CheckpointConfigHandler.

Where the time of checkpoints goes: a strip of the last ones, and one of them subtask by subtask. Flink has no such paths.

Durations are ms, sizes bytes. What is not known is None.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from penstock.engine.model.checkpoints import METADATA, CheckpointType
from penstock.engine.model.ids import VertexId
from penstock.engine.model.texts.redaction import without_credentials
from penstock.ops.jobs.checkpoint_record import (
    END_TO_END,
    FIGURES,
    MOST_BRIEFS,
    brief_of,
    figures_of,
    missing_of,
)
from penstock.ops.jobs.snapshots import (
    CheckpointBrief,
    CheckpointSnapshot,
    Figures,
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


_PERCENTILES: Final = ("p50", "p90", "p95", "p99", "p999")
_NOT_KNOWN: Final = -1
NO_VALUE: Final = "NaN"
"""How Flink writes a percentile without values."""
_NEVER_MS: Final = 2**63 - 1


def overview(job: JobSnapshot) -> Json:
    """`/jobs/:jobid/checkpoints`."""
    all_of_them = job.checkpoints
    restored = all_of_them.latest_restored
    return {
        "counts": {
            "restored": all_of_them.restored,
            "total": all_of_them.completed + all_of_them.failed + all_of_them.in_progress,
            "in_progress": all_of_them.in_progress,
            "completed": all_of_them.completed,
            "failed": all_of_them.failed,
        },
        "summary": {name: summary_of(all_of_them.figures.get(name, Figures())) for name in FIGURES},
        "latest": {
            "completed": _optional(all_of_them.latest_completed),
            "savepoint": _optional(all_of_them.latest_savepoint),
            "failed": _optional(all_of_them.latest_failed),
            "restored": None
            if restored is None
            else {
                "id": restored.checkpoint_id,
                "restore_timestamp": restored.restored_at_ms,
                "is_savepoint": restored.is_savepoint,
                "external_path": folder_of(restored.location),
            },
        },
        "history": [statistics(one) for one in all_of_them.history],
    }


def _optional(checkpoint: CheckpointSnapshot | None) -> Json | None:
    return None if checkpoint is None else statistics(checkpoint)


def statistics(checkpoint: CheckpointSnapshot, *, has_tasks: bool = False) -> Json:
    """One checkpoint. `has_tasks`: with a part for each vertex, as its own page has it."""
    kind = "completed" if checkpoint.is_completed else "in_progress"
    kind = "failed" if checkpoint.is_failed else kind
    acks = [ack for acks in checkpoint.acks.values() for ack in acks]
    told: Json = {
        "className": kind,
        "id": checkpoint.checkpoint_id,
        "status": kind.upper(),
        "is_savepoint": checkpoint.checkpoint_type.is_savepoint,
        "savepointFormat": "CANONICAL" if checkpoint.checkpoint_type.is_savepoint else None,
        "trigger_timestamp": checkpoint.triggered_ms,
        "latest_ack_timestamp": max((ack.ack_ms for ack in acks), default=_NOT_KNOWN),
        **figures_of(checkpoint),
        "num_subtasks": sum(checkpoint.subtasks.values()),
        "num_acknowledged_subtasks": len(acks),
        "checkpoint_type": _type_of(checkpoint),
        "tasks": {},
    }
    if has_tasks:
        told["tasks"] = {
            vertex_id: _of_vertex(checkpoint, vertex_id) for vertex_id in checkpoint.subtasks
        }
    if checkpoint.is_completed:
        told |= {
            "external_path": folder_of(checkpoint.location),
            "discarded": checkpoint.is_discarded,
        }
    elif checkpoint.is_failed:
        told |= {
            "failure_timestamp": checkpoint.ended_ms,
            "failure_message": checkpoint.failure,
        }
    return told


def _type_of(checkpoint: CheckpointSnapshot) -> str:
    if checkpoint.checkpoint_type is CheckpointType.CHECKPOINT:
        return "UNALIGNED_CHECKPOINT" if checkpoint.is_unaligned else "CHECKPOINT"
    return "SYNC_SAVEPOINT" if checkpoint.checkpoint_type.is_synchronous else "SAVEPOINT"


def _of_vertex(checkpoint: CheckpointSnapshot, vertex_id: VertexId) -> Json:
    acks = checkpoint.acks.get(vertex_id, ())
    total = checkpoint.subtasks.get(vertex_id, 0)
    latest = max((ack.ack_ms for ack in acks), default=_NOT_KNOWN)
    is_done = len(acks) == total
    running = "FAILED" if checkpoint.is_failed else "IN_PROGRESS"
    return {
        "id": checkpoint.checkpoint_id,
        "status": "COMPLETED" if is_done else running,
        "latest_ack_timestamp": latest,
        "checkpointed_size": sum(ack.metrics.written_bytes for ack in acks),
        "state_size": sum(ack.state_bytes for ack in acks),
        END_TO_END: _NOT_KNOWN if latest < 0 else max(0, latest - checkpoint.triggered_ms),
        "alignment_buffered": 0,
        "processed_data": sum(ack.metrics.processed_bytes for ack in acks),
        "persisted_data": sum(ack.metrics.bytes_in_flight for ack in acks),
        "num_subtasks": total,
        "num_acknowledged_subtasks": len(acks),
    }


def subtasks(checkpoint: CheckpointSnapshot, vertex_id: VertexId) -> Json:
    """`/jobs/:jobid/checkpoints/details/:checkpointid/subtasks/:vertexid`."""
    acks = {ack.subtask: ack for ack in checkpoint.acks.get(vertex_id, ())}
    total = max(checkpoint.subtasks.get(vertex_id, 0), max(acks, default=-1) + 1)
    return {
        **_of_vertex(checkpoint, vertex_id),
        "summary": _summary(checkpoint, list(acks.values())),
        "subtasks": [
            _pending(index) if (ack := acks.get(index)) is None else _acknowledged(checkpoint, ack)
            for index in range(total)
        ],
    }


def _pending(index: int) -> Json:
    return {"className": "pending", "index": index, "status": "pending_or_failed"}


def _acknowledged(checkpoint: CheckpointSnapshot, ack: SubtaskCheckpoint) -> Json:
    metrics = ack.metrics
    return {
        "className": "completed",
        "index": ack.subtask,
        "status": "completed",
        "ack_timestamp": ack.ack_ms,
        END_TO_END: max(0, ack.ack_ms - checkpoint.triggered_ms),
        "checkpointed_size": metrics.written_bytes,
        "state_size": ack.state_bytes,
        "checkpoint": {"sync": round(metrics.sync_ms), "async": round(metrics.async_ms)},
        "alignment": {
            "buffered": 0,
            "processed": metrics.processed_bytes,
            "persisted": metrics.bytes_in_flight,
            "duration": round(metrics.alignment_ms),
        },
        "start_delay": round(metrics.start_delay_ms),
        "unaligned_checkpoint": checkpoint.is_unaligned,
        "aborted": False,
    }


def _summary(checkpoint: CheckpointSnapshot, acks: Sequence[SubtaskCheckpoint]) -> Json:
    def of(values: Sequence[float]) -> Json:
        return summary_of(_plain(values))

    return {
        "checkpointed_size": of([ack.metrics.written_bytes for ack in acks]),
        "state_size": of([ack.state_bytes for ack in acks]),
        END_TO_END: of([ack.ack_ms - checkpoint.triggered_ms for ack in acks]),
        "checkpoint_duration": {
            "sync": of([ack.metrics.sync_ms for ack in acks]),
            "async": of([ack.metrics.async_ms for ack in acks]),
        },
        "alignment": {
            "buffered": {**of([]), **dict.fromkeys(_PERCENTILES, 0.0)},
            "processed": of([ack.metrics.processed_bytes for ack in acks]),
            "persisted": of([ack.metrics.bytes_in_flight for ack in acks]),
            "duration": of([ack.metrics.alignment_ms for ack in acks]),
        },
        "start_delay": of([ack.metrics.start_delay_ms for ack in acks]),
    }


def _plain(values: Sequence[float]) -> Figures:
    """Return minimum, maximum and average; Flink gives no percentiles over subtasks."""
    whole = [round(value) for value in values]
    if not whole:
        return Figures()
    return Figures(min(whole), max(whole), sum(whole) // len(whole))


def folder_of(location: str | None) -> str | None:
    """Return the folder of a checkpoint, which is what its job or another one is started from."""
    return None if location is None else location.removesuffix(f"/{METADATA}")


def summary_of(figures: Figures) -> Json:
    """Return a distribution in Flink's form."""
    percentiles: Sequence[Any] = figures.percentiles or [NO_VALUE] * len(_PERCENTILES)
    return {
        "min": figures.minimum,
        "max": figures.maximum,
        "avg": figures.average,
        **dict(zip(_PERCENTILES, percentiles, strict=True)),
    }


def not_enabled(job: JobSnapshot) -> str:
    """Why a job that takes no checkpoints at all tells nothing of them."""
    return f"Checkpointing is not enabled for this job ({job.job_id})."


def config(job: JobSnapshot) -> Json | None:
    """`/jobs/:jobid/checkpoints/config`; None: the job takes no checkpoints at all."""
    facts = job.facts.checkpoints
    if facts is None:
        return None
    return {
        "mode": facts.mode,
        "interval": _NEVER_MS if facts.interval_ms is None else facts.interval_ms,
        "timeout": facts.timeout_ms,
        "min_pause": facts.min_pause_ms,
        "max_concurrent": facts.max_concurrent,
        "externalization": {
            "enabled": facts.is_retained,
            "delete_on_cancellation": facts.is_deleted_on_cancellation,
        },
        "state_backend": facts.state_backend,
        "checkpoint_storage": facts.storage,
        "unaligned_checkpoints": facts.is_unaligned,
        "tolerable_failed_checkpoints": facts.tolerable_failures,
        "aligned_checkpoint_timeout": facts.aligned_timeout_ms,
        "checkpoints_after_tasks_finish": facts.is_after_tasks_finish,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "",
    }
