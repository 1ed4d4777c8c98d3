"""How the subtasks of a vertex spend their time: the figures that a verdict is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeAlias

from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages import TaskIo
from penstock.ops.jobs.snapshots import AttemptSnapshot, JobSnapshot, VertexSnapshot

BUSY: Final = 0.8
"""From this share of its time on, a subtask is what others wait for."""
BLOCKED: Final = 0.1
"""From this share of back pressure on, a subtask waits for others (Flink's LOW)."""
MOSTLY_BLOCKED: Final = 0.5
"""From this share of back pressure on, somebody downstream of the subtask must be at fault (Flink's HIGH)."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares from 0 to 1. `busiest`: the subtask that has most work; -1: none has reported. `blocked`: of the subtask that has most;
    `busiest_blocked`: of the busiest. `idle`: of the subtask that has least.
    """

    busy: float = 0.0
    usual_busy: float = 0.0
    blocked: float = 0.0
    busiest: int = -1
    busiest_blocked: float = 0.0
    idle: float = 0.0

    @property
    def is_known(self) -> bool:
        return self.busiest >= 0


AllShares: TypeAlias = "Mapping[VertexId, Shares]"
NO_SHARES: Final = Shares()
NONE_KNOWN: Final[AllShares] = {}


def live(vertex: VertexSnapshot) -> Iterator[tuple[AttemptSnapshot, TaskIo]]:
    """Yield the subtasks that have not ended and have reported."""
    for attempt, io in zip(vertex.attempts, vertex.ios, strict=True):
        if io is not None and not attempt.state.is_terminal:
            yield attempt, io


def shares_of(vertex: VertexSnapshot) -> Shares:
    """Return the shares of a vertex: of the subtask that has most, and the median."""
    known = [
        (io.recent.busy_ms_per_s / 1000, io.recent.backpressured_ms_per_s / 1000, attempt.subtask)
        for attempt, io in live(vertex)
    ]
    if not known:
        return NO_SHARES
    busy, busiest_blocked, busiest = max(known)
    return Shares(
        busy,
        median(one for one, _, _ in known),
        max(blocked for _, blocked, _ in known),
        busiest,
        busiest_blocked,
        min(max(0.0, 1.0 - one - blocked) for one, blocked, _ in known),
    )


def all_shares(job: JobSnapshot, known: AllShares = NONE_KNOWN) -> dict[VertexId, Shares]:
    """Return the shares of all vertices. `known`: those that were computed before."""
    return {
        one.facts.vertex_id: known.get(one.facts.vertex_id) or shares_of(one)
        for one in job.vertices
    }
