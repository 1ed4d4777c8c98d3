"""The checkpoints of a job, from the events of their lives.

Source: Flink CheckpointStatsTracker, CheckpointStatsHistory, CompletedCheckpointStatsSummary.

The statistics of a job's checkpoints, as its program and its metrics have them.

Source: Flink CheckpointStatsSnapshot; differs: one summary for each checkpoint, without its tasks.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.metrics.registry import quantile
from penstock.engine.model.checkpoints import (
    CheckpointStatistics,
    CheckpointSummary,
    RestoredCheckpoint,
)
from penstock.engine.model.ids import VertexId
from penstock.engine.model.job_events import CheckpointRestored
from penstock.engine.model.messages import AcknowledgeCheckpoint, CheckpointEnded, TriggerCheckpoint
from penstock.ops.jobs.snapshots import (
    CheckpointBrief,
    CheckpointSnapshot,
    CheckpointsSnapshot,
    Figures,
    SubtaskCheckpoint,
)

_REMEMBERED_FIGURES: Final = 10_000
MOST_BRIEFS: Final = 60
MOST_FAILED: Final = 20
"""How many failed checkpoints are kept in addition, when others have taken their place."""
_QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
END_TO_END: Final = "end_to_end_duration"
_NONE: Final[Mapping[VertexId, frozenset[int]]] = {}
FIGURES: Final = (
    "checkpointed_size",
    "state_size",
    END_TO_END,
    "alignment_buffered",
    "processed_data",
    "persisted_data",
)
"""The figures of a completed checkpoint that are summed up, by Flink's names."""


def figures_of(checkpoint: CheckpointSnapshot, vertex_id: VertexId | None = None) -> dict[str, int]:
    """Return the figures of a checkpoint, or of one vertex in it, by Flink's names, of what has been acknowledged so far."""
    acks = checkpoint.every_ack if vertex_id is None else checkpoint.acks.get(vertex_id, ())
    ended_ms = max((ack.ack_ms for ack in acks), default=-1)
    if checkpoint.is_failed and vertex_id is None:
        ended_ms = checkpoint.ended_ms
    return {
        "checkpointed_size": sum(ack.metrics.written_bytes for ack in acks),
        "state_size": sum(ack.state_bytes for ack in acks),
        END_TO_END: -1 if ended_ms < 0 else max(0, ended_ms - checkpoint.triggered_ms),
        "alignment_buffered": 0,  # Flink reports 0 since alignment holds back whole channels.
        "processed_data": sum(ack.metrics.processed_bytes for ack in acks),
        "persisted_data": sum(ack.metrics.bytes_in_flight for ack in acks),
    }


def brief_of(checkpoint: CheckpointSnapshot, now_ms: int) -> CheckpointBrief:
    """Return what stays known of a checkpoint; of one that is in progress as it is now."""
    figures = figures_of(checkpoint)
    acknowledged = sum(map(len, checkpoint.acks.values()))
    missing = None if checkpoint.is_completed else first_missing(checkpoint)
    until_ms = now_ms if checkpoint.ended_ms < 0 else checkpoint.ended_ms
    straggler, at_ms = (missing, until_ms) if missing is not None else _last_ack(checkpoint)
    return CheckpointBrief(
        checkpoint.checkpoint_id,
        checkpoint.checkpoint_type,
        checkpoint.is_unaligned,
        checkpoint.triggered_ms,
        checkpoint.ended_ms,
        checkpoint.failure,
        figures["state_size"],
        figures["checkpointed_size"],
        sum(checkpoint.subtasks.values()),
        acknowledged,
        straggler,
        -1 if straggler is None else max(0, at_ms - checkpoint.triggered_ms),
        missing is not None,
        checkpoint.is_given_up,
    )


def first_missing(checkpoint: CheckpointSnapshot) -> tuple[VertexId, int] | None:
    """Return the first subtask from the sources on that has not acknowledged: those downstream wait for its barrier."""
    for vertex_id in checkpoint.subtasks:
        for subtask in missing_of(checkpoint, vertex_id):
            return vertex_id, subtask
    return None


