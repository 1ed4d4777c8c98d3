"""From the configuration to the settings of shells and machines."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from penstock.engine.hosting.jobmanager.flame_graphs import StackSettings
from penstock.engine.hosting.jobmanager.machine_shell import JobManagerSettings
from penstock.engine.hosting.reporting.logs.settings import log_settings_of
from penstock.engine.hosting.reporting.metrics.taskmanager import MetricSettings
from penstock.engine.hosting.taskmanager_order import StepSettings, TaskSettings, WatchSettings
from penstock.engine.machines.job_state.job_settings import job_settings_of
from penstock.engine.machines.resources.resource_manager import (
    max_taskmanagers_of,
    resource_settings_of,
)
from penstock.engine.model.config import Layer, Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.cluster import HeartbeatOptions, TaskManagerOptions
from penstock.engine.model.options.network import ExchangeOptions
from penstock.engine.model.options.program import (
    REMOTE,
    DeploymentOptions,
    PipelineOptions,
    PythonOptions,
)
from penstock.engine.model.options.scheduling import ErrorOptions
from penstock.engine.model.options.task import MetricOptions, StackOptions, TaskOptions
from penstock.engine.model.program import ProgramSettings
from penstock.engine.runtime.network.network_settings import (
    blocking_settings_of,
    network_settings_of,
)
from penstock.engine.runtime.state.settings import state_backend_settings_of
from penstock.engine.runtime.task.latency import Granularity, LatencySettings

# A supervisor sends heartbeats for its TaskManager even while a C call holds the GIL, so short
# times are safe here.
HOST_DEFAULTS: Final[Mapping[str, object]] = {
    HeartbeatOptions.INTERVAL.key: "500 ms",
    HeartbeatOptions.TIMEOUT.key: "3 s",
    # Flink has 2 for each channel. NetworkSettings says why a gate with few channels gets more.
    ExchangeOptions.EXCLUSIVE_BUFFERS_PER_GATE.key: 16,
    # A new TaskManager starts within a second, so there is no need to wait long for a task that
    # does not end.
    TaskOptions.CANCELLATION_INTERVAL.key: "500 ms",
    TaskOptions.CANCELLATION_TIMEOUT.key: "3 s",
    # Nothing is sampled before somebody asks.
    StackOptions.FLAME_GRAPHS.key: "true",
}

_LEAST_PROBING_MS: Final = 5000


def python_files(settings: Settings, program: ProgramSettings) -> list[str]:
    """Return the files whose modules the TaskManagers need: those of the program and of `python.files`."""
    configured = (settings.get(PythonOptions.FILES) or "").split(",")
    return [*program.python_files, *filter(None, map(str.strip, configured))]


def python_archives(
    settings: Settings, program: ProgramSettings
) -> tuple[tuple[str, str | None], ...]:
    """Return (archive, name in the working directory): of the program and of `python.archives`, as a.zip#name,b.zip."""
    found = list(program.python_archives)
    for one in filter(None, (settings.get(PythonOptions.ARCHIVES) or "").split(",")):
        path, names_target, target = one.strip().partition("#")
        found.append((path, target if names_target else None))
    return tuple(found)


def python_requirements(
    settings: Settings, program: ProgramSettings
) -> tuple[str, str | None] | None:
    """Return (file, folder with packages): of the program, else of `python.requirements`, as file#folder."""
    if program.python_requirements is not None:
        return program.python_requirements
    path, _, folder = (settings.get(PythonOptions.REQUIREMENTS) or "").partition("#")
    return (path, folder or None) if path else None


def refuse_late_target(settings: Settings) -> None:
    """Raises ConfigurationError: Spark's configuration sends jobs to a session, and Spark is only read by a program's own driver."""
    key = DeploymentOptions.TARGET.key
    if settings.get(DeploymentOptions.TARGET) == REMOTE and settings.origins()[key] is Layer.SPARK:
        raise ConfigurationError(
            f"{key} is {REMOTE!r} in Spark's configuration, but a program that submits its jobs to "
            f"a session starts no Spark. Set it by -D {key}={REMOTE} or in the program."
        )


