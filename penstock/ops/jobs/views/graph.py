"""The first screen of a job: its head, its vertices as nodes, and what flows between them. Flink has no such path.

Rates are per second, shares are from 0 to 1, sizes are bytes, times are ms. What is not known is None, and `why` says the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from statistics import median
from typing import Final, TypeAlias

from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.states import JobStatus, aggregate_state
from penstock.ops.jobs.diagnosis.shares import live
from penstock.ops.jobs.diagnosis.watermarks import NO_WATERMARK_MS, lowest_watermark
from penstock.ops.jobs.snapshots import AttemptSnapshot, JobSnapshot, VertexSnapshot
from penstock.ops.jobs.vertex_history import rates_of
from penstock.ops.jobs.views.attempts import Json

_RATES: Final = ("records-in", "records-out", "bytes-in", "bytes-out")
_SHARES: Final = {
    "busy": attrgetter("recent.busy_ms_per_s"),
    "back-pressured": attrgetter("recent.backpressured_ms_per_s"),
    "idle": attrgetter("recent.idle_ms_per_s"),
}
_DIGITS: Final = 3
_ENDED: Final = "all its subtasks have ended"
_NO_REPORT: Final = "no subtask has reported yet"
_NO_INPUT: Final = "a source has no input from other vertices"
_NO_WATERMARK: Final = "it has no watermark yet"
_LAST_WATERMARK: Final = "its input has ended"
_NO_CHECKPOINT: Final = "no checkpoint is complete yet"
_NO_METRIC: Final = "the metrics of this subtask have not been reported yet"
_SUMS_ONLY: Final = (
    "only the sums over all inputs of the target and over all outputs of the source are measured"
)
_TOTALS: Final = {
    "records-in": attrgetter("records_in"),
    "records-out": attrgetter("records_out"),
    "bytes-in": attrgetter("bytes_in"),
    "bytes-out": attrgetter("bytes_out"),
}
_Live: TypeAlias = Sequence[tuple[AttemptSnapshot, TaskIo]]
PoolUsage: TypeAlias = Callable[[VertexSnapshot, int], float | None]
"""Which share of its input buffers a subtask uses; None: it has not been measured."""


def graph(job: JobSnapshot, nodes: Sequence[Json]) -> Json:
    """`/jobs/:jobid/graph`. `nodes`: as `node` makes them, one for each vertex."""
    return {"now": job.now_ms, "job": head(job), "nodes": nodes, "edges": [*_edges(job, nodes)]}


def head(job: JobSnapshot) -> Json:
    """The head of every answer about a job. `uptime`: since it last began to run; None: it does not run."""
    runs = job.status is JobStatus.RUNNING
    since = job.timestamps.get(JobStatus.RUNNING) if runs else None
    return {
        "id": job.job_id,
        "name": job.facts.name,
        "state": str(job.status),
        "job-type": str(job.facts.job_type),
        "start-time": job.facts.submitted_ms,
        "end-time": None if job.ended_ms < 0 else job.ended_ms,
        "running-since": since,
        "uptime": None if since is None else job.now_ms - since,
        "restarts": job.restarts,
        "checkpoint-interval": job.facts.checkpoint_interval_ms,
    }


def head_alone(job: JobSnapshot, *, may_rescale: bool) -> Json:
    """`/jobs/:jobid/head`. `may_rescale`: dashboards of this driver may; `rescalable` says whether the job can be, too."""
    is_streaming = job.facts.job_type is JobType.STREAMING
    can = is_streaming and not job.facts.elastic.settings.is_reactive and not job.status.is_terminal
    return {"now": job.now_ms, **head(job), "rescalable": can and may_rescale}


def consumed(job: JobSnapshot) -> set[VertexId]:
    """Return the vertices whose results others read: all but the sinks."""
    return {one.source for other in job.vertices for one in other.facts.inputs}


def node(
    job: JobSnapshot,
    vertex: VertexSnapshot,
    pool_usage: PoolUsage,
    *,
    is_sink: bool,
) -> Json:
    """A vertex. Its rates and shares of time are of the last 5 s."""
    facts, alive = vertex.facts, list(live(vertex))
    ios = [io for _, io in alive]
    counts = Counter([one.state for one in vertex.attempts])
    columns = {name: list(map(read, ios)) for name, read in _SHARES.items()}
    answer = {
        "id": facts.vertex_id,
        "name": facts.name,
        "parallelism": facts.parallelism,
        "max-parallelism": facts.max_parallelism,
        "slot-sharing-group": facts.slot_sharing_group,
        "source": not facts.inputs,
        "sink": is_sink,
        "state": str(aggregate_state(counts)),
        "states": {str(state): count for state, count in counts.items()},
        "late-records-dropped": sum(io.late_records_dropped for io in vertex.ios if io),
        "total": {name: sum(map(read, filter(None, vertex.ios))) for name, read in _TOTALS.items()},
        **{name: _share(column) for name, column in columns.items()},
        "busiest-subtask": _subtask_with_most(alive, columns["busy"]),
        "queued-in": _queue(vertex, alive, pool_usage),
        "queued-out": sum(io.buffers_out for io in ios) if ios else None,
        **_rates(ios),
    }
    why: dict[str, str] = {}
    silent = "" if alive else _silence(vertex)
    if silent:
        unknown = (*_RATES, *_SHARES, "busiest-subtask", "queued-in", "queued-out")
        why = dict.fromkeys(unknown, silent)
    if not facts.inputs:
        why["queued-in"] = _NO_INPUT
    answer |= _watermark(job, vertex, silent, why)
    answer |= _state_bytes(job, vertex, why)
    return {**answer, "why": why}


def _silence(vertex: VertexSnapshot) -> str:
    has_ended = all(one.state.is_terminal for one in vertex.attempts)
    return _ENDED if vertex.attempts and has_ended else _NO_REPORT


def _share(column: Sequence[float]) -> Json | None:
    """Least, median and most over the subtasks."""
    if not column:
        return None
    return {
        "min": round(min(column) / 1000, _DIGITS),
        "median": round(median(column) / 1000, _DIGITS),
        "max": round(max(column) / 1000, _DIGITS),
    }


def _subtask_with_most(alive: _Live, column: Sequence[float]) -> int | None:
    """The first one among equals."""
    return alive[column.index(max(column))][0].subtask if column else None


def _queue(vertex: VertexSnapshot, alive: _Live, pool_usage: PoolUsage) -> Json | None:
    """Frames that wait for the tasks, and the subtask for which most wait. None: nothing is known, or there is no input."""
    if not vertex.facts.inputs:
        return None
    column = [io.buffers_in for _, io in alive]
    subtask = _subtask_with_most(alive, column)
    if subtask is None:
        return None
    return {
        "total": sum(column),
        "max": max(column),
        "subtask": subtask,
        "pool-usage": pool_usage(vertex, subtask),
    }


def _rates(ios: Sequence[TaskIo]) -> Json:
    """Of all subtasks together; None: nobody has reported."""
    if not ios:
        return dict.fromkeys(_RATES)
    return {name: round(one, _DIGITS) for name, one in zip(_RATES, rates_of(ios), strict=True)}


def _watermark(job: JobSnapshot, vertex: VertexSnapshot, silent: str, why: dict[str, str]) -> Json:
    lowest = lowest_watermark(vertex)
    is_known = lowest is not None and lowest > NO_WATERMARK_MS
    if not is_known:
        absent = _NO_WATERMARK if lowest is not None else _LAST_WATERMARK
        why["watermark"] = why["watermark-lag"] = silent or absent
    return {
        "watermark": lowest if is_known else None,
        "watermark-lag": job.now_ms - lowest if is_known and lowest is not None else None,
    }


def _state_bytes(job: JobSnapshot, vertex: VertexSnapshot, why: dict[str, str]) -> Json:
    """Of the last complete checkpoint. A vertex that had ended before it has no part in it."""
    last = job.checkpoints.latest_completed
    if last is None:
        why["state-bytes"] = _NO_CHECKPOINT
        return {"state-bytes": None}
    return {"state-bytes": sum(a.state_bytes for a in last.acks.get(vertex.facts.vertex_id, ()))}


def _edges(job: JobSnapshot, nodes: Sequence[Json]) -> Iterator[Json]:
    by_id: Mapping[VertexId, Json] = {one["id"]: one for one in nodes}
    outputs = Counter(one.source for other in job.vertices for one in other.facts.inputs)
    for vertex in job.vertices:
        inputs = vertex.facts.inputs
        target = by_id[vertex.facts.vertex_id]
        for number, one in enumerate(inputs):
            yield {
                "source": one.source,
                "target": vertex.facts.vertex_id,
                "input": number,
                "partitioner": one.ship_strategy,
                "exchange": one.exchange,
                **_flow(by_id[one.source], target, len(inputs), outputs[one.source]),
            }


def _flow(source: Json, target: Json, inputs: int, outputs: int) -> Json:
    """What an edge carries. A vertex with one input knows what comes by it; one with one output what goes by it."""
    answer: Json = dict.fromkeys(("records", "bytes", "queued", "pool-usage"))
    if inputs == 1:
        queue = target["queued-in"] or {"total": None, "pool-usage": None}
        answer |= {"records": target["records-in"], "bytes": target["bytes-in"]}
        answer |= {"queued": queue["total"], "pool-usage": queue["pool-usage"]}
        place, reasons = "target", target["why"]
        why = {"records": "records-in", "bytes": "bytes-in", "queued": "queued-in"}
    elif outputs == 1:
        answer |= {"records": source["records-out"], "bytes": source["bytes-out"]}
        place, reasons = "source", source["why"]
        why = {"records": "records-out", "bytes": "bytes-out"}
    else:
        place, reasons, why = None, {}, {}
    missing = {name: reasons.get(why.get(name, ""), _SUMS_ONLY) for name in answer}
    if inputs == 1:
        missing["pool-usage"] = reasons.get("queued-in", _NO_METRIC)
    return {
        **answer,
        "measured-at": place,
        "why": {name: text for name, text in missing.items() if answer[name] is None},
    }
