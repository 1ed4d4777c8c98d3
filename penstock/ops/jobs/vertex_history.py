"""What the history keeps of a job: figures of its vertices once a second, made of its snapshots.

Knows no clock and no thread. It lets its caller do something else after each few subtasks. Rates are of the time between two reports
of the same attempt. Those subtasks that have not reported since the last look count as the others of their vertex.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.states import ExecutionState
from penstock.ops.jobs.snapshots import CheckpointSnapshot, JobSnapshot, VertexSnapshot
from penstock.ops.metrics.history_rings import FINE, Row, VertexHistory

_SUBTASKS_AT_A_TIME: Final = 500
_WORK_OF_A_VERTEX: Final = 25
"""A row is as much work as so many subtasks."""
_NO_WATERMARK: Final = -(2**63)
_LAST_WATERMARK: Final = 2**63 - 1
_NONE: Final = math.nan
_Pair: TypeAlias = tuple[TaskIo, TaskIo, float]
"""What an attempt reported last, what it had reported before, and the seconds between."""


class JobHistory:
    """Of one job. `vertices`: by id; those for which there was no room have no history."""

    def __init__(self, has_room: Callable[[], bool]) -> None:
        """`has_room`: whether one more vertex can be kept."""
        self.vertices: dict[VertexId, VertexHistory] = {}
        self._has_room = has_room
        self._former: dict[VertexId, VertexSnapshot] = {}
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
            former = self._former.get(vertex_id, vertex)
            self._former[vertex_id] = vertex
            pairs: list[_Pair] = []
            for begin in range(0, len(vertex.ios), _SUBTASKS_AT_A_TIME):
                found = slice(begin, begin + _SUBTASKS_AT_A_TIME)
                pairs += _pairs(former, vertex, found)
                work += _WORK_OF_A_VERTEX + len(vertex.ios[found])
                if work >= _SUBTASKS_AT_A_TIME:
                    work = 0
                    yield
            row = self._row(vertex, pairs, job.now_ms)
            if row is not None:
                self.vertices[vertex_id].put(job.now_ms, row)

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

    def _row(self, vertex: VertexSnapshot, pairs: Sequence[_Pair], now_ms: int) -> Row | None:
        """Return the row of a vertex; None: nothing has been reported."""
        alive = [
            io
            for one, io in zip(vertex.attempts, vertex.ios, strict=True)
            if io is not None and one.state is ExecutionState.RUNNING
        ]
        if not alive:
            return None
        sizes = self._of_checkpoint.get(vertex.facts.vertex_id, (_NONE, _NONE))
        row = [*_rates(pairs, len(alive)), _lag(alive, now_ms), *sizes]
        for shares in (
            [io.busy_ms_per_s for io in alive],
            [io.backpressured_ms_per_s for io in alive],
            [io.idle_ms_per_s for io in alive],
        ):
            row += [sum(shares) / len(shares), max(shares)]
        return row


def _pairs(former: VertexSnapshot, vertex: VertexSnapshot, of: slice) -> list[_Pair]:
    """Return what can be compared: attempts that have reported again."""
    return [
        (io, before, (at_ms - before_ms) / 1_000)
        for io, before, one, same, at_ms, before_ms in zip(
            vertex.ios[of],
            former.ios[of],
            vertex.attempts[of],
            former.attempts[of],
            vertex.reported_ms[of],
            former.reported_ms[of],
            strict=False,  # A BATCH job may have got more subtasks.
        )
        if io is not None
        and before is not None
        and at_ms > before_ms
        and (one is same or one.attempt == same.attempt)
        and one.state is ExecutionState.RUNNING
    ]


def _rates(pairs: Sequence[_Pair], subtasks: int) -> list[float]:
    """Return records and bytes per second, in and out."""
    if not pairs:
        return [_NONE] * 4
    factor = subtasks / len(pairs)
    return [
        factor * sum((io.records_in - before.records_in) / s for io, before, s in pairs),
        factor * sum((io.records_out - before.records_out) / s for io, before, s in pairs),
        factor * sum((io.bytes_in - before.bytes_in) / s for io, before, s in pairs),
        factor * sum((io.bytes_out - before.bytes_out) / s for io, before, s in pairs),
    ]


def _lag(ios: Sequence[TaskIo], now_ms: int) -> float:
    """Return how far the lowest watermark is behind the clock."""
    lowest = min(io.watermark_ms for io in ios)
    is_known = _NO_WATERMARK < lowest < _LAST_WATERMARK
    return float(now_ms - lowest) if is_known else _NONE
