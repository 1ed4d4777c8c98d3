"""The DataFrames of one streaming job: made ready before it starts, let go when it is over."""

from __future__ import annotations

from typing import Any

from penstock.hosting.addresses import addresses_of
from penstock.hosting.dataframes.feed_reader import FeedHosts
from penstock.hosting.dataframes.frames import (
    DriverFrame,
    FrameSurroundings,
    JobFrame,
    spool_folder,
)
from penstock.hosting.dataframes.source import FrameSource
from penstock.hosting.ha_election import SubmittedJob
from penstock.hosting.job_observer import JobObserver
from penstock.hosting.provider import TaskManagerProvider
from penstock.machines.checkpoints.settings import checkpoint_places_of
from penstock.machines.job_master import JobMaster
from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError
from penstock.model.states import JobStatus


def open_frames(
    job: SubmittedJob, settings: Settings, provider: TaskManagerProvider
) -> list[JobFrame]:
    """Those of the job's sources that have one."""
    opened: list[JobFrame] = []
    for place in job.coordinated:
        source = place.coordinator
        if isinstance(source, FrameSource) and isinstance(source.frame, DriverFrame):
            directory = checkpoint_places_of(settings).directory
            folder = spool_folder(
                directory, f"{job.graph.job_id}/{place.uid}", shares_files=provider.shares_files
            )
            hosts = _hosts(settings, provider)
            around = FrameSurroundings(hosts, folder, job.modules)
            source.frame.run = JobFrame(source.frame, place.name, around)
            opened.append(source.frame.run)
    return opened


def _hosts(settings: Settings, provider: TaskManagerProvider) -> FeedHosts:
    """Raises: ConfigurationError."""
    driver, readers = provider.control_endpoint, addresses_of(settings)
    for option, mapped in (
        ("jobmanager.rpc.bind-port", driver.port),
        ("taskmanager.data.bind-port", readers.data_port),
    ):
        if mapped is not None:
            raise ConfigurationError(
                f"{option} maps one port, and a source that reads a DataFrame in a streaming job listens at a port of its own "
                f"beside it. Give {option.replace('bind-', '')} a range of ports that are the same on both sides instead."
            )
    return FeedHosts(driver, readers)


class ClosingFrames(JobObserver):
    """Passes everything on to another observer, and lets go of the frames when the job has ended."""

    def __init__(self, inner: JobObserver, frames: list[JobFrame]) -> None:
        self._inner = inner
        self._frames = frames

    def __getattribute__(self, name: str) -> Any:
        if name == "job_ended" or name.startswith("_"):
            return super().__getattribute__(name)
        return getattr(self._inner, name)

    def job_ended(self, status: JobStatus, job_master: JobMaster) -> None:
        """What a suspended job has in files, the driver that takes it over reads."""
        try:
            self._inner.job_ended(status, job_master)
        finally:
            for frame in self._frames:
                frame.close(keeps_files=status is JobStatus.SUSPENDED)
