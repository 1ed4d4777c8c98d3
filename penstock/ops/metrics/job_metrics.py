"""The metrics of a job on the driver: how long it was in which state, how often it began again, its checkpoints.

Times come with each call. Source: Flink JobStatusMetrics, UpTimeGauge, DownTimeGauge, CheckpointStatsTracker.

How long the tasks of a job are being deployed, and since when all of them run. Times come with each call.

Source: Flink DeploymentStateTimeMetrics, AllSubTasksRunningOrFinishedStateTimeMetrics. Differs: TimeTotal of the second is a sum,
where Flink keeps the last period; a subtask that has failed does not run until its next attempt does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import JobType
from penstock.engine.model.ids import AttemptId, ExecutionVertexId
from penstock.engine.model.metrics import Measured, MetricType, Value
from penstock.engine.model.options.task import MetricOptions
from penstock.engine.model.states import ExecutionState, JobStatus

STATES: Final = (
    JobStatus.INITIALIZING,
    JobStatus.CREATED,
    JobStatus.RUNNING,
    JobStatus.RESTARTING,
    JobStatus.CANCELLING,
    JobStatus.FAILING,
)
"""The states that have metrics."""
NEVER: Final = -1


class StateKind(StrEnum):
    """Which metrics a state has (`metrics.job.status.enable`)."""

    STATE = "STATE"
    CURRENT_TIME = "CURRENT_TIME"
    TOTAL_TIME = "TOTAL_TIME"


def state_kinds(names: Sequence[str]) -> frozenset[StateKind]:
    """The kinds with these names. Raises: ConfigurationError: there is none with a name."""
    try:
        return frozenset(StateKind(name.strip().upper()) for name in names)
    except ValueError:
        raise ConfigurationError(
            f"{MetricOptions.JOB_STATUS.key}: expected some of {', '.join(StateKind)}, "
            f"got {', '.join(names)}"
        ) from None


class StateCounts:
    """How many subtasks are in each state."""

    def __init__(self) -> None:
        self._states: dict[ExecutionVertexId, ExecutionState] = {}
        self._counts: Counter[ExecutionState] = Counter()

    def moved(self, subtask: ExecutionVertexId, new: ExecutionState) -> None:
        """A subtask is in another state from now on."""
        former = self._states.get(subtask)
        if former is not None:
            self._counts[former] -= 1
        self._states[subtask] = new
        self._counts[new] += 1

    def some(self, *states: ExecutionState) -> int:
        """How many are in one of these states."""
        return sum(self._counts[state] for state in states)

    @property
    def all_settled(self) -> bool:
        """Whether all run, or have finished."""
        settled = self.some(ExecutionState.RUNNING, ExecutionState.FINISHED)
        return settled == len(self._states)


@dataclass(slots=True)
class _Periods:
    """Periods of one kind. `since_ms` None: none lasts."""

    since_ms: int | None = None
    total_ms: int = 0

    def put(self, at_ms: int, *, lasts: bool) -> None:
        if lasts and self.since_ms is None:
            self.since_ms = at_ms
        elif not lasts and self.since_ms is not None:
            self.total_ms += at_ms - self.since_ms
            self.since_ms = None

    def measured(self, name: str, now_ms: int, kinds: Collection[StateKind]) -> Iterator[Measured]:
        """The metrics of this state: whether it lasts, ms since it began or 0, ms in it altogether."""
        current = 0 if self.since_ms is None else now_ms - self.since_ms
        if StateKind.STATE in kinds:
            yield _gauge(f"{name}State", int(self.since_ms is not None))
        if StateKind.CURRENT_TIME in kinds:
            yield _gauge(f"{name}Time", current)
        if StateKind.TOTAL_TIME in kinds:
            yield _gauge(f"{name}TimeTotal", self.total_ms + current)


@dataclass(slots=True)
class JobTimes:
    """The states of one job with their times. `changed` at each change, in order. `rescales`: those that no failure caused."""

    since_ms: dict[JobStatus, int] = field(default_factory=dict)
    status: JobStatus | None = None
    restarts: int = 0
    rescales: int = 0
    _periods: dict[JobStatus, _Periods] = field(
        default_factory=lambda: {state: _Periods() for state in STATES}
    )

    def changed(self, status: JobStatus, at_ms: int) -> None:
        """The job is in another state from now on."""
        self.restarts += status is JobStatus.RESTARTING
        self.status = status
        self.since_ms[status] = at_ms
        for state, periods in self._periods.items():
            periods.put(at_ms, lasts=state is status)

    def measured(self, now_ms: int, kinds: Collection[StateKind]) -> Iterator[Measured]:
        """The metrics at this time. `kinds`: the metrics of each state."""
        for state, periods in self._periods.items():
            yield from periods.measured(state.value.lower(), now_ms, kinds)
        yield _gauge("uptime", self._uptime(now_ms))
        yield _gauge("downtime", self._downtime(now_ms))
        yield _gauge("numRestarts", self.restarts + self.rescales)
        yield _gauge("numRescales", self.rescales)

    def _uptime(self, now_ms: int) -> int:
        if self.status is not None and self.status.is_globally_terminal:
            return NEVER
        return now_ms - self.since_ms[self.status] if self.status is JobStatus.RUNNING else 0

    def _downtime(self, now_ms: int) -> int:
        if self.status is not None and self.status.is_globally_terminal:
            return NEVER
        failed = self.since_ms.get(JobStatus.FAILING, self.since_ms.get(JobStatus.RESTARTING))
        if failed is None or failed <= self.since_ms.get(JobStatus.RUNNING, NEVER):
            return 0
        return now_ms - failed


def _gauge(name: str, value: Value) -> Measured:
    return Measured(name, MetricType.GAUGE, value)


_READY: Final = (ExecutionState.INITIALIZING, ExecutionState.RUNNING)
_WAITING: Final = (ExecutionState.CREATED, ExecutionState.SCHEDULED, ExecutionState.DEPLOYING)


class DeploymentTimes:
    """The times that one job spends on deployment. Call `moved` at each change of an attempt, in order."""

    def __init__(self, job_type: JobType) -> None:
        self._is_batch = job_type is JobType.BATCH
        self._counts = StateCounts()
        self._deploying = _Periods()
        self._all_running = _Periods()

    def moved(self, attempt_id: AttemptId, new: ExecutionState, at_ms: int) -> None:
        """An attempt is in another state from now on."""
        self._counts.moved(attempt_id.execution_vertex_id, new)
        self._deploying.put(at_ms, lasts=self._is_deploying)
        self._all_running.put(at_ms, lasts=self._counts.all_settled)

    @property
    def _is_deploying(self) -> bool:
        is_one = self._counts.some(ExecutionState.DEPLOYING) > 0
        if self._is_batch:
            return is_one and not self._counts.some(*_READY)
        lasts = self._deploying.since_ms is not None
        return is_one or (lasts and self._counts.some(*_WAITING) > 0)

    def ended(self, at_ms: int) -> None:
        """The job has ended."""
        self._deploying.put(at_ms, lasts=False)
        self._all_running.put(at_ms, lasts=False)

    def measured(self, now_ms: int, kinds: Collection[StateKind]) -> Iterator[Measured]:
        """The metrics at this time. `kinds`: the metrics of each."""
        yield from self._deploying.measured("deploying", now_ms, kinds)
        if not self._is_batch:
            name = "allSubTasksRunningOrFinished"
            yield from self._all_running.measured(name, now_ms, kinds)
