"""The port to who observes a job: console, REST, history, tests. The JobManager's loop passes each event of the job to it.

An event is a message of the job's machines (`engine/model/messages`), one of `engine/model/job_events.py`, or `JobTick`, `JobEnded` and `EngineFailed`.
"""

from __future__ import annotations

import contextlib
import functools
import re
import traceback
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.engine.machines.job.exception_history import ExceptionHistory
from penstock.engine.machines.job.job_views import TaskPlace
from penstock.engine.model.messages import VertexProgress
from penstock.engine.model.states import JobStatus


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


@dataclass(frozen=True, slots=True)
class JobTick:
    """Some time has passed."""

    job: JobView


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The last event of a job."""

    status: JobStatus
    job: JobView


@dataclass(frozen=True, slots=True)
class EngineFailed:
    """An error of Penstock's own in the JobManager."""

    error: BaseException


class JobObserver:
    """Gets the events of one job. A subclass has a method for each kind that it wants: `on_job_status_changed(event)` for
    JobStatusChanged. Calls must return at once.
    """

    def observe(self, event: Any) -> None:
        handler = getattr(self, _handler_of(type(event).__name__), None)
        if handler is not None:
            handler(event)


@functools.cache
def _handler_of(kind: str) -> str:
    return "on" + re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", kind)


class AllObservers(JobObserver):
    """Several observers as one. A fault in one does not keep an event from the others."""

    def __init__(self, *observers: JobObserver) -> None:
        self._observers = [GuardedObserver(one) for one in observers]

    def observe(self, event: Any) -> None:
        for one in self._observers:
            one.observe(event)


class GuardedObserver(JobObserver):
    """Another observer, of which only the first error is printed: a closed console or a fault in it does not affect the job."""

    def __init__(self, inner: JobObserver) -> None:
        self._inner = inner
        self._has_complained = False

    def observe(self, event: Any) -> None:
        try:
            self._inner.observe(event)
        except Exception:  # Whatever an observer raises.
            if not self._has_complained:
                self._has_complained = True
                with contextlib.suppress(OSError, ValueError):  # Stderr itself may be closed.
                    traceback.print_exc()