def job_parameters(settings: Settings, program: ProgramSettings) -> dict[str, str]:
    """Merge the parameters of the configuration and of the program; the program's win."""
    found = settings.get(PipelineOptions.GLOBAL_JOB_PARAMETERS) or {}
    return {**found, **program.job_parameters}


def _watch_settings(settings: Settings) -> WatchSettings:
    return WatchSettings(
        cancellation_interval_ms=settings.get(TaskOptions.CANCELLATION_INTERVAL),
        cancellation_timeout_ms=settings.get(TaskOptions.CANCELLATION_TIMEOUT),
        progress_timeout_ms=settings.get(TaskOptions.PROGRESS_TIMEOUT),
        fails_without_progress=settings.get(TaskOptions.FAIL_WITHOUT_PROGRESS),
    )


def _stack_settings(settings: Settings) -> StackSettings:
    return StackSettings(
        samples=settings.get(StackOptions.SAMPLES),
        delay_ms=settings.get(StackOptions.DELAY),
        depth=settings.get(StackOptions.DEPTH),
        refresh_ms=settings.get(StackOptions.REFRESH_INTERVAL),
        cleanup_ms=settings.get(StackOptions.CLEANUP_INTERVAL),
        dump_depth=settings.get(StackOptions.DUMP_DEPTH),
        has_flame_graphs=settings.get(StackOptions.FLAME_GRAPHS),
    )


def metric_settings(settings: Settings) -> MetricSettings:
    """What TaskManagers measure and report."""
    probing_ms = max(_LEAST_PROBING_MS, settings.get(MetricOptions.SYSTEM_RESOURCE_INTERVAL))
    return MetricSettings(
        report_interval_ms=settings.get(MetricOptions.UPDATE_INTERVAL),
        probing_interval_ms=probing_ms if settings.get(MetricOptions.SYSTEM_RESOURCE) else 0,
        is_python_enabled=settings.get(MetricOptions.PYTHON),
        has_channel_details=settings.get(MetricOptions.NETWORK_DETAILS),
        latency=LatencySettings(
            Granularity(settings.get(MetricOptions.LATENCY_GRANULARITY)),
            settings.get(MetricOptions.LATENCY_HISTORY),
        ),
    )


def job_manager_settings(settings: Settings, program: ProgramSettings) -> JobManagerSettings:
    """Raises ConfigurationError for a value out of range."""
    return JobManagerSettings(
        job=job_settings_of(settings, lambda: random.Random().uniform(-1.0, 1.0)),
        resources=resource_settings_of(settings),
        task=TaskSettings(
            steps=StepSettings(
                settings.get(TaskOptions.MAX_STEP_TIME), settings.get(TaskOptions.COLUMN_ROWS) or 0
            ),
            frame_bytes=settings.get(ExchangeOptions.FRAME_SIZE),
            watermark_interval_ms=settings.get(PipelineOptions.AUTO_WATERMARK_INTERVAL),
            latency_interval_ms=settings.get(MetricOptions.LATENCY_INTERVAL),
            may_leave_splits_unaligned=bool(
                settings.get(PipelineOptions.ALLOW_UNALIGNED_SOURCE_SPLITS)
            ),
            watch=_watch_settings(settings),
            checks_threads=settings.get(TaskOptions.CHECK_THREADS),
            shows_all_frames=settings.get(ErrorOptions.FULL),
            job_parameters=tuple(program.job_parameters.items()),
            network=network_settings_of(settings),
            blocking=blocking_settings_of(settings),
            state_backend=state_backend_settings_of(settings),
            metrics=metric_settings(settings),
        ),
        heartbeat_interval_s=settings.get(HeartbeatOptions.INTERVAL) / 1000,
        heartbeat_timeout_s=settings.get(HeartbeatOptions.TIMEOUT) / 1000,
        cancellation_timeout_s=settings.get(TaskOptions.CANCELLATION_TIMEOUT) / 1000,
        frozen_timeout_s=settings.get(TaskManagerOptions.FROZEN_TIMEOUT) / 1000,
        max_taskmanagers=max_taskmanagers_of(settings),
        silence_timeout_s=settings.get(TaskManagerOptions.SILENCE_TIMEOUT) / 1000,
        logs=log_settings_of(settings),
        stacks=_stack_settings(settings),
    )
