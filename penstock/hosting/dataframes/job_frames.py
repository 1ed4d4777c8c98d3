"""The DataFrames of one streaming job: made ready before it starts, let go when it is over."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace
from typing import Any, cast

from penstock.hosting.coordinators.source_coordinator import CoordinatedVertex
from penstock.hosting.dataframes.feed_reader import FeedHosts
from penstock.hosting.dataframes.frames import (
    DriverFrame,
    FrameSurroundings,
    JobFrame,
    spool_folder,
)
from penstock.hosting.dataframes.source import FrameSource
from penstock.hosting.ha.election import SubmittedJob
from penstock.hosting.observer import JobObserver
from penstock.hosting.provider import TaskManagerProvider
from penstock.hosting.wire.addresses import addresses_of
from penstock.machines.checkpoints.settings import checkpoint_places_of
from penstock.machines.job.job_master import JobMaster
from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError
from penstock.model.states import JobStatus


def with_frames(
    job: SubmittedJob, settings: Settings, provider: TaskManagerProvider, observer: JobObserver
) -> tuple[SubmittedJob, JobObserver]:
    """The job with DataFrames of its own, since a program may submit a stream more than once, and an observer that lets go of them.

    Raises: ConfigurationError.
    """
    opened: list[JobFrame] = []

    def own(place: CoordinatedVertex) -> CoordinatedVertex:
        source = place.coordinator
        if not (isinstance(source, FrameSource) and isinstance(source.frame, DriverFrame)):
            return place
        frame = copy.copy(source.frame)
        folder = spool_folder(
            checkpoint_places_of(settings).directory,
            f"{job.graph.job_id}/{place.uid}",
            shares_files=provider.shares_files,
        )
        around = FrameSurroundings(_hosts(settings, provider), folder)
        frame.run = JobFrame(frame, place.name, around)
        opened.append(frame.run)
        return replace(place, coordinator=FrameSource(frame, source.form))

    coordinated = tuple(map(own, job.coordinated))
    closing = cast("JobObserver", _ClosingFrames(observer, opened))
    return replace(job, coordinated=coordinated), closing


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


class _ClosingFrames:
    """Passes everything on to another observer, and lets go of the frames when the job has ended."""

    def __init__(self, inner: JobObserver, frames: list[JobFrame]) -> None:
        self._inner = inner
        self._frames = frames

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def job_ended(self, status: JobStatus, job_master: JobMaster) -> None:
        """On a thread of its own, since files are removed and Spark is asked. What a suspended job has in files, the driver that
        takes it over reads.
        """
        keeps_files = status is JobStatus.SUSPENDED
        threading.Thread(
            target=_close, args=(self._frames, keeps_files), name="penstock-dataframes-end"
        ).start()
        self._inner.job_ended(status, job_master)


def _close(frames: list[JobFrame], keeps_files: bool) -> None:
    for frame in frames:
        frame.close(keeps_files=keeps_files)
