"""The DataFrames of one streaming job: made ready before it starts, released when it is over."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace

from penstock.engine.hosting.jobmanager.coordinators.source_coordinator import CoordinatedVertex
from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.network.wire.addresses import addresses_of
from penstock.engine.hosting.observer import JobEnded, JobObserver
from penstock.engine.hosting.provider import TaskManagerProvider
from penstock.engine.hosting.spark.dataframes.feed_reader import FeedHosts
from penstock.engine.hosting.spark.dataframes.frames import (
    DriverFrame,
    FrameSurroundings,
    JobFrame,
    spool_folder,
)
from penstock.engine.hosting.spark.dataframes.source import FrameSource
from penstock.engine.machines.checkpoints.settings import checkpoint_places_of
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.cluster import (
    JobManagerAddressOptions,
    TaskManagerAddressOptions,
)
from penstock.engine.model.states import JobStatus


def with_frames(
    job: SubmittedJob,
    settings: Settings,
    provider: TaskManagerProvider,
    observer: JobObserver,
) -> tuple[SubmittedJob, JobObserver]:
    """Return the job with its own DataFrames, and an observer that releases them.

    A program may submit one stream several times, so each job gets its own. Raises: ConfigurationError.
    """
    opened: list[JobFrame] = []
    hosts = _hosts(settings, provider)

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
        around = FrameSurroundings(hosts, folder)
        frame.run = JobFrame(frame, place.name, around)
        opened.append(frame.run)
        return replace(place, coordinator=FrameSource(frame, source.form))

    coordinated = tuple(map(own, job.coordinated))
    return replace(job, coordinated=coordinated), _ClosingFrames(observer, opened)


def _hosts(settings: Settings, provider: TaskManagerProvider) -> FeedHosts:
    """Raises: ConfigurationError."""
    driver, readers = provider.control_endpoint, addresses_of(settings)
    for option, mapped in (
        (JobManagerAddressOptions.BIND_PORT.key, driver.port),
        (TaskManagerAddressOptions.DATA_BIND_PORT.key, readers.data_port),
    ):
        if mapped is not None:
            raise ConfigurationError(
                f"{option} maps one port, but a source that reads a DataFrame in a streaming "
                f"job listens at a further port. Set {option.replace('bind-', '')} to a range "
                "of ports that are the same on both sides instead."
            )
    return FeedHosts(driver, readers)


class _ClosingFrames(JobObserver):
    """Passes all events on to another observer, and releases the DataFrames when the job has ended."""

    def __init__(self, inner: JobObserver, frames: list[JobFrame]) -> None:
        self._inner = inner
        self._frames = frames

    def observe(self, event: object) -> None:
        """Release the DataFrames on a separate thread, because that removes files and asks Spark.

        Files of a suspended job stay for the driver that takes it over.
        """
        if isinstance(event, JobEnded):
            keeps_files = event.status is JobStatus.SUSPENDED
            threading.Thread(
                target=_close, args=(self._frames, keeps_files), name="penstock-dataframes-end"
            ).start()
        self._inner.observe(event)


def _close(frames: list[JobFrame], keeps_files: bool) -> None:
    for frame in frames:
        frame.close(keeps_files=keeps_files)
