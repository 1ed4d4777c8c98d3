"""The events of a job that can be observed, as calls by the JobManager's loop. The base class does
nothing.

`hosting/program/console.py` prints them; tests record them.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from typing import Protocol, cast

from penstock.machines.job.exception_history import ExceptionHistory
from penstock.machines.job.job_views import TaskPlace
from penstock.model.elastic.rescales import Rescales
from penstock.model.graph.job_graph import JobGraph
from penstock.model.ids import AllocationId, AttemptId, ResourceId, TaskManagerLocation
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointEnded,
    ExecutionStateChanged,
    GraphReplaced,
    Heartbeat,
    JobStatusChanged,
    LogEvents,
    MetricsReport,
    RegisterTaskManager,
    ResetSubtasks,
    ResourcesMissing,
    SlowSubtasks,
    TaskIo,
    TriggerCheckpoint,
    UserOutput,
    VertexProgress,
)
from penstock.model.states import JobStatus


class JobView(Protocol):
    """What an observer may look at: the JobMaster of a streaming job, or a BATCH job."""

    @property
    def status(self) -> JobStatus: ...
    @property
    def checkpoints_under_way(self) -> int: ...
    @property
    def kept_checkpoint(self) -> str | None:
        """The place of the newest checkpoint that stays after the job's end; None: there is none."""

    @property
    def exceptions(self) -> ExceptionHistory: ...
    def progress(self) -> list[VertexProgress]: ...
    def where_tasks_ran(self) -> list[TaskPlace]: ...


class JobObserver:
    """Calls must return at once."""

    def submitted(self, job_graph: JobGraph, ignored_keys: list[str]) -> None: ...
    def taskmanager_requested(self, resource_id: ResourceId) -> None: ...
    def taskmanager_registered(self, message: RegisterTaskManager) -> None: ...
    def taskmanager_starved(self, resource_id: ResourceId, cause: str) -> None: ...
    def taskmanager_lost(self, resource_id: ResourceId, cause: str) -> None: ...
    def resources_missing(self, missing: ResourcesMissing, host: str) -> None: ...
    def status_changed(self, change: JobStatusChanged) -> None: ...
    def execution_changed(self, change: ExecutionStateChanged, job_graph: JobGraph) -> None: ...
    def task_deployed(
        self, attempt_id: AttemptId, location: TaskManagerLocation, slot: AllocationId | None
    ) -> None: ...
    def heartbeat(self, message: Heartbeat) -> None: ...
    def task_reported(self, attempt_id: AttemptId, io: TaskIo) -> None:
        """The last counters of an attempt that has ended."""

    def checkpoint_triggered(self, first: TriggerCheckpoint) -> None:
        """`first`: what is sent to the first of the tasks that begin the checkpoint."""

    def checkpoint_acknowledged(self, message: AcknowledgeCheckpoint) -> None: ...
    def checkpoint_restored(
        self, checkpoint_id: int, location: str | None, *, is_savepoint: bool
    ) -> None:
        """`is_savepoint`: the checkpoint is not the job's own. See `RestoredCheckpoint`."""

    def checkpoint_ended(self, ended: CheckpointEnded) -> None: ...
    def restarting(self, reset: ResetSubtasks) -> None: ...
    def slow_subtasks(self, told: SlowSubtasks) -> None: ...
    def graph_replaced(self, replaced: GraphReplaced) -> None:
        """Another generation of the job begins."""

    def rescales_changed(self, rescales: Rescales) -> None:
        """One has begun, has gone on, or has ended. Their times are those of the monotonic clock."""

    def user_output(self, output: UserOutput, job_graph: JobGraph) -> None: ...
    def user_logged(self, told: LogEvents, job_graph: JobGraph) -> None: ...
    def metrics_reported(self, report: MetricsReport) -> None: ...
    def tick(self, job: JobView) -> None: ...
    def job_ended(self, status: JobStatus, job: JobView) -> None: ...
    def engine_failed(self, error: BaseException) -> None: ...


class _All:
    """Passes each call on to several observers."""

    def __init__(self, observers: tuple[JobObserver, ...]) -> None:
        self._observers = observers

    def __getattr__(self, name: str) -> Callable[..., None]:
        calls = [getattr(one, name) for one in self._observers]

        def call_all(*arguments: object, **named: object) -> None:
            for call in calls:
                call(*arguments, **named)

        setattr(self, name, call_all)  # The next call finds it without this method.
        return call_all


def all_of(*observers: JobObserver) -> JobObserver:
    """Return one observer for several. A fault in one does not keep the call from the others."""
    return cast("JobObserver", _All(tuple(guarded(one) for one in observers)))


class _Guarded:
    """Calls another observer. Its first error is printed, and errors change nothing else."""

    def __init__(self, inner: JobObserver) -> None:
        self._inner = inner
        self._has_complained = False

    def __getattr__(self, name: str) -> Callable[..., None]:
        call = getattr(self._inner, name)

        def guarded_call(*arguments: object, **named: object) -> None:
            try:
                call(*arguments, **named)
            except Exception:
                if not self._has_complained:
                    self._has_complained = True
                    with contextlib.suppress(OSError, ValueError):  # Stderr itself may be closed.
                        traceback.print_exc()

        return guarded_call


def guarded(observer: JobObserver) -> JobObserver:
    """Wrap an observer, so that a closed console or a fault in the observer does not affect the job."""
    return cast("JobObserver", _Guarded(observer))
