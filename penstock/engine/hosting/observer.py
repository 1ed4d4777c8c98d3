"""The port to whoever observes a job: console, REST, history, tests. The JobManager's loop passes
each event of the job to it.

An event is a message of the job's machines (`engine/model/messages`), one of
`engine/model/job_events.py`, or `JobTick`, `JobEnded` and `EngineFailed`.

It is also the port to `penstock.ops`: to what a program's process does for its jobs in addition to
running them. The API registers the operations when a program asks for its executor. The engine
imports none of them.
"""

from __future__ import annotations

import contextlib
import functools
import re
import traceback
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.job.exception_history import ExceptionHistory
from penstock.engine.machines.job.job_views import TaskPlace
from penstock.engine.model.checkpoints import CheckpointStatistics
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import EngineBug
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.program import JobControl, JobExecutor, ProgramSettings
from penstock.engine.model.states import JobStatus


class JobView(Protocol):
    """What an observer may look at: the JobMaster of a streaming job, or a BATCH job."""

    @property
    def status(self) -> JobStatus: ...
    @property
    def kept_checkpoint(self) -> str | None:
        """The place of the newest checkpoint that stays after the job's end; None: there is none."""

    @property
    def exceptions(self) -> ExceptionHistory: ...
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
    """Several observers as one. A closed console or a fault in one affects neither the job nor the others; only the first error
    of each is printed.
    """

    def __init__(self, *observers: JobObserver) -> None:
        self._observers = observers
        self._complained: set[JobObserver] = set()

    def observe(self, event: Any) -> None:
        for one in self._observers:
            try:
                one.observe(event)
            except Exception:  # Whatever an observer raises.
                if one not in self._complained:
                    self._complained.add(one)
                    with contextlib.suppress(OSError, ValueError):  # Stderr itself may be closed.
                        traceback.print_exc()


class ObservedJob(Protocol):
    """One job that is about to start. `observer`: for its JobManager."""

    observer: JobObserver

    def watch(self, program: ProgramSettings, checkpoints: CheckpointSettings | None) -> None:
        """Record the job from now on. `checkpoints` None: a BATCH job."""

    def look(self) -> Any:
        """Return a snapshot of the job. Any thread may call it."""

    def checkpoints(self) -> CheckpointStatistics:
        """Return what is known of the job's checkpoints. Any thread may call it."""

    @property
    def way_to_stop(self) -> str:
        """How a user stops the job with a savepoint."""

    def started(self, control: JobControl) -> None:
        """The job has a JobManager."""

    def forget(self) -> None:
        """The job could not be started."""


class Operations(Protocol):
    """What the process of a program does for all of its jobs."""

    def check(self, settings: Settings) -> None:
        """Raises ConfigurationError: settings of the operations are wrong."""

    def observed(
        self, job_graph: JobGraph, settings: Settings, *, serves: bool, given: JobObserver | None
    ) -> ObservedJob:
        """Return a job's observation. `serves`: this host has a REST server unless the settings say otherwise. `given`: takes
        the console's place.

        Raises ConfigurationError: the settings of the server are wrong.
        """

    def standing_by(self, settings: Settings, *, serves: bool) -> AbstractContextManager[None]:
        """Meanwhile the driver waits for the lead of a job, and its REST server says so. Raises ConfigurationError."""

    def spark_started(self, page: str | None) -> None:
        """Spark runs. `page`: the address of its web pages."""

    def remote_executor(
        self, configuration: Mapping[str, str], command_line: Mapping[str, str]
    ) -> JobExecutor | None:
        """Return the executor of a session elsewhere, if the settings name one."""


class _Registered:
    operations: ClassVar[Operations | None] = None


def register(operations: Operations) -> None:
    """Have the jobs of this process use these operations."""
    _Registered.operations = operations


def registered() -> Operations:
    """Return the operations of this process. Raises EngineBug: nobody has registered them."""
    if _Registered.operations is None:
        raise EngineBug("the process has no operations; call penstock.ops.operations.install()")
    return _Registered.operations
