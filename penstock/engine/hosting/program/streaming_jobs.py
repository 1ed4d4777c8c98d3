"""Starts streaming jobs: checks what the host can give, and starts a JobManager.

Does not know where a job comes from: a program, or the high availability store.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager

from penstock.engine.hosting.jobmanager.ha.guard import JobGuard
from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.jobmanager.ha.settings import check_attempt, recovery_directory_of
from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.engine.hosting.jobmanager.jobmanager import JobManager
from penstock.engine.hosting.jobmanager.machine_shell import JobParts
from penstock.engine.hosting.observer import JobObserver, registered
from penstock.engine.hosting.program.checkpoint_setup import Surroundings, with_checkpoints
from penstock.engine.hosting.program.host import Host, check_resources, reads_frames, slots_by_size
from penstock.engine.hosting.program.settings import job_manager_settings
from penstock.engine.hosting.provider import TaskManagerProvider
from penstock.engine.hosting.reporting.logs import driver as driver_log
from penstock.engine.hosting.reporting.logs.settings import log_settings_of
from penstock.engine.hosting.reporting.say import say
from penstock.engine.model.config import Settings
from penstock.engine.model.job_events import JobSubmitted


class StreamingJobs:
    """The streaming jobs of a host."""

    def __init__(self, host: Host, observer: JobObserver | None) -> None:
        self._host = host
        self._observer = observer

    def provider(self, job: SubmittedJob, settings: Settings) -> TaskManagerProvider:
        """Return the host's provider of TaskManagers for the job.

        Raises: NoResourceAvailable: the host has too few slots. ConfigurationError: tasks cannot run there.
        """
        needed = slots_by_size(job.graph)
        provider = self._host.provider(settings, needed)
        provider.bring_files(job.program, job.modules)
        check_resources(provider, needed, int(reads_frames(job)))
        self._host.check_workers(reads_frames=reads_frames(job))
        return provider

    def standing_by(self, settings: Settings) -> AbstractContextManager[None]:
        """Meanwhile the driver waits for the lead of a job. See `Operations`."""
        return registered().standing_by(settings, serves=self._host.serves_rest)

    def start(
        self, job: SubmittedJob, settings: Settings, guard: JobGuard, *, has_program: bool = True
    ) -> JobHandle:
        """Start a JobManager. `has_program`: the program runs in this process and takes collected results.

        Raises: NoResourceAvailable, ConfigurationError.
        """
        driver_log.start(log_settings_of(settings))
        spark = self._host.spark_configuration(settings)
        check_attempt(job, settings, spark, say)
        registered().check(settings)
        provider = self.provider(job, settings)
        built = with_checkpoints(
            job_manager_settings(settings, job.program),
            settings,
            job.graph,
            _surroundings(provider, settings, guard),
        )
        observed = registered().observed(
            job.graph, settings, serves=self._host.serves_rest, given=self._observer
        )
        observed.watch(job.program, built.job.checkpoints)
        observer = observed.observer
        if reads_frames(job):
            from penstock.engine.hosting.spark.dataframes.frames import with_frames

            job, observer = with_frames(job, settings, provider, observer)
        parts = JobParts(
            job.graph, job.coordinated, provider, built, observer, job.modules, guard, has_program,
            job.classes,
        )  # fmt: skip
        try:
            manager = JobManager(parts)
        except BaseException:  # An interrupt, too, must not leave its directory.
            if built.storage is not None:
                built.storage.drop_unused()
            observed.forget()
            raise
        observer.observe(JobSubmitted(job.graph, tuple(settings.ignored_texts())))
        manager.start()
        handle = JobHandle(manager, observed)
        observed.started(handle)
        return handle


def _surroundings(
    provider: TaskManagerProvider, settings: Settings, guard: JobGuard
) -> Surroundings:
    return Surroundings(
        provider.shares_files,
        draw=lambda: random.Random().uniform(-1.0, 1.0),
        say=say,
        recovery_directory=recovery_directory_of(settings),
        pointers=guard.former_checkpoints,
    )
