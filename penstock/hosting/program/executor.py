"""Runs a program: StreamGraph -> JobGraph -> JobManager with TaskManagers of a host. Implements the
ports of `model.program`.

Source: Flink's PipelineExecutor and ClusterEntrypoint. Mistakes that can be found in advance are
reported before anything starts.
"""

from __future__ import annotations

import random
import re
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.compiler.job_graph_builder import build_job_graph
from penstock.hosting.batch.job import BatchJob
from penstock.hosting.batch.plan import plan_of, speakers_of
from penstock.hosting.batch.runner import StageOrder, StageRunner
from penstock.hosting.coordinators.coordinators import coordinated_vertices
from penstock.hosting.ha.election import Claim, Election, SubmittedJob, key_of
from penstock.hosting.ha.guard import JobGuard
from penstock.hosting.ha.recovery import (
    drop_leftovers,
    ended_elsewhere,
    finish_recorded,
    told_of_recovery,
)
from penstock.hosting.ha.settings import ha_settings_of, recovery_directory_of
from penstock.hosting.ha.store import Ended
from penstock.hosting.jobmanager.handle import JobHandle
from penstock.hosting.jobmanager.jobmanager import JobManager
from penstock.hosting.jobmanager.machine_shell import JobParts
from penstock.hosting.observer import JobObserver
from penstock.hosting.program.checkpoint_setup import Surroundings, with_checkpoints
from penstock.hosting.program.console import Console
from penstock.hosting.program.frames_of_job import lend_frames, reads_frames
from penstock.hosting.program.host import Host
from penstock.hosting.program.needs import (
    check_resources,
    check_sizes,
    slots_by_size,
)
from penstock.hosting.program.results_folder import results_folder
from penstock.hosting.program.settings import (
    HOST_DEFAULTS,
    job_manager_settings,
    python_archives,
    python_files,
    python_requirements,
)
from penstock.hosting.provider import TaskManagerProvider
from penstock.hosting.shipping.in_process import import_here
from penstock.hosting.shipping.pickling import serialize
from penstock.hosting.shipping.program_modules import user_modules_archive
from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError
from penstock.model.graph.auto_parallelism import auto_parallelism_of
from penstock.model.graph.stream_graph import StreamGraph
from penstock.model.ids import JobId
from penstock.model.options.checkpoints import CheckpointOptions
from penstock.model.options.program import ExecutionOptions, PipelineOptions
from penstock.model.options.scheduling import SchedulingOptions
from penstock.model.program import JobControl, ProgramSettings
from penstock.model.slot_size import UNSIZED, SlotSize
from penstock.runtime.batch.graph import in_batch


