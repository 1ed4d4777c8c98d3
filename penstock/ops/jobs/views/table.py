"""The subtasks of a vertex as a page of a table, with the spread of each figure over all of them. Flink has no such path.

Rates are per second, shares are from 0 to 1, sizes are bytes, times are ms. What is not known is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from penstock.engine.metrics.registry import quantile
from penstock.engine.model.ids import taskmanager_name
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.states import ExecutionState
from penstock.ops.jobs.diagnosis.watermarks import lag_of
from penstock.ops.jobs.snapshots import AttemptSnapshot, JobSnapshot, VertexSnapshot
from penstock.ops.jobs.views.attempts import Json, attempts_of, endpoint_of, state_durations

LIMIT: Final = 50
MOST_ROWS: Final = 200
_AT_A_TIME: Final = 200
_DIGITS: Final = 3
NAMES: Final = (
    "records-in", "records-out", "bytes-in", "bytes-out", "busy", "back-pressured", "idle",
    "queued-in", "queued-out", "mails", "watermark-lag", "state-bytes", "records-in-total",
    "records-out-total", "late-records-dropped", "start-time", "duration", "attempts",
)  # fmt: skip
"""The figures of a row."""
SORTS: Final = ("subtask", "state", *NAMES)
_Figures: TypeAlias = "Mapping[str, float | None]"
"""By NAMES; None: not known."""


class Table:
    """`/jobs/:jobid/vertices/:vertexid/table`. Read `measure` to the end, then ask for a page.

    Rates and shares of time are of the last 5 s. `states`: only subtasks in these; empty: in any.
    """

    def __init__(
        self,
        job: JobSnapshot,
        vertex: VertexSnapshot,
        states: frozenset[ExecutionState] = frozenset(),
    ) -> None:
        self._job = job
        self._vertex = vertex
        self._states = states
        self._rows: list[tuple[int, _Figures]] = []
        last = job.checkpoints.latest_completed
        acks = () if last is None else last.acks.get(vertex.facts.vertex_id, ())
        self._state_bytes: Mapping[int, int] = {ack.subtask: ack.state_bytes for ack in acks}

    def measure(self) -> Iterator[None]:
        """Look at all subtasks, and let the caller do something else after each few."""
        for attempt, io in zip(self._vertex.attempts, self._vertex.ios, strict=True):
            if not self._states or attempt.state in self._states:
                self._rows.append((attempt.subtask, self._figures(attempt, io)))
            if attempt.subtask % _AT_A_TIME == _AT_A_TIME - 1:
                yield

    def page(self, offset: int, limit: int, sort: str, *, is_descending: bool) -> Json:
        """Return rows in the order of `sort`, one of SORTS. Those of which it is not known come last, whatever the order."""
        ordered = self._ordered(sort, is_descending=is_descending)
        chosen = ordered[offset : offset + min(limit, MOST_ROWS)]
        return {
            "now": self._job.now_ms,
            "id": self._vertex.facts.vertex_id,
            "name": self._vertex.facts.name,
            "subtasks-total": len(self._vertex.attempts),
            "total": len(ordered),
            "offset": offset,
            "shown": len(chosen),
            "sort": sort,
            "order": "desc" if is_descending else "asc",
            "quantiles": self._quantiles(),
            "subtasks": [self._row(*one) for one in chosen],
        }

    def _ordered(self, sort: str, *, is_descending: bool) -> list[tuple[int, _Figures]]:
        if sort == "subtask":
            return sorted(self._rows, reverse=is_descending, key=lambda one: one[0])
        if sort == "state":
            attempts = self._vertex.attempts
            return sorted(
                self._rows, reverse=is_descending, key=lambda one: str(attempts[one[0]].state)
            )
        values = [figures[sort] for _, figures in self._rows]
        known = [
            (value, row) for value, row in zip(values, self._rows, strict=True) if value is not None
        ]
        known.sort(key=lambda one: one[0], reverse=is_descending)
        unknown = [row for value, row in zip(values, self._rows, strict=True) if value is None]
        return [row for _, row in known] + unknown

    def _quantiles(self) -> Json:
        """Least, median and most of each figure, over the subtasks that have one; None: nobody has."""
        return {name: _spread([figures[name] for _, figures in self._rows]) for name in NAMES}

    def _figures(self, attempt: AttemptSnapshot, io: TaskIo | None) -> _Figures:
        start, duration = self._span(attempt)
        live = None if io is None or attempt.state.is_terminal else io
        return {
            "records-in": None if live is None else live.recent.records_in_per_s,
            "records-out": None if live is None else live.recent.records_out_per_s,
            "bytes-in": None if live is None else live.recent.bytes_in_per_s,
            "bytes-out": None if live is None else live.recent.bytes_out_per_s,
            "busy": None if live is None else live.recent.busy_ms_per_s / 1000,
            "back-pressured": None if live is None else live.recent.backpressured_ms_per_s / 1000,
            "idle": None if live is None else live.recent.idle_ms_per_s / 1000,
            "queued-in": None if live is None else live.buffers_in,
            "queued-out": None if live is None else live.buffers_out,
            "mails": None if live is None else live.mails,
            "watermark-lag": None if live is None else lag_of(live.watermark_ms, self._job.now_ms),
            "state-bytes": self._state_bytes.get(attempt.subtask),
            "records-in-total": None if io is None else io.records_in,
            "records-out-total": None if io is None else io.records_out,
            "late-records-dropped": None if io is None else io.late_records_dropped,
            "start-time": start,
            "duration": duration,
            "attempts": len(attempts_of(self._vertex, attempt.subtask)),
        }

    def _span(self, attempt: AttemptSnapshot) -> tuple[int, int] | tuple[None, None]:
        """When the attempt was deployed, and how long it lasts, or lasted."""
        for state, start_ms in attempt.since:
            if state is ExecutionState.DEPLOYING:
                end_ms = attempt.since[-1][1] if attempt.state.is_terminal else self._job.now_ms
                return start_ms, end_ms - start_ms
        return None, None

    def _row(self, subtask: int, figures: _Figures) -> Json:
        attempt = self._vertex.attempts[subtask]
        location = attempt.location
        lasted = state_durations(attempt, self._job.now_ms)
        return {
            "subtask": subtask,
            "attempt": attempt.attempt,
            "state": str(attempt.state),
            "endpoint": None if location is None else endpoint_of(location),
            "taskmanager-id": location and taskmanager_name(self._job.job_id, location.resource_id),
            "slot": attempt.allocation_id,
            **{name: _shown(value) for name, value in figures.items()},
            "state-durations": {name: None if ms < 0 else ms for name, ms in lasted.items()},
        }


def _spread(column: Sequence[float | None]) -> Json | None:
    known = sorted([one for one in column if one is not None])
    if not known:
        return None
    spread = {"min": known[0], "median": quantile(known, 0.5), "max": known[-1]}
    return {name: _shown(value) for name, value in spread.items()}


def _shown(value: float | None) -> float | None:
    return round(value, _DIGITS) if isinstance(value, float) else value
