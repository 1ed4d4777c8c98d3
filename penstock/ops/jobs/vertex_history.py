"""What the history keeps of a job, made of its snapshots: figures of its vertices once a second, and how each subtask spends its time
every 2 s.

Knows no clock and no thread. It lets its caller do something else after each few subtasks. Rates and shares of time are those that
subtasks report, which are of the last 5 s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages import TaskIo
from penstock.ops.jobs.diagnosis.shares import live
from penstock.ops.jobs.diagnosis.watermarks import lag_of
from penstock.ops.jobs.snapshots import CheckpointSnapshot, JobSnapshot, VertexSnapshot
from penstock.ops.metrics.history_rings import (
    FINE,
    STEP_MS,
    UNKNOWN,
    Row,
    SubtaskLanes,
    VertexHistory,
)

_SUBTASKS_AT_A_TIME: Final = 500


class JobLanes:
    """The states of one job's subtasks over time. `vertices`: by id; those for which there was no room have no lanes."""

    def __init__(self, has_room: Callable[[int], bool]) -> None:
        """`has_room`: whether this number of further subtasks can be kept."""
        self.vertices: dict[VertexId, SubtaskLanes] = {}
        self._has_room = has_room
        self._subtasks: dict[VertexId, int] = {}
        self._slot = -1

    @property
    def subtasks(self) -> int:
        """How many subtasks are kept."""
        return sum(self._subtasks.values())

    @property
    def bytes_held(self) -> int:
        """What all steps take."""
        return sum(one.bytes_held for one in self.vertices.values())

    def look(self, job: JobSnapshot) -> Iterator[None]:
        """Look at the job as it is now; more often than every 2 s changes nothing. Read it to the end."""
        slot = job.now_ms // STEP_MS
        if slot == self._slot or job.status.is_terminal:
            return
        self._slot = slot
        work = 0
        for vertex in job.vertices:
            vertex_id = vertex.facts.vertex_id
            count = len(vertex.attempts)
            more = count - self._subtasks.get(vertex_id, 0)
            if more and not self._has_room(more):
                self.vertices.pop(vertex_id, None)
                self._subtasks.pop(vertex_id, None)
                continue
            lanes = self.vertices.setdefault(vertex_id, SubtaskLanes())
            self._subtasks[vertex_id] = count
            busy, blocked = bytearray([UNKNOWN]) * count, bytearray([UNKNOWN]) * count
            for attempt, io in live(vertex):
                busy[attempt.subtask] = _percent(io.recent.busy_ms_per_s)
                blocked[attempt.subtask] = _percent(io.recent.backpressured_ms_per_s)
                work += 1
                if work >= _SUBTASKS_AT_A_TIME:
                    work = 0
                    yield
            lanes.put(job.now_ms, bytes(busy), bytes(blocked))


def _percent(ms_per_s: float) -> int:
    return max(0, min(100, round(ms_per_s / 10)))


_WORK_OF_A_VERTEX: Final = 25
"""A row is as much work as this number of subtasks."""
_FLOWS: Final = attrgetter(
    *(f"recent.{flow}_per_s" for flow in ("records_in", "records_out", "bytes_in", "bytes_out"))
)
_NONE: Final = math.nan


class JobHistory:
    """The figures of one job over time. `vertices`: by id; those for which there was no room have no history."""

    def __init__(self, has_room: Callable[[], bool]) -> None:
        """`has_room`: whether one more vertex can be kept."""
        self.vertices: dict[VertexId, VertexHistory] = {}
        self._has_room = has_room
        self._slot = -1
        self._checkpoint: CheckpointSnapshot | None = None
        self._of_checkpoint: dict[VertexId, tuple[float, float]] = {}

    @property
    def bytes(self) -> int:
        """What its rows take."""
        return sum(one.bytes for one in self.vertices.values())

    def look(self, job: JobSnapshot) -> Iterator[None]:
        """Look at the job as it is now; more often than once a second changes nothing. Read it to the end."""
        slot = job.now_ms // FINE.step_ms
        if slot == self._slot or job.status.is_terminal:
            return
        self._slot = slot
        self._look_at_checkpoint(job.checkpoints.latest_completed)
        work = 0
        for vertex in job.vertices:
            vertex_id = vertex.facts.vertex_id
            if vertex_id not in self.vertices:
                if not self._has_room():
                    continue
                self.vertices[vertex_id] = VertexHistory()
            alive = []
            for _, io in live(vertex):
                alive.append(io)
                work += 1
                if work >= _SUBTASKS_AT_A_TIME:
                    work = 0
                    yield
            work += _WORK_OF_A_VERTEX
            if alive:
                self.vertices[vertex_id].put(job.now_ms, self._row(vertex, alive, job.now_ms))

    def _look_at_checkpoint(self, checkpoint: CheckpointSnapshot | None) -> None:
        """State sizes and durations change with the last completed checkpoint only."""
        if checkpoint is None or checkpoint is self._checkpoint:
            return
        self._checkpoint = checkpoint
        self._of_checkpoint = {
            vertex_id: (
                float(sum(ack.state_bytes for ack in acks)),
                float(max(ack.ack_ms for ack in acks) - checkpoint.triggered_ms),
            )
            for vertex_id, acks in checkpoint.acks.items()
            if acks
        }

    def _row(self, vertex: VertexSnapshot, alive: Sequence[TaskIo], now_ms: int) -> Row:
        """Return the row of a vertex. `alive`: the reports of its subtasks that run, at least one."""
        sizes = self._of_checkpoint.get(vertex.facts.vertex_id, (_NONE, _NONE))
        row = [*rates_of(alive), _lag(alive, now_ms), *sizes]
        for shares in (
            [io.recent.busy_ms_per_s for io in alive],
            [io.recent.backpressured_ms_per_s for io in alive],
            [io.recent.idle_ms_per_s for io in alive],
        ):
            row += [sum(shares) / len(shares), max(shares)]
        return row


def rates_of(ios: Sequence[TaskIo]) -> list[float]:
    """Return records in, records out, bytes in and bytes out per second of subtasks together."""
    return [sum(column) for column in zip((0.0,) * 4, *map(_FLOWS, ios), strict=True)]


def _lag(ios: Sequence[TaskIo], now_ms: int) -> float:
    """Return how far the lowest watermark lags the clock."""
    lag_ms = lag_of(min(io.watermark_ms for io in ios), now_ms)
    return _NONE if lag_ms is None else float(lag_ms)