class ClusterExecutor:
    """`model.program.JobExecutor` on a host."""

    def __init__(self, host: Host, observer: JobObserver | None = None) -> None:
        self._host = host
        self._observer = observer

    def serialize(self, value: object) -> bytes:
        return serialize(value)

    def submit(self, graph: StreamGraph, program: ProgramSettings) -> JobControl:
        """Run the job. Raises GraphError, ConfigurationError, NoResourceAvailable before anything
        starts.

        With high availability: waits while another driver runs this job, and takes it over when
        that driver dies.
        """
        settings = self._settings(program)
        graph, job = self._built(graph, program, settings)
        if graph.is_batch:
            return self._run_batch(graph, job, settings)
        ha = ha_settings_of(settings)
        if ha is None:
            return self._run(job, settings, JobGuard())
        self._provider(job, settings)  # Announce only a job that this driver can run.
        found = Election(ha, _say).claim(key_of(job.graph, _fixed_job_id(settings)), job)
        if isinstance(found, Ended):
            return ended_elsewhere(found)
        lend_frames(found.job, job)
        return self._run_claimed(found, settings)

    def lazy_frame(
        self, graph: StreamGraph, program: ProgramSettings, type_info: object
    ) -> Any | None:
        """See `model.program.JobExecutor`."""
        if not graph.is_batch:
            return None
        settings = self._settings(program)
        graph, job = self._built(graph, program, settings, knows_volumes=False)
        plan = plan_of(job.graph, speakers_of(job.graph, graph.nodes))
        memory = settings.get(ExecutionOptions.SORTED_INPUTS_MEMORY)

        def orders(runner: StageRunner) -> Iterator[StageOrder]:
            made = BatchJob(job, plan, runner, JobObserver(), memory)
            return map(made.order_of, plan.stages)

        return self._host.lazy_frame(settings, job, plan, (orders, type_info))

    def results_folder(self, program: ProgramSettings) -> str:
        """See `model.program.JobExecutor`."""
        settings = self._settings(program)
        provider = self._host.provider(settings, {UNSIZED: 1})
        directory = settings.get(CheckpointOptions.DIR)
        return results_folder(directory, shares_files=provider.shares_files)

    def frame_of_files(self, folder: str, program: ProgramSettings, type_info: Any) -> Any:
        """See `model.program.JobExecutor`."""
        return self._host.frame_of_files(self._settings(program), folder, type_info)

    def _built(
        self,
        graph: StreamGraph,
        program: ProgramSettings,
        settings: Settings,
        *,
        knows_volumes: bool = True,
    ) -> tuple[StreamGraph, SubmittedJob]:
        """Build the job with the host's defaults and the operators of its runtime mode.

        `knows_volumes`: stages run one after the other, so the size of the data can decide the
        parallelism of later ones. Otherwise (the lineage of a DataFrame) all parallelisms are set
        in advance.
        """
        configured = settings.get(SchedulingOptions.DEFAULT_PARALLELISM)
        if configured is None:
            configured = self._host.default_parallelism(settings)
        graph.default_parallelism = configured
        fixed_id = _fixed_job_id(settings)
        if graph.is_batch:
            if knows_volumes:
                graph.auto_parallelism = auto_parallelism_of(settings, self._host.cores())
            graph = in_batch(graph, is_combining=settings.get(ExecutionOptions.BATCH_COMBINE))
        job_graph = build_job_graph(graph, JobId(fixed_id or uuid.uuid4().hex), serialize)
        check_sizes(job_graph)
        files = python_files(settings, program)
        if not self._host.ships_modules:
            import_here(files)
        return graph, SubmittedJob(
            job_graph,
            tuple(coordinated_vertices(job_graph.vertices, graph.nodes)),
            replace(
                program,
                configuration=settings.as_text(),
                python_archives=python_archives(settings, program),
                python_requirements=python_requirements(settings, program),
            ),
            user_modules_archive(files) if self._host.ships_modules else b"",
        )

    def _run_batch(self, graph: StreamGraph, job: SubmittedJob, settings: Settings) -> BatchJob:
        if ha_settings_of(settings) is not None:
            _say(
                "high-availability.type has no effect on a job in runtime mode BATCH: the "
                "job is lost with its driver"
            )
        observer = self._observer or Console(settings)
        plan = plan_of(job.graph, speakers_of(job.graph, graph.nodes))
        runner = self._host.stage_runner(settings, job, plan)
        memory = settings.get(ExecutionOptions.SORTED_INPUTS_MEMORY)
        made = BatchJob(job, plan, runner, observer, memory)
        observer.submitted(job.graph, settings.ignored_keys())
        made.start()
        return made

    def recover(self, configuration: Mapping[str, str]) -> list[tuple[str, JobControl]]:
        """Take over all jobs of a cluster-id whose drivers are gone. Returns: their names, and the
        jobs that now run.

        Raises ConfigurationError, and the error of a job that cannot be started here.
        """
        settings = self._settings(ProgramSettings(configuration))
        ha = ha_settings_of(settings)
        if ha is None:
            raise ConfigurationError(
                "there is nothing to recover, because high-availability.type is NONE. Set it to "
                "the type with which the jobs were run."
            )
        election = Election(ha, _say)
        claims = [election.claim_abandoned(key) for key in election.store.job_keys()]
        found = [claim for claim in claims if claim is not None]
        needed: Counter[SlotSize] = Counter()
        for claim in found:
            if claim.result is None:
                needed.update(slots_by_size(claim.job.graph))
        if needed:
            # Starts an embedded Spark that has room for all of them.
            self._host.provider(settings, needed)
        return [
            (claim.job.graph.name, self._run_claimed(claim, settings, has_program=False))
            for claim in found
        ]

    def _settings(self, program: ProgramSettings) -> Settings:
        return Settings(
            program.configuration,
            command_line=self._host.command_line(),
            spark=self._host.spark_configuration(),
            defaults=HOST_DEFAULTS,
        )

    def _run_claimed(
        self, claim: Claim, settings: Settings, *, has_program: bool = True
    ) -> JobControl:
        """Run the job of a claim; if its end was recorded already, only carry that out again."""
        try:
            if claim.result is not None:
                _say(told_of_recovery(claim))
                return finish_recorded(claim, claim.result)
            if claim.is_recovered:
                _say(told_of_recovery(claim))
                settings = self._settings(claim.job.program)
                if not claim.keeper.former_checkpoints:
                    drop_leftovers(claim.job)
            return self._run(claim.job, settings, claim.keeper, has_program=has_program)
        except BaseException:  # An interrupt, too, must not leave the job claimed.
            claim.keeper.abandon(is_wanted=claim.is_recovered)
            raise

    def _provider(self, job: SubmittedJob, settings: Settings) -> TaskManagerProvider:
        """Return the host's provider for the job. Raises NoResourceAvailable."""
        needed = slots_by_size(job.graph)
        provider = self._host.provider(settings, needed)
        provider.bring_files(job.program)
        check_resources(provider, needed, int(reads_frames(job)))
        return provider

    def _run(
        self, job: SubmittedJob, settings: Settings, guard: JobGuard, *, has_program: bool = True
    ) -> JobHandle:
        provider = self._provider(job, settings)
        built = with_checkpoints(
            job_manager_settings(settings, job.program),
            settings,
            job.graph,
            Surroundings(
                provider.shares_files,
                draw=lambda: random.uniform(-1.0, 1.0),
                say=_say,
                recovery_directory=recovery_directory_of(settings),
                pointers=guard.former_checkpoints,
            ),
        )
        observer = self._observer or Console(settings)
        if reads_frames(job):
            from penstock.hosting.dataframes.job_frames import with_frames

            job, observer = with_frames(job, settings, provider, observer)
        try:
            manager = JobManager(
                JobParts(job.graph, job.coordinated, provider, built, observer, job.modules, guard)
            )
        except BaseException:  # An interrupt, too, must not leave the directory.
            if built.storage is not None:
                built.storage.drop_unused()
            raise
        if not has_program:
            manager.drop_collected()
        observer.submitted(job.graph, settings.ignored_keys())
        manager.start()
        return JobHandle(manager)


def _say(text: str) -> None:
    print(f"penstock: {text}", file=sys.stderr, flush=True)


def _fixed_job_id(settings: Settings) -> str | None:
    """Raises ConfigurationError."""
    text = settings.get(PipelineOptions.FIXED_JOB_ID)
    if text is None:
        return None
    if re.fullmatch(r"[0-9a-fA-F]{32}", text) is None:
        raise ConfigurationError(
            f"option 'pipeline.fixed-job-id' is {text!r}, but it takes 32 hexadecimal digits. "
            "Change the setting."
        )
    return text.lower()
