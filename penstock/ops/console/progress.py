"""The progress of a job in words: rates from counters, shares as percentages, and what a line says of them.

Knows no clock, no terminal and no colours. `live_view.py` shows the same as a table.
Source: the columns of Flink's web UI, which shows the busiest subtask of each vertex too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages import CheckpointEnded, VertexProgress
from penstock.engine.model.states import JobStatus
from penstock.engine.model.texts.amounts import bytes_text, duration_text

_LEAST_WINDOW_S: Final = 3.0
"""Counters come with heartbeats. A rate over less time would jump with them."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When progress is looked at. `since_start_s`: of the job; monotonic. `wall_ms`: since 1970."""

    since_start_s: float
    wall_ms: int


@dataclass(frozen=True, slots=True)
class VertexRow:
    """One job vertex. Rates are records a second. `busy`, `backpressured`: shares from 0 to 1 of the subtask that has most.

    `lag_ms`: how far the lowest watermark is behind the clock; None: there is no watermark.
    """

    name: str
    states: str
    records_in: int
    records_out: int
    in_per_s: float
    out_per_s: float
    busy: float
    backpressured: float
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The progress of a job at one moment. `checkpoint`: in words; empty if there is nothing to tell."""

    job_name: str
    status: JobStatus
    since_start_s: float
    records_per_s: float
    checkpoint: str
    rows: tuple[VertexRow, ...]

    @property
    def headline(self) -> str:
        """What the job as a whole does, in one line."""
        rate = f"{self.records_per_s:,.0f} records/s"
        parts = [f"{self.since_start_s:.0f} s", str(self.status), rate, self.checkpoint]
        return ", ".join(filter(None, parts))


Counters = Mapping[VertexId, tuple[int, int]]
"""Records in and records out of each vertex, since its attempts began."""
_NOTHING: Final = (0, 0)


class Rates:
    """Counters of a job's vertices over the last seconds. Not thread-safe."""

    def __init__(self, window_s: float) -> None:
        self._window_s = max(window_s, _LEAST_WINDOW_S)
        self._samples: deque[tuple[float, Counters]] = deque([(0.0, {})])

    def update(
        self, since_start_s: float, counters: Counters
    ) -> dict[VertexId, tuple[float, float]]:
        """Return records in and records out a second.

        Attempts of a restart count from 0 again; then the rates begin again too.
        """
        newest_s, newest = self._samples[-1]
        if any(
            _is_less(counters.get(vertex_id, _NOTHING), old) for vertex_id, old in newest.items()
        ):
            self._samples = deque([(newest_s, {})])
        self._samples.append((since_start_s, dict(counters)))
        while len(self._samples) > 2 and since_start_s - self._samples[1][0] >= self._window_s:
            self._samples.popleft()
        began_s, before = self._samples[0]
        passed_s = max(1e-3, since_start_s - began_s)
        found: dict[VertexId, tuple[float, float]] = {}
        for vertex_id, (new_in, new_out) in counters.items():
            old_in, old_out = before.get(vertex_id, _NOTHING)
            found[vertex_id] = (new_in - old_in) / passed_s, (new_out - old_out) / passed_s
        return found


def _is_less(new: tuple[int, int], old: tuple[int, int]) -> bool:
    return new[0] < old[0] or new[1] < old[1]


class CheckpointNews:
    """What the newest completed checkpoint was, and whether one is under way."""

    def __init__(self) -> None:
        self._newest: tuple[CheckpointEnded, float, int] | None = None
        self._acknowledged_ms: dict[int, int] = {}

    def acknowledged(self, checkpoint_id: int, now_ms: int) -> None:
        """Note that a task has acknowledged a checkpoint. `now_ms`: by the JobMaster's clock."""
        self._acknowledged_ms[checkpoint_id] = now_ms

    def ended(self, ended: CheckpointEnded, moment: Moment, now_ms: int) -> None:
        """Note a checkpoint that has ended. `now_ms`: by the JobMaster's clock, as `triggered_ms` is.

        It took until the last task acknowledged it, as REST and Flink count.
        """
        last_ms = self._acknowledged_ms.pop(ended.checkpoint_id, now_ms)
        for older in [one for one in self._acknowledged_ms if one < ended.checkpoint_id]:
            del self._acknowledged_ms[older]
        if ended.location is not None:
            self._newest = ended, moment.since_start_s, max(0, last_ms - ended.triggered_ms)

    def told(self, moment: Moment, under_way: int) -> str:
        """Return the state of checkpoints in words."""
        parts = []
        if self._newest is not None:
            ended, at_s, took_ms = self._newest
            kind, age_ms = ended.checkpoint_type, (moment.since_start_s - at_s) * 1000
            parts.append(
                checkpoint_text(kind, ended.checkpoint_id, took_ms, ended.size_bytes, age_ms)
            )
        if under_way:
            parts.append(under_way_text(under_way))
        return ", ".join(parts)


def checkpoint_text(
    kind: CheckpointType, checkpoint_id: int, took_ms: int, size_bytes: int, age_ms: float
) -> str:
    """Return a completed checkpoint in words."""
    what = "savepoint" if kind.is_savepoint else "checkpoint"
    size, age = bytes_text(size_bytes), duration_text(age_ms)
    return f"{what} {checkpoint_id} took {duration_text(took_ms)} ({size}) {age} ago"


def under_way_text(count: int) -> str:
    """Return how many checkpoints are under way."""
    return "checkpoint under way" if count == 1 else f"{count} checkpoints under way"


def snapshot_of(
    job: tuple[str, JobStatus],
    vertices: Sequence[VertexProgress],
    rates: Rates,
    moment: Moment,
    checkpoint: str,
) -> Snapshot:
    """Return the progress of a job. `job`: its name and status."""
    per_s = rates.update(
        moment.since_start_s,
        {vertex.vertex_id: (vertex.records_in, vertex.records_out) for vertex in vertices},
    )
    rows = tuple(_row_of(vertex, per_s[vertex.vertex_id], moment) for vertex in vertices)
    name, status = job
    # A source takes no records in, and a sink sends none.
    total = sum(max(in_per_s, out_per_s) for in_per_s, out_per_s in per_s.values())
    return Snapshot(name, status, moment.since_start_s, total, checkpoint, rows)


def _row_of(vertex: VertexProgress, per_s: tuple[float, float], moment: Moment) -> VertexRow:
    states = [f"{count} {state}" for state, count in vertex.states.items() if count]
    watermark_ms = vertex.watermark_ms
    return VertexRow(
        name=vertex.name,
        states=" ".join(states),
        records_in=vertex.records_in,
        records_out=vertex.records_out,
        in_per_s=per_s[0],
        out_per_s=per_s[1],
        busy=vertex.busy_ms_per_s / 1000,
        backpressured=vertex.backpressured_ms_per_s / 1000,
        lag_ms=None if watermark_ms is None else max(0, moment.wall_ms - watermark_ms),
    )


def line_of(snapshot: Snapshot) -> str:
    """Return all of it in one line, for a file or a notebook."""
    vertices = [
        f"{row.name}: {row.states}, in {row.records_in:,} ({row.in_per_s:,.0f}/s), "
        f"out {row.records_out:,} ({row.out_per_s:,.0f}/s), busy {row.busy:.0%}, "
        f"back-pressured {row.backpressured:.0%}"
        + ("" if row.lag_ms is None else f", watermark lag {duration_text(row.lag_ms)}")
        for row in snapshot.rows
    ]
    return " | ".join([f"job '{snapshot.job_name}': {snapshot.headline}", *vertices])
