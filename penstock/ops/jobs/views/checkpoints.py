"""Answers about the checkpoints of a job.

Source: Flink CheckpointingStatisticsHandler, CheckpointStatisticDetailsHandler, TaskCheckpointStatisticDetailsHandler, CheckpointConfigHandler.

Where the time of checkpoints goes: a strip of the last ones, and one of them subtask by subtask. Flink has no such paths.

Durations are ms, sizes bytes. What is not known is None.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from penstock.engine.model.checkpoints import METADATA, CheckpointType
from penstock.engine.model.ids import VertexId
from penstock.engine.model.options.checkpoints import Retention
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
from penstock.ops.jobs.views.attempts import Json, place_of
from penstock.ops.jobs.views.rows import Steps

MOST_ROWS: Final = 200
_OF_ACK: Final = (
    "start-delay", "alignment", "sync", "async", "end", "state-bytes", "written-bytes",
    "in-flight-bytes", "processed-bytes", "unaligned",
)  # fmt: skip
"""What is known of a subtask that has acknowledged."""
_Part: TypeAlias = "tuple[tuple[bool, int], VertexSnapshot, SubtaskCheckpoint | int]"
"""Whether a subtask is missing and how long it took; the vertex; and the acknowledgement or the missing subtask."""


def strip(job: JobSnapshot) -> Json:
    """`/jobs/:jobid/checkpoints/strip`: newest first. Of those beyond the last 60 only failed ones are shown."""
    known = job.checkpoints
    pending = [
        brief_of(one, job.now_ms)
        for one in known.history
        if not one.is_completed and not one.is_failed
    ]
    ones = [*pending, *known.briefs]
    return {
        "now": job.now_ms,
        "interval": job.facts.checkpoint_interval_ms,
        "total": known.completed + known.failed + known.in_progress,
        "completed": known.completed,
        "failed": known.failed - known.given_up,
        "given-up": known.given_up,
        "in-progress": known.in_progress,
        "shown": len(ones),
        "kept": MOST_BRIEFS,
        "checkpoints": [_brief(job, one) for one in ones],
    }


def _brief(job: JobSnapshot, one: CheckpointBrief) -> Json:
    return {
        **_head(job, one),
        "state-bytes": one.state_bytes,
        "written-bytes": one.written_bytes,
        "subtasks": one.subtasks,
        "acknowledged": one.acknowledged,
        "straggler": _straggler(job, one),
        "has-details": job.checkpoints.of(one.checkpoint_id) is not None,
    }


def _head(job: JobSnapshot, one: CheckpointBrief | CheckpointSnapshot) -> Json:
    has_ended = one.ended_ms >= 0
    state = "COMPLETED" if has_ended else "IN_PROGRESS"
    failed = "GIVEN_UP" if one.is_given_up else "FAILED"
    until_ms = one.ended_ms if has_ended else job.now_ms
    return {
        "id": one.checkpoint_id,
        "kind": "savepoint" if one.checkpoint_type.is_savepoint else "checkpoint",
        "unaligned": one.is_unaligned,
        "state": state if one.failure is None else failed,
        "triggered": one.triggered_ms,
        "ended": one.ended_ms if has_ended else None,
        "duration": max(0, until_ms - one.triggered_ms),
        "failure": None if one.failure is None else without_credentials(one.failure),
    }


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


def gantt(
    job: JobSnapshot, checkpoint: CheckpointSnapshot, vertices: Iterable[VertexSnapshot]
) -> Steps[Json]:
    """`/jobs/:jobid/checkpoints/details/:checkpointid/gantt`: subtasks that are missing first, then those that took longest."""
    head = _head(job, checkpoint)
    total = missing_total = 0
    worst: list[_Part] = []
    for vertex in vertices:
        acks = checkpoint.acks.get(vertex.facts.vertex_id, ())
        missing = list(missing_of(checkpoint, vertex.facts.vertex_id))
        found: list[_Part] = [((True, head["duration"]), vertex, one) for one in missing]
        found += [
            ((False, ack.ack_ms - checkpoint.triggered_ms), vertex, ack)
            for ack in sorted(acks, key=lambda ack: ack.subtask)
        ]
        total += len(found)
        missing_total += len(missing)
        # Of equal ones the first stays the first: they are added from the sources on.
        worst = heapq.nlargest(MOST_ROWS, [*worst, *found], key=lambda one: one[0])
        yield
    answer = {
        "now": job.now_ms,
        **head,
        "total": total,
        "missing": missing_total,
        "shown": len(worst),
        "subtasks": [_part(checkpoint, *one) for one in worst],
    }
    return answer  # ruff: ignore[return-in-generator]


def _part(
    checkpoint: CheckpointSnapshot,
    rank: tuple[bool, int],
    vertex: VertexSnapshot,
    found: SubtaskCheckpoint | int,
) -> Json:
    is_missing, after_ms = rank
    ack = None if isinstance(found, int) else found
    head = {
        **place_of(vertex, found if isinstance(found, int) else found.subtask),
        "missing": is_missing,
        "after": max(0, after_ms),
    }
    if ack is None:
        return {**head, **dict.fromkeys(_OF_ACK)}
    metrics = ack.metrics
    values = (
        round(metrics.start_delay_ms),
        round(metrics.alignment_ms),
        round(metrics.sync_ms),
        round(metrics.async_ms),
        ack.ack_ms,
        ack.state_bytes,
        metrics.written_bytes,
        metrics.bytes_in_flight,
        metrics.processed_bytes,
        checkpoint.is_unaligned or metrics.bytes_in_flight > 0,
    )
    return {**head, **dict(zip(_OF_ACK, values, strict=True))}


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
    acks = checkpoint.every_ack
    answer: Json = {
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
        answer["tasks"] = {
            vertex_id: _of_vertex(checkpoint, vertex_id) for vertex_id in checkpoint.subtasks
        }
    if checkpoint.is_completed:
        answer |= {
            "external_path": folder_of(checkpoint.location),
            "discarded": checkpoint.is_discarded,
        }
    elif checkpoint.is_failed:
        answer |= {
            "failure_timestamp": checkpoint.ended_ms,
            "failure_message": checkpoint.failure,
        }
    return answer


def _type_of(checkpoint: CheckpointSnapshot) -> str:
    if checkpoint.checkpoint_type is CheckpointType.CHECKPOINT:
        return "UNALIGNED_CHECKPOINT" if checkpoint.is_unaligned else "CHECKPOINT"
    return "SYNC_SAVEPOINT" if checkpoint.checkpoint_type.is_synchronous else "SAVEPOINT"


def _of_vertex(checkpoint: CheckpointSnapshot, vertex_id: VertexId) -> Json:
    acks = checkpoint.acks.get(vertex_id, ())
    total = checkpoint.subtasks.get(vertex_id, 0)
    is_done = len(acks) == total
    running = "FAILED" if checkpoint.is_failed else "IN_PROGRESS"
    return {
        "id": checkpoint.checkpoint_id,
        "status": "COMPLETED" if is_done else running,
        "latest_ack_timestamp": max((ack.ack_ms for ack in acks), default=_NOT_KNOWN),
        **figures_of(checkpoint, vertex_id),
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
        """Flink gives no percentiles over subtasks."""
        return summary_of(Figures.of(sorted(map(round, values))))

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
    """Return why a job that takes no checkpoints has nothing to show of them."""
    return f"Checkpointing is not enabled for this job ({job.job_id})."


def config(job: JobSnapshot) -> Json | None:
    """`/jobs/:jobid/checkpoints/config`; None: the job takes no checkpoints at all."""
    facts = job.facts.checkpoints
    if facts is None:
        return None
    known = facts.settings
    return {
        "mode": "exactly_once" if known.is_exactly_once else "at_least_once",
        "interval": _NEVER_MS if known.interval_ms is None else known.interval_ms,
        "timeout": known.timeout_ms,
        "min_pause": known.min_pause_ms,
        "max_concurrent": known.max_concurrent,
        "externalization": {
            "enabled": known.retention is not Retention.NO_EXTERNALIZED_CHECKPOINTS,
            "delete_on_cancellation": known.retention is not Retention.RETAIN_ON_CANCELLATION,
        },
        "state_backend": facts.state_backend,
        "checkpoint_storage": facts.storage,
        "unaligned_checkpoints": known.is_unaligned,
        "tolerable_failed_checkpoints": known.tolerable_failures,
        "aligned_checkpoint_timeout": known.aligned_timeout_ms or 0,
        "checkpoints_after_tasks_finish": known.are_finished_tasks_allowed,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "",
    }
