"""Runs jobs on Spark: `engine.hosting.program.host.Host` on the session of this process, which spark/session.py finds or starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.observer import registered
from penstock.engine.hosting.program.connect_host import ConnectHost, connect_url
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.host import Host, LazyFrame
from penstock.engine.hosting.provider import TaskManagerProvider
from penstock.engine.hosting.reporting.say import say, say_once
from penstock.engine.hosting.spark.batch.plan import Plan
from penstock.engine.hosting.spark.batch.runner import StageRunner
from penstock.engine.hosting.spark.batch.spark_runner import SparkRunner
from penstock.engine.hosting.spark.checks import check_configuration, network_warnings
from penstock.engine.hosting.spark.dataframes.schemas import frame_of_files, frame_of_messages
from penstock.engine.hosting.spark.session import (
    active_session,
    give_away,
    launched_configuration,
    names_master,
    session_for,
)
from penstock.engine.hosting.spark.session_workers import make_room
from penstock.engine.hosting.spark.shared_provider import provider_for
from penstock.engine.hosting.spark.slots import SparkSlots, configuration_of, page_of
from penstock.engine.hosting.spark.worker_python import check_executable, check_workers
from penstock.engine.model.config import Settings
from penstock.engine.model.options.cluster import SparkOptions, TaskManagerOptions
from penstock.engine.model.options.network import ExchangeOptions
from penstock.engine.model.program import JobExecutor
from penstock.engine.model.slot_size import UNSIZED, SlotSize

_SPARE_LOCAL_CORES: Final = 1


class Overrides:
    """Process-wide settings of the command line."""

    executor: JobExecutor | None = None
    settings: Mapping[str, str] = {}
    spark: Mapping[str, str] = {}


def override_executor(executor: JobExecutor | None) -> None:
    """Make programs of this process run on this executor; None: on Spark again."""
    Overrides.executor = executor


def set_command_line(settings: Mapping[str, str], spark: Mapping[str, str] | None = None) -> None:
    """Apply `-D` settings: they override Spark's, and the program's override them. `spark`: Spark settings of a session that starts here."""
    Overrides.settings = dict(settings)
    Overrides.spark = dict(spark or {})


def spark_session(settings: Settings, cores: int) -> SparkSession:
    """Return the session of this process, as `session_for` does. Raises ConfigurationError: it does not start."""
    session = active_session() or session_for(settings, cores, Overrides.spark)
    registered().spark_started(page_of(session.sparkContext))
    return session


def start_for_session(settings: Settings) -> None:
    """Start Spark for a session, with all cores of this machine unless a master is named.

    It counts as a user's from then on: jobs share it as it is, and none of them starts it anew with more cores.
    Raises: ConfigurationError: it does not start.
    """
    if active_session() is None:
        spark_session(settings, os.cpu_count() or 1)
        give_away()


class SparkHost:
    """`engine.hosting.program.host.Host` on Spark."""

    ships_modules = True
    serves_rest = True

    def __init__(self, configuration: Mapping[str, str] | None = None) -> None:
        self._configuration = dict(configuration or {})

    def command_line(self) -> Mapping[str, str]:
        return Overrides.settings

    def spark_configuration(self, settings: Settings) -> dict[str, str]:
        spark = active_session()
        if spark is None:
            return launched_configuration(settings, Overrides.spark)
        return dict(configuration_of(spark.sparkContext))

    def default_parallelism(self, settings: Settings) -> int:
        """Return the cores that Spark can give, except those kept for other Spark jobs; at least 1."""
        cores = self.cores(settings)
        kept = 0 if active_session() is None else settings.get(SparkOptions.CORES_KEPT)
        return max(1, cores - kept)

    def cores(self, settings: Settings) -> int:
        """Return the cores of the session, or of this machine, where an embedded one would be started."""
        spark = active_session()
        if spark is None and names_master(settings, Overrides.spark):
            spark = spark_session(settings, 1)
        return os.cpu_count() or 1 if spark is None else SparkSlots(spark.sparkContext).total()

    def provider(self, settings: Settings, needed: Mapping[SlotSize, int]) -> TaskManagerProvider:
        slots = settings.get(TaskManagerOptions.SLOTS)
        usual = needed.get(UNSIZED, 0)
        taskmanagers = -(-usual // slots) + sum(needed.values()) - usual
        spark = spark_session(settings, taskmanagers + _SPARE_LOCAL_CORES)
        context = spark.sparkContext
        check_executable(settings, context)
        configuration = configuration_of(context)
        say_once(check_configuration(configuration, context.master))
        switch_ms = settings.get(ExchangeOptions.SWITCH_INTERVAL)
        switch_interval_s = None if switch_ms is None else switch_ms / 1000
        return provider_for(settings, spark, switch_interval_s, needed)

    def check_workers(self, *, reads_frames: bool) -> None:
        """As the port. On the driver's machine TaskManagers run the driver's own interpreter."""
        context = SparkContext._active_spark_context
        if context is not None:
            _say_where(context)
            needs_pyarrow = reads_frames or not SparkSlots(context).is_local
            check_workers(context, needs_pyarrow=needs_pyarrow, say=say)

    def stage_runner(self, settings: Settings, job: SubmittedJob, plan: Plan) -> StageRunner:
        """Return a runner. Of Spark's configuration only the network is looked at: speculation and
        killed idle workers do no harm to stages.
        """
        return SparkRunner(_session_for(settings, plan), plan, job)

    def lazy_frame(
        self, settings: Settings, job: SubmittedJob, plan: Plan, frame: LazyFrame
    ) -> DataFrame:
        spark = _session_for(settings, plan)
        runner = SparkRunner(spark, plan, job)
        orders, type_info = frame
        return frame_of_messages(spark, runner.lineage(orders(runner)), type_info)

    def frame_of_files(self, settings: Settings, folder: str, type_info: Any) -> DataFrame:
        return frame_of_files(spark_session(settings, 1), folder, type_info)


def _say_where(context: SparkContext) -> None:
    """Print the master, and how many executors it has given; again when there are others."""
    say_once([SparkSlots(context).where()])


def _session_for(settings: Settings, plan: Plan) -> SparkSession:
    """Return a session whose workers can run the stages. Raises: ConfigurationError."""
    most = max(stage.vertex.parallelism for stage in plan.stages)
    spark = spark_session(settings, most)
    context = spark.sparkContext
    say_once(network_warnings(configuration_of(context), context.master))
    make_room(context, most)
    check_executable(settings, context)
    check_workers(context, needs_pyarrow=True, say=say)
    _say_where(context)
    return spark


def default_executor(configuration: Mapping[str, str] | None = None) -> JobExecutor:
    """Return the executor of programs: on Spark, unless the command line says otherwise."""
    if Overrides.executor is not None:
        return Overrides.executor
    remote = registered().remote_executor(configuration or {}, Overrides.settings)
    return remote or ClusterExecutor(default_host(configuration))


def default_host(configuration: Mapping[str, str] | None = None) -> Host:
    """Return what runs this program's jobs: its SparkContext, or that of a Spark Connect server."""
    settings = Settings(configuration or {}, command_line=Overrides.settings)
    url = connect_url(settings, Overrides.spark)
    if url is not None:
        return ConnectHost(url, Overrides.settings, Overrides.spark)
    return SparkHost(configuration)
