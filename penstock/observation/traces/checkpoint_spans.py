"""The span of a checkpoint that has ended, with as much detail as is asked for.

Source: Flink CheckpointStatsTracker, TraceOptions.CheckpointSpanDetailLevel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from penstock.model.checkpoints import CheckpointType
from penstock.model.ids import VertexId
from penstock.observation.jobs.checkpoint_record import figures_of
from penstock.observation.jobs.snapshots import CheckpointSnapshot, SpanDetail, SubtaskCheckpoint
from penstock.observation.traces.spans import AttributeValue, Span

SCOPE: Final = "org.apache.flink.runtime.checkpoint.CheckpointStatsTracker"
_ONLY_MAX: Final = ("StateSizeBytes", "CheckpointedSizeBytes")
"""Their sums have names of their own: fullSize and checkpointedSize."""
_FIGURES: Final[Mapping[str, Callable[[SubtaskCheckpoint], float]]] = {
    "StateSizeBytes": lambda ack: ack.state_bytes,
    "CheckpointedSizeBytes": lambda ack: ack.metrics.written_bytes,
    "CheckpointStartDelayMs": lambda ack: ack.metrics.start_delay_ms,
    "AlignmentDurationMs": lambda ack: ack.metrics.alignment_ms,
    "SyncCheckpointDurationMs": lambda ack: ack.metrics.sync_ms,
    "AsyncCheckpointDurationMs": lambda ack: ack.metrics.async_ms,
    "ProcessedDataBytes": lambda ack: ack.metrics.processed_bytes,
    "PersistedDataBytes": lambda ack: ack.metrics.bytes_in_flight,
}
_TYPES: Final = {
    CheckpointType.CHECKPOINT: "Checkpoint",
    CheckpointType.SAVEPOINT: "Savepoint",
    CheckpointType.STOP_DRAIN: "Terminate Savepoint",
    CheckpointType.STOP_SUSPEND: "Suspend Savepoint",
}
"""Flink's names."""


def checkpoint_attributes(checkpoint: CheckpointSnapshot) -> dict[str, AttributeValue]:
    """What spans and events tell of a checkpoint."""
    figures = figures_of(checkpoint)
    return {
        "checkpointId": checkpoint.checkpoint_id,
        "fullSize": figures["state_size"],
        "checkpointedSize": figures["checkpointed_size"],
        "metadataSize": checkpoint.metadata_bytes,
        "checkpointStatus": "COMPLETED" if checkpoint.is_completed else "FAILED",
        "isUnaligned": str(checkpoint.is_unaligned).lower(),
        "checkpointType": _TYPES[checkpoint.checkpoint_type],
    }


def checkpoint_span(checkpoint: CheckpointSnapshot, detail: SpanDetail) -> Span:
    """Return the span, from the trigger to the last acknowledgement; without any, to the end."""
    acks = [ack for of_vertex in checkpoint.acks.values() for ack in of_vertex]
    attributes = checkpoint_attributes(checkpoint) | dict(_totals(acks))
    if detail is SpanDetail.SPAN_PER_CHECKPOINT_WITH_TASKS:
        attributes |= dict(_by_vertex(checkpoint))
    has_children = detail in {
        SpanDetail.CHILDREN_SPANS_PER_TASK,
        SpanDetail.CHILDREN_SPANS_PER_SUBTASK,
    }
    children = _children(checkpoint, detail) if has_children else ()
    end_ms = max((ack.ack_ms for ack in acks), default=checkpoint.ended_ms)
    begin_ms = checkpoint.triggered_ms
    return Span(SCOPE, "Checkpoint", begin_ms, end_ms, attributes, tuple(children))


def _totals(acks: Sequence[SubtaskCheckpoint]) -> Iterator[tuple[str, int]]:
    for name, figure in _FIGURES.items():
        values = [round(figure(ack)) for ack in acks]
        yield f"max{name}", max(values, default=0)
        if name not in _ONLY_MAX:
            yield f"sum{name}", sum(values)


def _by_vertex(checkpoint: CheckpointSnapshot) -> Iterator[tuple[str, str]]:
    for name, figure in _FIGURES.items():
        values = [[round(figure(ack)) for ack in acks] for acks in checkpoint.acks.values()]
        yield f"perTaskMax{name}", str([max(of_vertex) for of_vertex in values])
        yield f"perTaskSum{name}", str([sum(of_vertex) for of_vertex in values])


def _children(checkpoint: CheckpointSnapshot, detail: SpanDetail) -> Iterator[Span]:
    for vertex_id, acks in checkpoint.acks.items():
        subtasks = tuple(_subtask(checkpoint, vertex_id, ack) for ack in acks)
        attributes: dict[str, AttributeValue] = {
            "checkpointId": checkpoint.checkpoint_id,
            "jobVertexId": str(vertex_id),
        }
        for name, figure in _FIGURES.items():
            values = [round(figure(ack)) for ack in acks]
            attributes |= {f"max{name}": max(values), f"sum{name}": sum(values)}
        yield Span(
            SCOPE,
            "Checkpoint_Task",
            min(one.start_ms for one in subtasks),
            max(one.end_ms for one in subtasks),
            attributes,
            subtasks if detail is SpanDetail.CHILDREN_SPANS_PER_SUBTASK else (),
        )


def _subtask(checkpoint: CheckpointSnapshot, vertex_id: VertexId, ack: SubtaskCheckpoint) -> Span:
    attributes: dict[str, AttributeValue] = {
        "checkpointId": checkpoint.checkpoint_id,
        "jobVertexId": str(vertex_id),
        "subtaskId": ack.subtask,
    }
    attributes |= {name: round(figure(ack)) for name, figure in _FIGURES.items()}
    begin_ms = checkpoint.triggered_ms + round(ack.metrics.start_delay_ms)
    return Span(SCOPE, "Checkpoint_Subtask", begin_ms, ack.ack_ms, attributes)
