"""The port to `penstock.ops`: what a program's process does for its jobs besides running them.

The API registers the operations when a program asks for its executor. The engine imports none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from penstock.engine.hosting.observer import JobObserver
from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.model.checkpoints import CheckpointStatistics
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import EngineBug
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.program import JobControl, JobExecutor, ProgramSettings


class ObservedJob(Protocol):
    """One job that is about to start. `observer`: for its JobManager."""

    observer: JobObserver

    def watch(self, program: ProgramSettings, checkpoints: CheckpointSettings | None) -> None:
        """Record the job from now on. `checkpoints` None: a BATCH job."""
        ...

    def look(self) -> Any:
        """Return a snapshot of the job. Any thread may call it."""
        ...

    def checkpoints(self) -> CheckpointStatistics:
        """Return what is known of the job's checkpoints. Any thread may call it."""
        ...

    @property
    def way_to_stop(self) -> str:
        """How a user stops the job with a savepoint."""
        ...

    def started(self, control: JobControl) -> None:
        """The job has a JobManager."""
        ...

    def forget(self) -> None:
        """The job could not be started."""
        ...


class Operations(Protocol):
    """What the process of a program does for all of its jobs."""

    def check(self, settings: Settings) -> None:
        """Raises ConfigurationError: settings of the operations are wrong."""
        ...

    def observed(
        self, job_graph: JobGraph, settings: Settings, *, serves: bool, given: JobObserver | None
    ) -> ObservedJob:
        """Return a job's observation. `serves`: this host has a REST server unless the settings say otherwise. `given`: takes
        the console's place.

        Raises ConfigurationError: the settings of the server are wrong.
        """
        ...

    def standing_by(self, settings: Settings, *, serves: bool) -> AbstractContextManager[None]:
        """Meanwhile the driver waits for the lead of a job, and its REST server says so. Raises ConfigurationError."""
        ...

    def spark_started(self, page: str | None) -> None:
        """Spark runs. `page`: the address of its web pages."""
        ...

    def remote_executor(
        self, configuration: Mapping[str, str], command_line: Mapping[str, str]
    ) -> JobExecutor | None:
        """Return the executor of a session elsewhere, if the settings name one."""
        ...


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
