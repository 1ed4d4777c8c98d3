"""Whether a job shares workers with the other jobs of its session, or has processes of its own."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.engine.hosting.network.wire.addresses import Endpoint, addresses_of, ports_in
from penstock.engine.hosting.provider import TaskManagerProvider
from penstock.engine.hosting.reporting.logs.settings import log_settings_of
from penstock.engine.hosting.spark.provider import SparkProvider, control_endpoint_of
from penstock.engine.hosting.spark.shared_provider import SharingProvider, WorkerSharing
from penstock.engine.machines.resources.resource_manager import resource_settings_of
from penstock.engine.model.config import Settings
from penstock.engine.model.options.cluster import (
    HeartbeatOptions,
    ResourceOptions,
    TaskManagerOptions,
)
from penstock.engine.model.slot_size import UNSIZED, SlotSize


def provider_for(
    settings: Settings,
    spark: SparkSession,
    switch_interval_s: float | None,
    needed: Mapping[SlotSize, int],
) -> TaskManagerProvider:
    """Return the provider of one job. `needed`: slots of each size.

    A job shares workers unless it is told not to, idle workers are not kept, or there is only one port for all who dial the driver.
    Raises: ConfigurationError.
    """
    slots, addresses = settings.get(TaskManagerOptions.SLOTS), addresses_of(settings)
    idle_ms = settings.get(ResourceOptions.TASKMANAGER_TIMEOUT)
    is_alone = settings.get(ResourceOptions.JOB_ISOLATION) or not idle_ms
    if is_alone or not _has_ports(control_endpoint_of(spark.sparkContext, addresses)):
        return SparkProvider(spark, slots, switch_interval_s, addresses)
    usual = needed.get(UNSIZED, 0)
    sharing = WorkerSharing(
        needed=usual,
        sized=sum(needed.values()) - usual,
        takes_whole=resource_settings_of(settings).load_balance != "NONE",
        idle_ms=idle_ms,
        heartbeat_interval_s=settings.get(HeartbeatOptions.INTERVAL) / 1000,
        silence_timeout_s=settings.get(TaskManagerOptions.SILENCE_TIMEOUT) / 1000,
        logs=log_settings_of(settings),
    )
    return SharingProvider(spark, slots, switch_interval_s, addresses, sharing)


def _has_ports(endpoint: Endpoint) -> bool:
    """Whether the pool of workers can listen together with jobs."""
    ports = list(ports_in(endpoint.ports, ""))
    return endpoint.port is None and (len(ports) > 1 or ports == [0])
