"""The metrics of this driver: what TaskManagers report of themselves and their tasks, and what the driver measures itself.

Belongs to whoever holds the job_registry's lock. Source: Flink MetricStore, JobStatusMetrics, ClusterEntrypoint's process metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.engine.hosting.reporting.metrics.process import driver_place, driver_registry
from penstock.engine.metrics.scopes import Component, Place
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import JobId, taskmanager_name
from penstock.engine.model.job_events import TaskDeployed, TaskManagerLost
from penstock.engine.model.messages import ExecutionStateChanged, JobStatusChanged, MetricsReport
from penstock.engine.model.metrics import Measured, MetricType, Value
from penstock.engine.model.states import JobStatus
from penstock.ops.jobs.checkpoint_record import END_TO_END, FIGURES, figures_of
from penstock.ops.jobs.snapshots import CheckpointsSnapshot, JobFacts, JobSnapshot, VerticesReplaced
from penstock.ops.jobs.views.taskmanagers import slots_of
from penstock.ops.metrics.job_metrics import NEVER, DeploymentTimes, JobTimes
from penstock.ops.metrics.store import MetricStore

_LOG: Final = logging.getLogger(__name__)
_UPDATE_S: Final = 5.0
"""Meters and shares of time move on so often, as in Flink."""


@dataclass(slots=True)
class _Times:
    """The times of one job: its own states, and those of its tasks."""

    job: JobTimes
    tasks: DeploymentTimes


class DriverMetrics:
    """Metrics that the driver measures, its own and those of jobs. `store`: where views and reporters look."""

    def __init__(self) -> None:
        self.store = MetricStore()
        self._registry = driver_registry()
        self._starts: dict[JobId, tuple[int, int]] = {}
        self._failed_before = 0
        self._registry.meter("startWorkFailurePerSecond", self._failed_starts)
        self._place = driver_place()
        self._times: dict[JobId, _Times] = {}
        self._updated_s = 0.0

    def began(self, facts: JobFacts) -> None:
        """A job is submitted."""
        known = self._times[facts.job_id] = _Times(JobTimes(), DeploymentTimes(facts.job_type))
        known.job.changed(JobStatus.INITIALIZING, facts.submitted_ms)

    def forget(self, job_id: JobId) -> None:
        self._times.pop(job_id, None)
        self._failed_before += self._starts.pop(job_id, (0, 0))[1]
        self.store.forget_job(job_id)

    def take(self, job_id: JobId, event: Any, at_ms: int) -> None:
        """Take what an event says of metrics."""
        match event:
            case MetricsReport():
                self._report(event, at_ms)
            case TaskDeployed(attempt_id):
                self.store.attempt_began(
                    job_id, attempt_id.vertex_id, attempt_id.subtask, attempt_id.attempt
                )
            case ExecutionStateChanged(attempt_id, _, new):
                self._times[job_id].tasks.moved(attempt_id, new, at_ms)
                if new.is_terminal:
                    self.store.attempt_ended(
                        job_id, attempt_id.vertex_id, attempt_id.subtask, attempt_id.attempt
                    )
            case JobStatusChanged(status) if self._times[job_id].job.status is not status:
                self._times[job_id].job.changed(status, at_ms)
                if status.is_terminal:
                    self._times[job_id].tasks.ended(at_ms)
                    self.store.job_ended(job_id)
            case VerticesReplaced(is_planned=True):
                self._times[job_id].job.rescales += 1
            case TaskManagerLost(resource_id):
                self.store.forget_taskmanager(taskmanager_name(job_id, resource_id))

    def _report(self, event: MetricsReport, at_ms: int) -> None:
        try:
            self.store.report(event.payload)
        except ExternalError as error:
            _LOG.warning("taskmanager=%s metrics UNREADABLE cause=%s", event.resource_id, error)

    def keep_time(self, now_s: float) -> None:
        """Move meters on. To be called more often than they have to be moved, whether or not somebody asks: a meter takes it for granted."""
        if now_s - self._updated_s >= _UPDATE_S:
            self._updated_s = now_s
            self._registry.update()

    def put_starts(self, job_id: JobId, pending: int, failed: int) -> None:
        """Note how many TaskManagers the job waits for, and how many have failed to start so far."""
        self._starts[job_id] = (pending, failed)

    def _failed_starts(self) -> int:
        return self._failed_before + sum(failed for _, failed in self._starts.values())

    def measure(self, jobs: Iterable[JobSnapshot], now_ms: int) -> None:
        """Put what the driver measures of itself and of its jobs into the store."""
        known = list(jobs)
        pending = sum(
            self._starts.get(job.job_id, (0, 0))[0] for job in known if not job.status.is_terminal
        )
        of_cluster = [
            *self._registry.measured(),
            *_cluster(known),
            _gauge("numPendingTaskManagers", pending),
        ]
        self.store.put(self._place, of_cluster)
        for job in known:
            variables = {"job_id": job.job_id, "job_name": job.facts.name}
            place = Place(Component.JM_JOB, {**self._place.variables, **variables})
            times, kinds = self._times[job.job_id], job.facts.reporting.state_kinds
            measured = [
                *times.job.measured(now_ms, kinds),
                *times.tasks.measured(now_ms, kinds),
                *checkpoint_metrics(job.checkpoints),
            ]
            self.store.put(place, measured)

    def put_coordinators(self, job: JobSnapshot, handle: JobHandle, now_ms: int) -> None:
        """Put what the job's enumerators and committers measure into the store."""
        for vertex, measured in handle.coordinator_metrics():
            variables = {
                **self._place.variables,
                "job_id": job.job_id,
                "job_name": job.facts.name,
                "task_id": vertex.vertex_id,
                "task_name": vertex.name,
                "operator_id": vertex.uid,
                "operator_name": vertex.name,
            }
            self.store.put(Place(Component.JM_OPERATOR, variables), measured)


