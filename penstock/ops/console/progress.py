"""The progress of a job in words: rates, shares as percentages, and what a line says of them.

Knows no clock, no terminal and no colours. `live_view.py` shows the same as a table.
Source: the columns of Flink's web UI, which shows the busiest subtask of each vertex too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.states import JobStatus
from penstock.engine.model.texts.amounts import bytes_text, duration_text
from penstock.engine.model.texts.bounded_text import printable
from penstock.ops.jobs.checkpoint_record import END_TO_END, figures_of
from penstock.ops.jobs.diagnosis.shares import live
from penstock.ops.jobs.diagnosis.watermarks import NO_WATERMARK_MS, lag_of
from penstock.ops.jobs.snapshots import JobSnapshot, VertexSnapshot
from penstock.ops.jobs.vertex_history import rates_of

_LEAST_S: Final = 1e-3


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


def snapshot_of(job: JobSnapshot) -> Snapshot:
    """Return the progress of a job. Rates and shares of time are of the last 5 s; the rates of one that has ended are averages."""
    passed_s = max(0, job.lasted_ms) / 1000
    rows = tuple(_row_of(job, one, passed_s) for one in job.vertices)
    # A source takes no records in, and a sink sends none.
    total = sum(max(row.in_per_s, row.out_per_s) for row in rows)
    return Snapshot(printable(job.facts.name), job.status, passed_s, total, _checkpoints(job), rows)


def _row_of(job: JobSnapshot, vertex: VertexSnapshot, passed_s: float) -> VertexRow:
    known = [io for io in vertex.ios if io is not None]
    alive = [io for _, io in live(vertex)]
    states = Counter(one.state for one in vertex.attempts)
    records_in, records_out = (
        sum(counts)
        for counts in ([io.records_in for io in known], [io.records_out for io in known])
    )
    if job.ended_ms >= 0:
        in_per_s, out_per_s = (one / max(passed_s, _LEAST_S) for one in (records_in, records_out))
    else:
        in_per_s, out_per_s, *_ = rates_of(alive)
    lag_ms = lag_of(min((io.watermark_ms for io in alive), default=NO_WATERMARK_MS), job.now_ms)
    return VertexRow(
        printable(vertex.facts.name),
        " ".join(f"{count} {state}" for state, count in states.items()),
        records_in,
        records_out,
        in_per_s,
        out_per_s,
        busy=max((io.recent.busy_ms_per_s for io in alive), default=0.0) / 1000,
        backpressured=max((io.recent.backpressured_ms_per_s for io in alive), default=0.0) / 1000,
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
