"""Runs jobs through Spark Connect: `engine.hosting.program.host.Host` on the session of a client, without a SparkContext."""

from __future__ import annotations

import atexit
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from pyspark import SparkContext

from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.network.wire.addresses import addresses_of
from penstock.engine.hosting.program.host import LazyFrame
from penstock.engine.hosting.provider import TaskManagerProvider
from penstock.engine.hosting.reporting.say import say_once
from penstock.engine.hosting.spark.batch.plan import Plan
from penstock.engine.hosting.spark.batch.runner import StageRunner
from penstock.engine.hosting.spark.checks import check_configuration
from penstock.engine.hosting.spark.connect.cluster import ConnectCluster
from penstock.engine.hosting.spark.connect.provider import ConnectProvider
from penstock.engine.hosting.spark.dataframes.schemas import frame_of_files
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.cluster import SparkOptions, TaskManagerOptions
from penstock.engine.model.options.network import ExchangeOptions
from penstock.engine.model.slot_size import SlotSize

_SCHEME: Final = "sc://"
_PORT: Final = 15002
_DIAL_S: Final = 10.0
_MASTER: Final = "spark.master"
_VARIABLE: Final = "SPARK_REMOTE"


def connect_url(settings: Settings, spark: Mapping[str, str]) -> str | None:
    """Return the Spark Connect server of this process; "" for that of a session that is there. None: it has none.

    `spark`: Spark settings of the command line. A SparkContext comes first, also the one that spark-submit is about to make;
    then a session, then who names a master.
    """
    if SparkContext._active_spark_context is not None:
        return None
    if _active() is not None:
        return ""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    named = settings.get(SparkOptions.MASTER) or spark.get(_MASTER) or os.environ.get(_VARIABLE)
    return named if named is not None and named.startswith(_SCHEME) else None


def _active() -> Any | None:
    """Return the session that the program has made, on whichever thread; None: none. Asks only where Connect's module
    is there already.
    """
    module = sys.modules.get("pyspark.sql.connect.session")
    if module is None:
        return None
    sessions = module.SparkSession
    return sessions.getActiveSession() or sessions._get_default_session()


class ConnectHost:
    """`engine.hosting.program.host.Host` through Spark Connect."""

    ships_modules = True
    serves_rest = True

    def __init__(self, url: str, command_line: Mapping[str, str], spark: Mapping[str, str]) -> None:
        """`url`: see `connect_url`. `spark`: Spark settings of the command line."""
        self._url = url
        self._command_line = command_line
        self._spark = spark

    def command_line(self) -> Mapping[str, str]:
        return self._command_line

    def spark_configuration(self, settings: Settings) -> dict[str, str]:
        found = dict(self._cluster().configuration)
        found.pop("spark.submit.deployMode", None)  # That of the server, not of this program.
        return found

    def default_parallelism(self, settings: Settings) -> int:
        """Return the cores that were found, except those kept for other Spark jobs; at least 1."""
        return max(1, self.cores(settings) - settings.get(SparkOptions.CORES_KEPT))

    def cores(self, settings: Settings) -> int:
        cores = self._probed_cluster(settings).cores
        if not cores:
            say_once([
                "the number of cores is not known: parallelism.default is 1 unless it is set"
            ])
        return cores or 1

    def provider(self, settings: Settings, needed: Mapping[SlotSize, int]) -> TaskManagerProvider:
        cluster = self._probed_cluster(settings)
        say_once(check_configuration(cluster.configuration, cluster.master))
        say_once(cluster.warnings())
        say_once([f"jobs run through {cluster.where()}"])
        switch_ms = settings.get(ExchangeOptions.SWITCH_INTERVAL)
        switch_interval_s = None if switch_ms is None else switch_ms / 1000
        slots = settings.get(TaskManagerOptions.SLOTS)
        return ConnectProvider(cluster, slots, switch_interval_s, addresses_of(settings))

    def check_workers(self, *, reads_frames: bool) -> None:
        """Does nothing: `provider` has probed them."""

    def stage_runner(self, settings: Settings, job: SubmittedJob, plan: Plan) -> StageRunner:
        _refuse_batch()

    def lazy_frame(
        self, settings: Settings, job: SubmittedJob, plan: Plan, frame: LazyFrame
    ) -> Any | None:
        _refuse_batch()

    def frame_of_files(self, settings: Settings, folder: str, type_info: Any) -> Any:
        return frame_of_files(self._cluster().spark, folder, type_info)

    def _probed_cluster(self, settings: Settings) -> ConnectCluster:
        cluster = self._cluster()
        cluster.probe(cluster.endpoint(addresses_of(settings)))
        return cluster

    def _cluster(self) -> ConnectCluster:
        """Raises ConfigurationError: nobody answers, or a package is missing."""
        return ConnectCluster.of(_active() or self._started())

    def _started(self) -> Any:
        if not self._url:
            raise ConfigurationError(
                "the program's Spark Connect session was stopped, or its server has ended. Make "
                "another one, and an environment after it."
            )
        parts = urlsplit(self._url)
        # What follows the address may be a token.
        named = f"{_SCHEME}{parts.netloc}"
        try:
            # Spark itself would ask for minutes, in silence.
            socket.create_connection((parts.hostname or "", parts.port or _PORT), _DIAL_S).close()
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"no Spark Connect server answers at {named}: {error}. It is started by "
                "sbin/start-connect-server.sh; its port is 15002 unless "
                "spark.connect.grpc.binding.port says otherwise."
            ) from error
        say_once([f"Spark Connect to {named}"])
        try:
            from pyspark.sql.connect.session import SparkSession
        except ImportError as error:
            raise ConfigurationError(
                f"Spark Connect needs packages that are not there: {error}. Install "
                "penstock[connect]."
            ) from error
        builder = SparkSession.builder.remote(self._url)
        for key, value in self._spark.items():
            if key != _MASTER:
                builder = builder.config(key, value)
        session = builder.getOrCreate()
        atexit.register(ConnectCluster.of(session).stop)  # Else the server keeps it for an hour.
        return session


def _refuse_batch() -> NoReturn:
    raise ConfigurationError(
        "a job in runtime mode BATCH runs in Spark's stages, for which a Spark Connect client "
        "lacks the calls. Leave execution.runtime-mode=BATCH out: a bounded "
        "stream ends in STREAMING mode, too. Or run the program as a driver of the cluster "
        "(spark-submit, or --master with the cluster's own address)."
    )
