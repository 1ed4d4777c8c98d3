"""The progress of a job in words: rates from counters, shares as percentages, and what a line says of them.

Knows no clock, no terminal and no colours. `live_view.py` shows the same as a table.
Source: the columns of Flink's web UI, which shows the busiest subtask of each vertex too.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.states import JobStatus
from penstock.engine.model.texts.amounts import bytes_text, duration_text
from penstock.ops.jobs.checkpoint_record import END_TO_END, figures_of
from penstock.ops.jobs.diagnosis.watermarks import NO_WATERMARK_MS, lag_of
from penstock.ops.jobs.snapshots import JobSnapshot, VertexSnapshot

_LEAST_WINDOW_S: Final = 3.0
"""Counters come with heartbeats. A rate over less time would jump with them."""


@dataclass(frozen=True, slots=True)
class VertexRow:
    """One job vertex. Rates are records a second. `busy`, `backpressured`: shares from 0 to 1 of the subtask that has most.

    `lag_ms`: how far the lowest watermark lags the clock; None: there is no watermark.
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
    """The progress of a job at one moment. `checkpoint`: in words; empty if there is nothing to show."""

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


def snapshot_of(job: JobSnapshot, rates: Rates) -> Snapshot:
    """Return the progress of a job. `rates`: have seen the job before; of one that has ended the averages are shown."""
    passed_s = max(0, job.lasted_ms) / 1000
    counters = {
        vertex.facts.vertex_id: (
            sum(io.records_in for io in vertex.ios if io is not None),
            sum(io.records_out for io in vertex.ios if io is not None),
        )
        for vertex in job.vertices
    }
    per_s = (Rates(0.0) if job.ended_ms >= 0 else rates).update(passed_s, counters)
    rows = tuple(_row_of(one, counters, per_s, job.now_ms) for one in job.vertices)
    # A source takes no records in, and a sink sends none.
    total = sum(max(in_per_s, out_per_s) for in_per_s, out_per_s in per_s.values())
    return Snapshot(job.facts.name, job.status, passed_s, total, _checkpoints(job), rows)


def _row_of(
    vertex: VertexSnapshot,
    counters: Counters,
    per_s: Mapping[VertexId, tuple[float, float]],
    now_ms: int,
) -> VertexRow:
    ios = [io or TaskIo() for io in vertex.ios]
    alive = [] if all(one.state.is_terminal for one in vertex.attempts) else ios
    states = Counter(one.state for one in vertex.attempts)
    lag_ms = lag_of(min((io.watermark_ms for io in ios), default=NO_WATERMARK_MS), now_ms)
    return VertexRow(
        vertex.facts.name,
        " ".join(f"{count} {state}" for state, count in states.items()),
        *counters[vertex.facts.vertex_id],
        *per_s[vertex.facts.vertex_id],
        busy=max((io.busy_ms_per_s for io in alive), default=0.0) / 1000,
        backpressured=max((io.backpressured_ms_per_s for io in alive), default=0.0) / 1000,
        lag_ms=None if lag_ms is None else max(0, lag_ms),
    )


def _checkpoints(job: JobSnapshot) -> str:
    """Return the newest completed checkpoint in words, and whether one is under way."""
    known, parts = job.checkpoints, []
    newest, under_way = known.latest_done, known.in_progress if job.ended_ms < 0 else 0
    if newest is not None:
        figures = figures_of(newest)
        what = "savepoint" if newest.checkpoint_type.is_savepoint else "checkpoint"
        took, size = duration_text(max(0, figures[END_TO_END])), bytes_text(figures["state_size"])
        age = duration_text(max(0, job.now_ms - newest.ended_ms))
        parts.append(f"{what} {newest.checkpoint_id} took {took} ({size}) {age} ago")
    if under_way:
        parts.append(
            "checkpoint under way" if under_way == 1 else f"{under_way} checkpoints under way"
        )
    return ", ".join(parts)


def line_of(snapshot: Snapshot) -> str:
    """Return a snapshot as one line, for a file or a notebook."""
    vertices = [
        f"{row.name}: {row.states}, in {row.records_in:,} ({row.in_per_s:,.0f}/s), "
        f"out {row.records_out:,} ({row.out_per_s:,.0f}/s), busy {row.busy:.0%}, "
        f"back-pressured {row.backpressured:.0%}"
        + ("" if row.lag_ms is None else f", watermark lag {duration_text(row.lag_ms)}")
        for row in snapshot.rows
    ]
    return " | ".join([f"job '{snapshot.job_name}': {snapshot.headline}", *vertices])
