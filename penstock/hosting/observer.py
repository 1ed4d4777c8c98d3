"""The events of a job that can be observed, as calls by the JobManager's loop. The base class does
nothing.

`hosting/program/console.py` prints them; tests record them.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from typing import Protocol, cast

from penstock.machines.job.job_views import TaskPlace
from penstock.model.graph.job_graph import JobGraph
from penstock.model.ids import ResourceId
from penstock.model.messages import (
    CheckpointEnded,
    ExecutionStateChanged,
    JobStatusChanged,
    RegisterTaskManager,
    ResetSubtasks,
    ResourcesMissing,
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
    def checkpoint_ended(self, ended: CheckpointEnded) -> None: ...
    def restarting(self, reset: ResetSubtasks) -> None: ...
    def user_output(self, output: UserOutput, job_graph: JobGraph) -> None: ...
    def tick(self, job: JobView) -> None: ...
    def job_ended(self, status: JobStatus, job: JobView) -> None: ...
    def engine_failed(self, error: BaseException) -> None: ...


class _Guarded:
    """Calls another observer. Its first error is printed, and errors change nothing else."""

    def __init__(self, inner: JobObserver) -> None:
        self._inner = inner
        self._has_complained = False

    def __getattr__(self, name: str) -> Callable[..., None]:
        call = getattr(self._inner, name)

        def guarded_call(*arguments: object) -> None:
            try:
                call(*arguments)
            except Exception:
                if not self._has_complained:
                    self._has_complained = True
                    with contextlib.suppress(OSError, ValueError):  # Stderr itself may be closed.
                        traceback.print_exc()

        return guarded_call


def guarded(observer: JobObserver) -> JobObserver:
    """Wrap an observer, so that a closed console or a fault in the observer does not affect the job."""
    return cast("JobObserver", _Guarded(observer))
