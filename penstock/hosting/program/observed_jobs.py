"""Makes a job visible to others: in the observatory of this driver, by its REST server, its metric reporters, and its archive."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Final

from penstock.hosting.history.archivist import Archivist
from penstock.hosting.observation.facts import facts_of
from penstock.hosting.observation.observatory import OBSERVATORY, Look
from penstock.hosting.observer import JobObserver, all_of
from penstock.hosting.program.console import Console, say
from penstock.hosting.reporters.running import start_reporters
from penstock.hosting.rest.server import address_of_server
from penstock.machines.checkpoints.settings import CheckpointSettings
from penstock.model.config import Settings
from penstock.model.graph.job_graph import JobGraph
from penstock.model.options.autoscaler import AutoscalerOptions
from penstock.model.options.history import ArchiveOptions
from penstock.model.options.rest import RestOptions
from penstock.model.program import JobControl, ProgramSettings
from penstock.observation.jobs.snapshots import JobSnapshot
from penstock.observation.verdict.figures import StoredFigures

ARCHIVIST: Final = Archivist(OBSERVATORY, say)
"""Of all jobs of this process."""


def _address(settings: Settings, *, serves: bool) -> str | None:
    """Return the address of this process's REST server; None: it has none."""
    enabled = settings.get(RestOptions.ENABLED)
    return address_of_server(settings) if (serves if enabled is None else enabled) else None


@contextlib.contextmanager
def standing_by(settings: Settings, *, serves: bool) -> Generator[None]:
    """Meanwhile the driver waits for the lead of a job, and its REST server says so. Raises ConfigurationError."""
    _address(settings, serves=serves)
    with OBSERVATORY.standby():
        yield


class ObservedJob:
    """One job that is about to start. `observer`: for its JobManager. `look`, from `watch` on: gives a snapshot of the job at any
    time.
    """

    look: Look

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
        self.observer = given or Console(settings, self._address)

    def watch(self, program: ProgramSettings, checkpoints: CheckpointSettings | None) -> None:
        """Record the job from now on, for its program at least."""
        directory = self._settings.get(ArchiveOptions.DIR)
        facts = facts_of(self._graph, self._settings, program, checkpoints)
        recorder = OBSERVATORY.watch(
            facts,
            is_held=directory is not None,
            # The autoscaler reads what sources report, which is kept of listed jobs only.
            is_listed=self._is_observed
            or directory is not None
            or self._settings.get(AutoscalerOptions.ENABLED),
        )
        # A job may end, and be forgotten, before anybody asks.
        self.look = OBSERVATORY.look_of(facts.job_id)
        if directory is None:
            self.observer = all_of(recorder, self.observer)
        else:  # The archivist comes after the recorder: it looks at what is recorded.
            archivist = ARCHIVIST.observer(facts.job_id, directory)
            self.observer = all_of(recorder, archivist, self.observer)

    @property
    def way_to_stop(self) -> str:
        """How a user stops the job with a savepoint."""
        if self._address is None:
            return "its client's stop_with_savepoint()"
        return f"`penstock stop {self._graph.job_id[:8]}`"

    def started(self, control: JobControl) -> None:
        """The job has a JobManager."""
        OBSERVATORY.started(control)

    @contextlib.contextmanager
    def reported(self, job: JobSnapshot) -> Generator[StoredFigures]:
        """Lend what the job's tasks and processes have reported."""
        with OBSERVATORY.reported() as store:
            yield StoredFigures(store, job.job_id)

    def forget(self) -> None:
        """The job could not be started."""
        OBSERVATORY.forget(self._graph.job_id)
