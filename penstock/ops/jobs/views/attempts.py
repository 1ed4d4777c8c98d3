"""Parts that several answers share: times and counters of attempts, by Flink's names.

Source: Flink IOMetricsInfo, SubtaskExecutionAttemptDetailsInfo, AggregatedTaskDetailsInfo, StatusDurationUtils.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final, TypeAlias

from penstock.engine.metrics.registry import quantile
from penstock.engine.model.ids import TaskManagerLocation, taskmanager_name
from penstock.engine.model.messages import TaskIo
from penstock.engine.model.states import ExecutionState
from penstock.ops.jobs.snapshots import AttemptSnapshot, FormerAttempt, JobSnapshot, VertexSnapshot

Json: TypeAlias = dict[str, Any]

UNASSIGNED: Final = "(unassigned)"
_LASTING: Final = (
    ExecutionState.CREATED,
    ExecutionState.SCHEDULED,
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
)
"""The states whose lengths are shown."""
_PERCENTILES: Final = {"median": 0.5, "p25": 0.25, "p75": 0.75, "p95": 0.95}


def endpoint_of(location: TaskManagerLocation | None) -> str:
    return UNASSIGNED if location is None else f"{location.host}:{location.data_port}"


def taskmanager_of(job: JobSnapshot, location: TaskManagerLocation | None) -> str:
    return UNASSIGNED if location is None else taskmanager_name(job.job_id, location.resource_id)


def place_of(vertex: VertexSnapshot, subtask: int) -> Json:
    """Return what answers of the dashboard name a subtask by."""
    facts = vertex.facts
    return {"vertex-id": facts.vertex_id, "vertex-name": facts.name, "subtask": subtask}


def times_of(attempt: AttemptSnapshot) -> dict[ExecutionState, int]:
    """Return when the attempt last entered each state."""
    return dict(attempt.since)


def span_of(attempt: AttemptSnapshot, now_ms: int) -> tuple[int, int, int]:
    """Return start, end and duration of an attempt: from its deployment to its end; -1 where there is none."""
    times = times_of(attempt)
    start = times.get(ExecutionState.DEPLOYING, -1)
    end = times[attempt.state] if attempt.state.is_terminal else -1
    duration = -1 if start < 0 else (now_ms if end < 0 else end) - start
    return start, end, duration


def span_of_all(attempts: Iterable[AttemptSnapshot], now_ms: int) -> tuple[int, int, int]:
    """Return the same of several attempts: from the first deployment until all have ended."""
    spans = [span_of(one, now_ms) for one in attempts]
    starts = [start for start, _, _ in spans if start >= 0]
    if not starts:
        return -1, -1, -1
    start = min(starts)
    end = max((end for _, end, _ in spans), default=-1) if all(e >= 0 for _, e, _ in spans) else -1
    return start, end, (now_ms if end < 0 else end) - start


def state_durations(attempt: AttemptSnapshot, now_ms: int) -> dict[str, int]:
    """Return how long the attempt was in each state; -1: it was not."""
    found = dict.fromkeys((str(state) for state in _LASTING), -1)
    following = [at_ms for _, at_ms in attempt.since[1:]]
    for (state, at_ms), until_ms in zip(attempt.since, [*following, now_ms], strict=True):
        if state in _LASTING:
            found[str(state)] = max(0, until_ms - at_ms)
    return found


def counters_of(ios: Sequence[TaskIo | None], *, is_source: bool = False) -> Json:
    """Return the sums of the counters of attempts. They are complete when each has reported.

    `is_source`: what a source reads does not come from a task, so Flink counts it as nothing here.
    """
    known = [io for io in ios if io is not None]
    received = [] if is_source else known
    is_complete = len(known) == len(ios)
    return {
        "read-bytes": sum(io.bytes_in for io in received),
        "read-bytes-complete": is_complete,
        "write-bytes": sum(io.bytes_out for io in known),
        "write-bytes-complete": is_complete,
        "read-records": sum(io.records_in for io in received),
        "read-records-complete": is_complete,
        "write-records": sum(io.records_out for io in known),
        "write-records-complete": is_complete,
        "accumulated-backpressured-time": sum(io.backpressured_ms for io in known),
        "accumulated-idle-time": sum(io.idle_ms for io in known),
        "accumulated-busy-time": float(sum(io.busy_ms for io in known)),
    }


def counts_of(attempts: Iterable[AttemptSnapshot]) -> dict[str, int]:
    """Return how many attempts are in each state; every state is named."""
    counted = Counter(one.state for one in attempts)
    return {str(state): counted[state] for state in ExecutionState}


def attempt_details(
    attempt: AttemptSnapshot, io: TaskIo | None, job: JobSnapshot, *, is_source: bool
) -> Json:
    """Return what Flink shows of one attempt of a subtask."""
    start, end, duration = span_of(attempt, job.now_ms)
    return {
        "subtask": attempt.subtask,
        "status": str(attempt.state),
        "attempt": attempt.attempt,
        "endpoint": endpoint_of(attempt.location),
        "start-time": start,
        "end-time": end,
        "duration": duration,
        "metrics": counters_of([io], is_source=is_source),
        "taskmanager-id": taskmanager_of(job, attempt.location),
        "status-duration": state_durations(attempt, job.now_ms),
        "start_time": start,
    }


def aggregated(
    ones: Sequence[tuple[AttemptSnapshot, TaskIo | None]], now_ms: int, *, is_source: bool
) -> dict[str, Mapping[str, Mapping[str, int]]]:
    """Return the distribution of the counters and of the time in each state over several attempts."""
    counters: dict[str, list[float]] = {
        name: [] for name in counters_of([]) if not name.endswith("-complete")
    }
    durations: dict[str, list[float]] = {str(state): [] for state in _LASTING}
    for attempt, io in ones:
        counted = counters_of([io], is_source=is_source)
        for name, values in counters.items():
            values.append(counted[name])
        for name, lasted_ms in state_durations(attempt, now_ms).items():
            if lasted_ms >= 0:
                durations[name].append(lasted_ms)
    return {
        "metrics": {name: distribution(values) for name, values in counters.items()},
        "status-duration": {name: distribution(values) for name, values in durations.items()},
    }


def distribution(values: Sequence[float]) -> dict[str, int]:
    """Return minimum, maximum, mean, sum and percentiles; zeros without values."""
    if not values:
        return dict.fromkeys(("min", "max", "avg", "sum", *_PERCENTILES), 0)
    ordered = sorted(values)
    return {
        "min": int(ordered[0]),
        "max": int(ordered[-1]),
        "avg": int(fmean(ordered)),
        "sum": int(sum(ordered)),
        **{name: int(quantile(ordered, q)) for name, q in _PERCENTILES.items()},
    }


def attempts_of(vertex: VertexSnapshot, subtask: int) -> list[FormerAttempt]:
    """Return all remembered attempts of a subtask: former ones, and at last the current one."""
    current = FormerAttempt(vertex.attempts[subtask], vertex.ios[subtask])
    return [*vertex.former.get(subtask, ()), current]