def _cluster(jobs: list[JobSnapshot]) -> Iterator[Measured]:
    running = [job for job in jobs if not job.status.is_terminal]
    slots = [slots_of(job) for job in running]
    yield _gauge("numRegisteredTaskManagers", sum(count for count, _, _ in slots))
    yield _gauge("numRunningJobs", len(running))
    yield _gauge("taskSlotsTotal", sum(total for _, total, _ in slots))
    yield _gauge("taskSlotsAvailable", sum(free for _, _, free in slots))


def checkpoint_metrics(known: CheckpointsSnapshot) -> Iterator[Measured]:
    """Yield the metrics of a job's checkpoints and savepoints; -1 and `n/a` for what there has not been yet."""
    yield _gauge("totalNumberOfCheckpoints", known.in_progress + known.completed + known.failed)
    yield _gauge("numberOfInProgressCheckpoints", known.in_progress)
    yield _gauge("numberOfCompletedCheckpoints", known.completed)
    yield _gauge("numberOfFailedCheckpoints", known.failed)
    last = known.latest_done
    figures = dict.fromkeys(FIGURES, NEVER) if last is None else figures_of(last)
    took_ms = NEVER if last is None else max(0, figures[END_TO_END])
    yield _gauge("lastCompletedCheckpointId", NEVER if last is None else last.checkpoint_id)
    yield _gauge("lastCheckpointDuration", took_ms)
    yield _gauge("lastCheckpointSize", figures["checkpointed_size"])
    yield _gauge("lastCheckpointFullSize", figures["state_size"])
    yield _gauge("lastCheckpointMetadataSize", NEVER if last is None else last.metadata_bytes)
    yield _gauge("lastCheckpointProcessedData", figures["processed_data"])
    yield _gauge("lastCheckpointPersistedData", figures["persisted_data"])
    completed_ms = NEVER if last is None else last.triggered_ms + took_ms
    yield _gauge("lastCheckpointCompletedTimestamp", completed_ms)
    restored = known.latest_restored
    restored_ms = NEVER if restored is None else restored.restored_at_ms
    yield _gauge("lastCheckpointRestoreTimestamp", restored_ms)
    location = None if last is None else last.location
    yield _gauge("lastCheckpointExternalPath", location or "n/a")


def _gauge(name: str, value: Value) -> Measured:
    return Measured(name, MetricType.GAUGE, value)
