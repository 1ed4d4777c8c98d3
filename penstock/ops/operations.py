"""The operations of a program's process: it shows its jobs on the console, by REST, reporters and archives, and rescales them.

Implements `engine.hosting.operations`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from typing import Final

from penstock.engine.hosting import observer
from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.engine.hosting.observer import AllObservers, JobObserver
from penstock.engine.hosting.reporting.say import say
from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.model.checkpoints import CheckpointStatistics
from penstock.engine.model.config import Settings
from penstock.engine.model.graph.job_graph import JobGraph, JobType
from penstock.engine.model.options.autoscaler import AutoscalerOptions
from penstock.engine.model.options.rest import ArchiveOptions, RestOptions
from penstock.engine.model.program import JobControl, JobExecutor, ProgramSettings
from penstock.ops.autoscaler.autoscaling import AUTOSCALERS, JobAutoscaler
from penstock.ops.autoscaler.rules.settings import autoscaler_settings_of
from penstock.ops.console.console import Console
from penstock.ops.history.archivist import Archivist
from penstock.ops.jobs.checkpoint_record import statistics_of
from penstock.ops.jobs.diagnosis.watermarks import StoredFigures
from penstock.ops.jobs.snapshots import JobSnapshot
from penstock.ops.registry.facts import facts_of
from penstock.ops.registry.job_registry import JOB_REGISTRY, Look
from penstock.ops.remote.executor import RemoteExecutor, is_remote
from penstock.ops.reporters.running import start_reporters
from penstock.ops.rest.server import address_of_server

ARCHIVIST: Final = Archivist(JOB_REGISTRY, say)
"""Of all jobs of this process."""


def _address(settings: Settings, *, serves: bool) -> str | None:
    """Return the address of this process's REST server; None: it has none."""
    enabled = settings.get(RestOptions.ENABLED)
    return address_of_server(settings) if (serves if enabled is None else enabled) else None


@contextlib.contextmanager
def _standing_by(settings: Settings, *, serves: bool) -> Generator[None]:
    """Meanwhile the driver waits for the lead of a job, and its REST server says so. Raises ConfigurationError."""
    _address(settings, serves=serves)
    with JOB_REGISTRY.standby():
        yield


class ObservedJob:
    """One job that is about to start. From `watch` on: `observer`, for its JobManager; `look`, at the job at any time."""

    look: Look
    observer: JobObserver

    def __init__(
        self, job_graph: JobGraph, settings: Settings, *, serves: bool, given: JobObserver | None
    ) -> None:
        """`serves`: whether this host has a REST server unless the settings say otherwise. `given`: takes the console's place.

        Raises ConfigurationError: the settings of the server are wrong.
        """
        self._graph = job_graph
        self._settings = settings
        self._address = _address(settings, serves=serves)
        has_reporters = start_reporters(settings)
        self._is_observed = has_reporters or self._address is not None
        self._given = given

    def watch(self, program: ProgramSettings, checkpoints: CheckpointSettings | None) -> None:
        """Record the job from now on, for its program at least."""
        directory = self._settings.get(ArchiveOptions.DIR)
        facts = facts_of(self._graph, self._settings, program, checkpoints)
        recorder = JOB_REGISTRY.watch(
            facts,
            is_held=directory is not None,
            # The autoscaler reads what sources report, which is kept of listed jobs only.
            is_listed=self._is_observed
            or directory is not None
            or self._settings.get(AutoscalerOptions.ENABLED),
        )
        # A job may end, and be forgotten, before anybody asks.
        self.look = JOB_REGISTRY.look_of(facts.job_id)
        observers: list[JobObserver] = [recorder]
        if directory is not None:  # It looks at what is recorded.
            observers.append(ARCHIVIST.observer(facts.job_id, directory))
        observers.append(self._given or Console(self._settings, self.look, self._address))
        self.observer = AllObservers(*observers)

    @property
    def way_to_stop(self) -> str:
        """How a user stops the job with a savepoint."""
        if self._address is None:
            return "its client's stop_with_savepoint()"
        return f"`penstock stop {self._graph.job_id[:8]}`"

    def checkpoints(self) -> CheckpointStatistics:
        """Return what is known of the job's checkpoints."""
        return statistics_of(self.look().checkpoints)

    def started(self, control: JobControl) -> None:
        """The job has a JobManager."""
        scaling = autoscaler_settings_of(self._settings)
        is_streaming = self._graph.job_type is JobType.STREAMING
        if scaling.is_enabled and is_streaming and isinstance(control, JobHandle):
            scaler = JobAutoscaler(scaling, control, self.reported)
            AUTOSCALERS[control] = scaler
            scaler.start(control.manager.ended)
        JOB_REGISTRY.started(control)

    @contextlib.contextmanager
    def reported(self, job: JobSnapshot) -> Generator[StoredFigures]:
        """Lend what the job's tasks and processes have reported."""
        with JOB_REGISTRY.reported() as store:
            yield StoredFigures(store, job.job_id)

    def forget(self) -> None:
        """The job could not be started."""
        JOB_REGISTRY.forget(self._graph.job_id)


class ProcessOperations:
    """`engine.hosting.operations.Operations` of this process."""

    def check(self, settings: Settings) -> None:
        autoscaler_settings_of(settings)

    def observed(
        self, job_graph: JobGraph, settings: Settings, *, serves: bool, given: JobObserver | None
    ) -> ObservedJob:
        return ObservedJob(job_graph, settings, serves=serves, given=given)

    def standing_by(self, settings: Settings, *, serves: bool) -> AbstractContextManager[None]:
        return _standing_by(settings, serves=serves)

    def spark_started(self, page: str | None) -> None:
        JOB_REGISTRY.spark_ui = page

    def remote_executor(
        self, configuration: Mapping[str, str], command_line: Mapping[str, str]
    ) -> JobExecutor | None:
        return RemoteExecutor(command_line) if is_remote(configuration, command_line) else None


def install() -> None:
    """Register the operations of this process."""
    observer.register(ProcessOperations())
