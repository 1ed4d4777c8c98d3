"""What `penstock top` shows, as plain data, made of answers of the REST API. Knows no terminal and asks nobody.

Rates come from two looks at the same counters, because the driver's own rates are as old as the metric reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, TypeAlias

from penstock.ops.cli.remote.texts import tasks_text

_NO_WATERMARK: Final = -(2**63)
_LAST_WATERMARK: Final = 2**63 - 1
_WATERMARK: Final = ".currentInputWatermark"


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job. `running`, `total`: subtasks. `duration_ms`: since it was submitted, or until its end."""

    job_id: str
    name: str
    status: str
    duration_ms: int
    running: int
    total: int
    address: str


@dataclass(frozen=True, slots=True)
class VertexRow:
    """One vertex. None: not known yet. `busy`, `blocked`: the mean share of time of its subtasks, 0 to 1. `lag_ms`: how far its
    watermark lags the clock.
    """

    vertex_id: str
    name: str
    states: str
    in_per_s: float | None = None
    out_per_s: float | None = None
    busy: float | None = None
    blocked: float | None = None
    lag_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """The newest completed checkpoint, and how many have failed. `age_ms`: since it was triggered."""

    checkpoint_id: int
    took_ms: int
    state_bytes: int
    age_ms: int
    failed: int


@dataclass(frozen=True, slots=True)
class JobPage:
    """One job in full. `sentence`: who limits it; "": nobody says. `checkpoint` None: there is none yet."""

    job: JobRow
    vertices: tuple[VertexRow, ...]
    sentence: str = ""
    checkpoint: CheckpointRow | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """One look at everything. `page` None: no job is open. `problem`: what went wrong with this look; "": nothing."""

    jobs: tuple[JobRow, ...] = ()
    page: JobPage | None = None
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


_COUNTED: Final = (
    "read-records", "write-records", "accumulated-busy-time", "accumulated-backpressured-time",
)  # fmt: skip
_Rates: TypeAlias = tuple[float | None, float | None, float | None, float | None]
Counters: TypeAlias = tuple[float, ...]
"""The counters of a vertex, after the time of the look in ms. Times are sums over its subtasks."""


def job_row(overview: Mapping[str, Any], address: str) -> JobRow:
    """Return a job as `/jobs/overview` answers it."""
    tasks = overview["tasks"]
    return JobRow(
        overview["jid"],
        overview["name"],
        overview["state"],
        overview["duration"],
        tasks["running"],
        tasks["total"],
        address,
    )


def counters_of(details: Mapping[str, Any]) -> dict[str, Counters]:
    """Return the counters of each vertex, from the answer of `/jobs/:jobid`."""
    return {
        vertex["id"]: (details["now"], *(vertex["metrics"][name] for name in _COUNTED))
        for vertex in details["vertices"]
    }


def vertex_rows(
    details: Mapping[str, Any], former: Mapping[str, Counters]
) -> tuple[VertexRow, ...]:
    """Return the vertices in the order of the plan. `former`: the counters of an earlier look; rates are since then."""
    now = counters_of(details)
    return tuple(
        VertexRow(
            one["id"],
            one["name"],
            tasks_text(one),
            *_rates(former.get(one["id"], now[one["id"]]), now[one["id"]], one["parallelism"]),
        )
        for one in details["vertices"]
    )


def _rates(before: Counters, now: Counters, parallelism: int) -> _Rates:
    """Return the rates and the shares of a row; None: no time has passed."""
    passed_ms, read, written, busy_ms, blocked_ms = (
        new - old for new, old in zip(now, before, strict=True)
    )
    if passed_ms <= 0:
        return None, None, None, None
    task_ms = passed_ms * max(1, parallelism)
    # A restart begins with new counters.
    read_per_s, written_per_s = (max(0, one) * 1000 / passed_ms for one in (read, written))
    return read_per_s, written_per_s, _share(busy_ms, task_ms), _share(blocked_ms, task_ms)


def _share(ms: float, of_ms: float) -> float:
    return min(1.0, max(0.0, ms / of_ms))


def with_shares(rows: Sequence[VertexRow], bottleneck: Mapping[str, Any]) -> tuple[VertexRow, ...]:
    """Return the rows with the shares that `/jobs/:jobid/bottleneck` has, which are of the newest reports."""
    known = bottleneck["vertices"]
    return tuple(
        replace(
            row, busy=known[row.vertex_id]["busy"], blocked=known[row.vertex_id]["back-pressured"]
        )
        if row.vertex_id in known
        else row
        for row in rows
    )


def lag_of(watermarks: Iterable[Mapping[str, Any]], now_ms: int) -> int | None:
    """Return how far the lowest watermark of a vertex lags the clock; None: there is none, or it was the last one.

    `watermarks`: as `/jobs/:jobid/vertices/:vertexid/watermarks` answers them.
    """
    found = [int(float(one["value"])) for one in watermarks if str(one["id"]).endswith(_WATERMARK)]
    lowest = min(found, default=_NO_WATERMARK)
    return None if lowest <= _NO_WATERMARK or lowest >= _LAST_WATERMARK else now_ms - lowest


def checkpoint_row(answer: Mapping[str, Any], now_ms: int) -> CheckpointRow | None:
    """Return the newest completed checkpoint, from the answer of `/jobs/:jobid/checkpoints`."""
    newest = answer["latest"]["completed"]
    if newest is None:
        return None
    return CheckpointRow(
        newest["id"],
        newest["end_to_end_duration"],
        newest["state_size"],
        now_ms - newest["trigger_timestamp"],
        answer["counts"]["failed"],
    )
