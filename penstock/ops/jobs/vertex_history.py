"""What the history keeps of a job: figures of its vertices once a second, made of its snapshots.

Knows no clock and no thread. It lets its caller do something else after each few subtasks. Rates are of the time between two reports
of the same attempt. Those subtasks that have not reported since the last look count as the others of their vertex.

How the subtasks of a job spend their time, noted every 2 s from its snapshots.

Knows no clock and no thread. It lets its caller do something else after each few subtasks. Shares are of the time between two reports
of the same attempt; without a new report those that the last one has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Final, TypeAlias

from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.states import ExecutionState
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
_RUNNING: Final = ExecutionState.RUNNING
_NOBODY: Final = repeat((None, None))


class JobLanes:
    """The states of one job's subtasks over time. `vertices`: by id; those for which there was no room have no lanes."""

    def __init__(self, has_room: Callable[[int], bool]) -> None:
        """`has_room`: whether this number of further subtasks can be kept."""
        self.vertices: dict[VertexId, SubtaskLanes] = {}
        self._has_room = has_room
        self._former: dict[VertexId, VertexSnapshot] = {}
        self._before: dict[VertexId, VertexSnapshot] = {}
        self._slot = -1

    @property
    def subtasks(self) -> int:
        """How many subtasks are kept."""
        return sum(len(self._former[key].attempts) for key in self.vertices)

    @property
    def bytes_held(self) -> int:
        """What all steps take."""
        return sum(one.bytes_held for one in self.vertices.values())

    def before(self, vertex_id: VertexId) -> VertexSnapshot | None:
        """Return the vertex as it was 2 to 4 s ago, to compare it with now; None: it is not known."""
        return self._before.get(vertex_id)

    def look(self, job: JobSnapshot) -> Iterator[None]:
        """Look at the job as it is now; more often than every 2 s changes nothing. Read it to the end."""
        slot = job.now_ms // STEP_MS
        if slot == self._slot or job.status.is_terminal:
            return
        self._slot = slot
        work = 0
        for vertex in job.vertices:
            vertex_id = vertex.facts.vertex_id
            former = self._former.get(vertex_id, vertex)
            more = len(vertex.attempts) - (
                len(former.attempts) if vertex_id in self.vertices else 0
            )
            if more and not self._has_room(more):
                self.vertices.pop(vertex_id, None)
                self._before.pop(vertex_id, None)
                continue
            lanes = self.vertices.setdefault(vertex_id, SubtaskLanes())
            self._before[vertex_id], self._former[vertex_id] = former, vertex
            busy, blocked = bytearray(), bytearray()
            for begin in range(0, len(vertex.attempts), _SUBTASKS_AT_A_TIME):
                found = slice(begin, begin + _SUBTASKS_AT_A_TIME)
                shares = _shares(former, vertex, found)
                busy += bytes([one for one, _ in shares])
                blocked += bytes([one for _, one in shares])
                work += len(shares)
                if work >= _SUBTASKS_AT_A_TIME:
                    work = 0
                    yield
            lanes.put(job.now_ms, bytes(busy), bytes(blocked))


_NO_SHARES: Final = UNKNOWN, UNKNOWN


def _shares(former: VertexSnapshot, vertex: VertexSnapshot, of: slice) -> list[tuple[int, int]]:
    """Busy and back-pressured, in percent. This runs for each subtask of all jobs, so it makes no call that it can avoid."""
    found = []
    # A BATCH job may have got more subtasks.
    pairs = chain(zip(former.attempts[of], former.ios[of], strict=True), _NOBODY)
    now = zip(vertex.attempts[of], vertex.ios[of], strict=True)
    for (one, io), (was, before) in zip(now, pairs, strict=False):
        if io is None or one.state is not _RUNNING:
            found.append(_NO_SHARES)
            continue
        if (
            before is not None
            and before is not io
            and was is not None
            and (one is was or one.attempt == was.attempt)
        ):
            busy = io.busy_ms - before.busy_ms
            blocked = io.backpressured_ms - before.backpressured_ms
            idle = io.idle_ms - before.idle_ms
            total = busy + blocked + idle
            if total > 0 and min(busy, blocked, idle) >= 0:
                found.append((100 * busy // total, 100 * blocked // total))
                continue
        found.append((_percent(io.busy_ms_per_s), _percent(io.backpressured_ms_per_s)))
    return found


def _percent(ms_per_s: float) -> int:
    return max(0, min(100, round(ms_per_s / 10)))


_WORK_OF_A_VERTEX: Final = 25
"""A row is as much work as this number of subtasks."""
_FLOWS: Final = attrgetter("records_in", "records_out", "bytes_in", "bytes_out")
_NONE: Final = math.nan
_Pair: TypeAlias = tuple[TaskIo, TaskIo, float]
"""What an attempt reported last, what it had reported before, and the seconds between."""


class JobHistory:
    """The figures of one job over time. `vertices`: by id; those for which there was no room have no history."""

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
        for shares in zip(*_times_spent(pairs, alive), strict=True):
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


def rates_between(io: TaskIo, before: TaskIo, seconds: float) -> list[float]:
    """Return records and bytes per second, in and out, between two reports of an attempt."""
    flows = zip(_FLOWS(io), _FLOWS(before), strict=True)
    return [(now - then) / seconds for now, then in flows]


def _times_spent(
    pairs: Sequence[_Pair], alive: Sequence[TaskIo]
) -> Iterator[tuple[float, float, float]]:
    """Yield for each subtask how many ms of a second it was busy, back-pressured and idle, between its two last reports.

    What a report says of itself is a mean over the last minute: it stands only where there is nothing to compare.
    """
    former = {id(io): before for io, before, _ in pairs}
    for io in alive:
        before = former.get(id(io))
        if before is not None:
            busy = io.busy_ms - before.busy_ms
            blocked = io.backpressured_ms - before.backpressured_ms
            idle = io.idle_ms - before.idle_ms
            total = busy + blocked + idle
            if total > 0 and min(busy, blocked, idle) >= 0:
                yield 1000 * busy / total, 1000 * blocked / total, 1000 * idle / total
                continue
        yield io.busy_ms_per_s, io.backpressured_ms_per_s, io.idle_ms_per_s


def _rates(pairs: Sequence[_Pair], subtasks: int) -> list[float]:
    """Return records and bytes per second, in and out."""
    if not pairs:
        return [_NONE] * 4
    factor = subtasks / len(pairs)
    columns = zip(*(rates_between(*pair) for pair in pairs), strict=True)
    return [factor * sum(column) for column in columns]


def _lag(ios: Sequence[TaskIo], now_ms: int) -> float:
    """Return how far the lowest watermark lags the clock."""
    lag_ms = lag_of(min(io.watermark_ms for io in ios), now_ms)
    return _NONE if lag_ms is None else float(lag_ms)