def missing_of(checkpoint: CheckpointSnapshot, vertex_id: VertexId) -> Iterator[int]:
    """Yield the subtasks of a vertex that have not acknowledged."""
    acks = checkpoint.acks.get(vertex_id, ())
    ended = checkpoint.ended_subtasks.get(vertex_id, frozenset())
    expected = checkpoint.subtasks.get(vertex_id, 0)
    if len(acks) < expected:
        known = ended.union(ack.subtask for ack in acks)
        yield from (one for one in range(expected + len(ended)) if one not in known)


def _last_ack(checkpoint: CheckpointSnapshot) -> tuple[tuple[VertexId, int] | None, int]:
    """The first from the sources on, if several came last."""
    acks = [
        (ack, vertex_id)
        for vertex_id in checkpoint.subtasks
        for ack in sorted(checkpoint.acks.get(vertex_id, ()), key=lambda ack: ack.subtask)
    ]
    if not acks:
        return None, -1
    last, vertex_id = max(acks, key=lambda one: one[0].ack_ms)
    return (vertex_id, last.subtask), last.ack_ms


@dataclass(slots=True)
class _Distribution:
    """One figure of all completed checkpoints."""

    count: int = 0
    total: int = 0
    minimum: int = 0
    maximum: int = 0
    newest: array[int] = field(default_factory=lambda: array("q"))

    def add(self, value: int) -> None:
        if value < 0:
            return
        self.minimum = value if not self.count else min(self.minimum, value)
        self.maximum = max(self.maximum, value)
        self.count += 1
        self.total += value
        if len(self.newest) == _REMEMBERED_FIGURES:
            del self.newest[0]
        self.newest.append(value)

    def figures(self) -> Figures:
        if not self.count:
            return Figures()
        ordered = sorted(self.newest)
        percentiles = tuple(quantile(ordered, q) for q in _QUANTILES)
        return Figures(self.minimum, self.maximum, self.total // self.count, percentiles)


class CheckpointRecord:
    """All checkpoints of one job. `history_size`: how many are kept besides the latest of each kind."""

    def __init__(self, history_size: int) -> None:
        self._size = max(0, history_size)
        self._pending: dict[int, CheckpointSnapshot] = {}
        self._acks: dict[int, dict[VertexId, dict[int, SubtaskCheckpoint]]] = {}
        self._ended: deque[CheckpointSnapshot] = deque(maxlen=max(1, self._size))
        self._briefs: deque[CheckpointBrief] = deque(maxlen=MOST_BRIEFS)
        self._failed: deque[CheckpointBrief] = deque(maxlen=MOST_FAILED)
        self._figures = {name: _Distribution() for name in FIGURES}
        self._now = CheckpointsSnapshot()
        self._is_stale = False

    def triggered(
        self,
        event: TriggerCheckpoint,
        at_ms: int,
        subtasks: Mapping[VertexId, int],
        ended: Mapping[VertexId, frozenset[int]] = _NONE,
    ) -> None:
        """`subtasks`: how many are running, by vertex. `ended`: those that are not."""
        self._pending[event.checkpoint_id] = CheckpointSnapshot(
            event.checkpoint_id,
            event.options.type,
            event.options.is_unaligned,
            at_ms,
            subtasks,
            ended_subtasks={key: ones for key, ones in ended.items() if ones},
        )
        self._acks[event.checkpoint_id] = {}
        self._is_stale = True

    def acknowledged(self, event: AcknowledgeCheckpoint, at_ms: int) -> None:
        acks = self._acks.get(event.checkpoint_id)
        if acks is None:
            return
        attempt = event.attempt_id
        ack = SubtaskCheckpoint(attempt.subtask, at_ms, event.state.size_bytes, event.metrics)
        acks.setdefault(attempt.vertex_id, {}).setdefault(attempt.subtask, ack)
        self._is_stale = True

    def ended(self, event: CheckpointEnded, at_ms: int) -> None:
        """A checkpoint that was refused before it began counts as failed, and leaves no entry."""
        pending = self._pending.pop(event.checkpoint_id, None)
        acks = self._acks.pop(event.checkpoint_id, {})
        self._is_stale = True
        is_completed = event.location is not None
        now = self._now = replace(
            self._now,
            completed=self._now.completed + is_completed,
            failed=self._now.failed + (not is_completed),
            given_up=self._now.given_up + event.is_given_up,
        )
        if pending is None:
            return
        failure = None if is_completed else f"{event.reason}: {event.text}"
        ended = replace(
            _with_acks(pending, acks),
            ended_ms=at_ms,
            location=event.location,
            failure=failure,
            metadata_bytes=event.metadata_bytes,
            is_given_up=event.is_given_up,
        )
        self._ended.append(ended)
        self._remember(brief_of(ended, at_ms))
        if not is_completed:
            self._now = replace(now, latest_failed=ended)
            return
        for name, value in figures_of(ended).items():
            self._figures[name].add(value)
        now = replace(now, figures={name: one.figures() for name, one in self._figures.items()})
        if event.checkpoint_type.is_savepoint:
            self._now = replace(now, latest_savepoint=ended)
        else:
            self._now = replace(now, latest_completed=ended)

    def _remember(self, brief: CheckpointBrief) -> None:
        """Keep the newest ones, and of the others those that failed."""
        oldest = self._briefs[0] if len(self._briefs) == MOST_BRIEFS else None
        if oldest is not None and oldest.failure is not None and not oldest.is_given_up:
            self._failed.append(oldest)
        self._briefs.append(brief)

    def restored(self, event: CheckpointRestored, at_ms: int) -> None:
        self._now = replace(
            self._now,
            restored=self._now.restored + 1,
            latest_restored=RestoredCheckpoint(
                event.checkpoint_id, at_ms, event.location, event.is_savepoint
            ),
        )
        self._is_stale = True

    def snapshot(self) -> CheckpointsSnapshot:
        if self._is_stale:
            self._is_stale = False
            pending = [_with_acks(one, self._acks[key]) for key, one in self._pending.items()]
            kept = sorted((*self._ended, *pending), key=lambda one: -one.checkpoint_id)
            history = tuple(kept[: self._size])
            briefs = tuple(reversed((*self._failed, *self._briefs)))
            self._now = replace(self._now, in_progress=len(pending), history=history, briefs=briefs)
        return self._now


def _with_acks(
    checkpoint: CheckpointSnapshot, acks: Mapping[VertexId, Mapping[int, SubtaskCheckpoint]]
) -> CheckpointSnapshot:
    ordered = {
        vertex_id: tuple(of_vertex[subtask] for subtask in sorted(of_vertex))
        for vertex_id, of_vertex in acks.items()
    }
    return replace(checkpoint, acks=ordered)


def statistics_of(known: CheckpointsSnapshot) -> CheckpointStatistics:
    """Return the statistics. Their history has the checkpoints that have ended, oldest first."""
    ended = (one for one in reversed(known.history) if one.is_completed or one.is_failed)
    return CheckpointStatistics(
        in_progress=known.in_progress,
        completed=known.completed,
        failed=known.failed,
        restored=known.restored,
        latest_completed=_optional(known.latest_completed),
        latest_savepoint=_optional(known.latest_savepoint),
        latest_failed=_optional(known.latest_failed),
        latest_restored=known.latest_restored,
        history=tuple(_summary(one) for one in ended),
    )


def _optional(checkpoint: CheckpointSnapshot | None) -> CheckpointSummary | None:
    return None if checkpoint is None else _summary(checkpoint)


def _summary(checkpoint: CheckpointSnapshot) -> CheckpointSummary:
    figures = figures_of(checkpoint)
    measured = [ack.metrics for ack in checkpoint.every_ack]
    return CheckpointSummary(
        checkpoint_id=checkpoint.checkpoint_id,
        checkpoint_type=checkpoint.checkpoint_type,
        triggered_at_ms=checkpoint.triggered_ms,
        duration_ms=max(0, figures[END_TO_END]),
        size_bytes=figures["state_size"],
        alignment_ms=max((one.alignment_ms for one in measured), default=0.0),
        sync_ms=max((one.sync_ms for one in measured), default=0.0),
        async_ms=max((one.async_ms for one in measured), default=0.0),
        location=checkpoint.location,
        failure=checkpoint.failure,
        written_bytes=figures["checkpointed_size"],
    )
