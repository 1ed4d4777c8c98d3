"""Starts streaming jobs: checks what the host can give, and starts a JobManager.

Does not know where a job comes from: a program, or the high availability store.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager
from dataclasses import replace

from penstock.hosting.ha.driver_attempts import check_attempt
from penstock.hosting.ha.guard import JobGuard
from penstock.hosting.ha.packed_job import SubmittedJob
from penstock.hosting.ha.settings import recovery_directory_of
from penstock.hosting.jobmanager.autoscaling import JobAutoscaler
from penstock.hosting.jobmanager.handle import JobHandle
from penstock.hosting.jobmanager.jobmanager import JobManager
from penstock.hosting.jobmanager.machine_shell import JobParts
from penstock.hosting.logs import driver as driver_log
from penstock.hosting.logs.settings import log_settings_of
from penstock.hosting.observer import JobObserver
from penstock.hosting.program.checkpoint_setup import Surroundings, with_checkpoints
from penstock.hosting.program.console import say
from penstock.hosting.program.encryption import identity_of
from penstock.hosting.program.frames_of_job import reads_frames
from penstock.hosting.program.host import Host
from penstock.hosting.program.needs import check_resources, slots_by_size
from penstock.hosting.program.observed_jobs import ObservedJob, standing_by
from penstock.hosting.program.second_attempts import with_second_attempts
from penstock.hosting.program.settings import job_manager_settings
from penstock.hosting.provider import TaskManagerProvider
from penstock.machines.autoscaler.settings import autoscaler_settings_of
from penstock.model.config import Settings
from penstock.model.graph.job_graph import JobType


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
        """Meanwhile the driver waits for the lead of a job. See `observed_jobs.standing_by`."""
        return standing_by(settings, serves=self._host.serves_rest)

    def start(
        self, job: SubmittedJob, settings: Settings, guard: JobGuard, *, has_program: bool = True
    ) -> JobHandle:
        """Start a JobManager. `has_program`: the program runs in this process and takes collected results.

        Raises: NoResourceAvailable, ConfigurationError.
        """
        driver_log.start(log_settings_of(settings))
        spark = self._host.spark_configuration(settings)
        check_attempt(job, settings, spark, say)
        scaling = autoscaler_settings_of(settings)
        provider = self.provider(job, settings)
        built = with_checkpoints(
            job_manager_settings(settings, job.program),
            settings,
            job.graph,
            _surroundings(provider, settings, guard),
        )
        built = with_second_attempts(built, settings, job, say)
        identity = identity_of(settings, spark)
        built = replace(built, identity=identity)
        observed = ObservedJob(
            job.graph, settings, serves=self._host.serves_rest, given=self._observer
        )
        observed.watch(job.program, built.job.checkpoints)
        observer = observed.observer
        if reads_frames(job):
            from penstock.hosting.dataframes.job_frames import with_frames

            job, observer = with_frames(
                job, settings, provider, observer, is_encrypted=identity is not None
            )
        parts = JobParts(
            job.graph, job.coordinated, provider, built, observer, job.modules, guard, has_program
        )
        try:
            manager = JobManager(parts)
        except BaseException:  # An interrupt, too, must not leave its directory.
            if built.storage is not None:
                built.storage.drop_unused()
            observed.forget()
            raise
        observer.submitted(job.graph, settings.ignored_texts())
        manager.start()
        handle = JobHandle(manager, observed.look, observed.way_to_stop)
        if scaling.is_enabled and job.graph.job_type is JobType.STREAMING:
            handle.scale(JobAutoscaler(scaling, handle, observed.reported))
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
