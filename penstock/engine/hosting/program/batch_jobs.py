"""Starts BATCH jobs, and makes DataFrames of them whose stages Spark runs when it needs them."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.jobmanager.ha.settings import ha_settings_of
from penstock.engine.hosting.observer import JobObserver, registered
from penstock.engine.hosting.program.host import Host
from penstock.engine.hosting.reporting.logs import driver as driver_log
from penstock.engine.hosting.reporting.logs.settings import log_settings_of
from penstock.engine.hosting.reporting.say import say
from penstock.engine.hosting.spark.batch.job import BatchJob
from penstock.engine.hosting.spark.batch.plan import StageSettings, plan_of, speakers_of
from penstock.engine.hosting.spark.batch.runner import StageOrder, StageRunner
from penstock.engine.model.config import Settings
from penstock.engine.model.graph.stream_graph import StreamGraph
from penstock.engine.model.ids import VertexId
from penstock.engine.model.job_events import JobSubmitted
from penstock.engine.model.options.program import ExecutionOptions
from penstock.engine.model.options.scheduling import ErrorOptions
from penstock.engine.model.options.task import MetricOptions


class BatchJobs:
    """The BATCH jobs of a host."""

    def __init__(self, host: Host, observer: JobObserver | None) -> None:
        self._host = host
        self._observer = observer

    def start_program(self, graph: StreamGraph, job: SubmittedJob, settings: Settings) -> BatchJob:
        """Start the job of a program of this process."""
        return self.start(speakers_of(job.graph, graph.nodes), job, settings)

    def start(
        self, speakers: AbstractSet[VertexId], job: SubmittedJob, settings: Settings
    ) -> BatchJob:
        """Start the job. `speakers`: see `speakers_of`."""
        if ha_settings_of(settings) is not None:
            say(
                "high-availability.type has no effect on a job in runtime mode BATCH: "
                "the job is lost with its driver"
            )
        driver_log.start(log_settings_of(settings))
        observed = registered().observed(
            job.graph, settings, serves=self._host.serves_rest, given=self._observer
        )
        plan = plan_of(job.graph, speakers)
        runner = self._host.stage_runner(settings, job, plan)
        observed.watch(job.program, None)
        look = observed.look
        made = BatchJob(job, plan, runner, observed.observer, _stage_settings(settings), look)
        observed.observer.observe(JobSubmitted(job.graph, tuple(settings.ignored_texts())))
        observed.started(made)
        made.start()
        return made

    def lazy_frame(
        self, graph: StreamGraph, job: SubmittedJob, settings: Settings, type_info: object
    ) -> Any | None:
        """Return a DataFrame whose lineage is the job; None: this host does not run BATCH jobs on Spark."""
        plan = plan_of(job.graph, speakers_of(job.graph, graph.nodes))
        stage_settings = _stage_settings(settings)

        def orders(runner: StageRunner) -> Iterator[StageOrder]:
            made = BatchJob(job, plan, runner, JobObserver(), stage_settings)
            return map(made.order_of, plan.stages)

        return self._host.lazy_frame(settings, job, plan, (orders, type_info))


def _stage_settings(settings: Settings) -> StageSettings:
    return StageSettings(
        memory=settings.get(ExecutionOptions.SORTED_INPUTS_MEMORY),
        shows_all_frames=settings.get(ErrorOptions.FULL),
        reports_metrics=bool(settings.get(MetricOptions.UPDATE_INTERVAL)),
        has_user_metrics=settings.get(MetricOptions.PYTHON),
    )
