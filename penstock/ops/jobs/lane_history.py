"""How the subtasks of a job spend their time, noted every 2 s from its snapshots.

Knows no clock and no thread. It lets its caller do something else after each few subtasks. Shares are of the time between two reports
of the same attempt; without a new report those that the last one has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Final

from penstock.engine.model.ids import VertexId
from penstock.engine.model.states import ExecutionState
from penstock.ops.jobs.snapshots import JobSnapshot, VertexSnapshot
from penstock.ops.metrics.subtask_lanes import STEP_MS, UNKNOWN, SubtaskLanes

_SUBTASKS_AT_A_TIME: Final = 500
_RUNNING: Final = ExecutionState.RUNNING
_NOBODY: Final = repeat((None, None))


class JobLanes:
    """Of one job. `vertices`: by id; those for which there was no room have no lanes."""

    def __init__(self, has_room: Callable[[int], bool]) -> None:
        """`has_room`: whether so many more subtasks can be kept."""
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


_NONE: Final = UNKNOWN, UNKNOWN


def _shares(former: VertexSnapshot, vertex: VertexSnapshot, of: slice) -> list[tuple[int, int]]:
    """Busy and back-pressured, in percent. This runs for each subtask of all jobs, so it makes no call that it can avoid."""
    found = []
    # A BATCH job may have got more subtasks.
    pairs = chain(zip(former.attempts[of], former.ios[of], strict=True), _NOBODY)
    now = zip(vertex.attempts[of], vertex.ios[of], strict=True)
    for (one, io), (was, before) in zip(now, pairs, strict=False):
        if io is None or one.state is not _RUNNING:
            found.append(_NONE)
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
