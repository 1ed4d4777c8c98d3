"""What `penstock top` shows, as plain data, made of answers of the REST API. Knows no terminal and asks nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


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
    """One vertex over the last 5 s. None: not known. `busy`, `blocked`: the share of time of the subtask that has most, 0 to 1.
    `lag_ms`: how far its watermark lags the clock.
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


def vertex_row(node: Mapping[str, Any]) -> VertexRow:
    """Return a vertex as `/jobs/:jobid/graph` answers it."""
    busy, blocked = node["busy"], node["back-pressured"]
    return VertexRow(
        node["id"],
        node["name"],
        ", ".join(f"{count} {state}" for state, count in node["states"].items()),
        node["records-in"],
        node["records-out"],
        busy and busy["max"],
        blocked and blocked["max"],
        node["watermark-lag"],
    )


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
