"""From configuration to what the shells and machines are given."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from penstock.hosting.jobmanager.machine_shell import JobManagerSettings
from penstock.hosting.task_settings import TaskSettings
from penstock.machines.job.job_settings import job_settings_of
from penstock.machines.resources.resource_manager import max_taskmanagers_of, resource_settings_of
from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError
from penstock.model.program import ProgramSettings
from penstock.runtime.network.network_settings import network_settings_of
from penstock.runtime.network.partition.settings import blocking_settings_of
from penstock.runtime.state.settings import state_backend_settings_of
from penstock.runtime.task.latency import Granularity

# A supervisor heartbeats for its TaskManager even while a C call holds the GIL, so short times are safe here.
HOST_DEFAULTS: Final[Mapping[str, object]] = {
    "heartbeat.interval": "500 ms",
    "heartbeat.timeout": "3 s",
    # Flink has 2 for each channel; see NetworkSettings for why few channels have more.
    "penstock.exchange.exclusive-buffers-per-gate": 16,
    # A new TaskManager costs a second, so that a task that does not end after its cancel need not be waited for.
    "task.cancellation.interval": "500 ms",
    "task.cancellation.timeout": "3 s",
}


def python_files(settings: Settings, program: ProgramSettings) -> list[str]:
    """Files whose modules the TaskManagers need: of the program and of `python.files`."""
    configured = (settings.get_str("python.files") or "").split(",")
    return [*program.python_files, *filter(None, map(str.strip, configured))]


def python_archives(
    settings: Settings, program: ProgramSettings
) -> tuple[tuple[str, str | None], ...]:
    """(archive, where it is found): of the program and of `python.archives`, as a.zip#where,b.zip."""
    found = list(program.python_archives)
    for one in filter(None, (settings.get_str("python.archives") or "").split(",")):
        path, _, target = one.strip().partition("#")
        found.append((path, target or None))
    return tuple(found)


def python_requirements(
    settings: Settings, program: ProgramSettings
) -> tuple[str, str | None] | None:
    """(file, folder with packages): of the program, else of `python.requirements`, as file#folder."""
    if program.python_requirements is not None:
        return program.python_requirements
    path, _, folder = (settings.get_str("python.requirements") or "").partition("#")
    return (path, folder or None) if path else None


def _job_parameters(settings: Settings, program: ProgramSettings) -> tuple[tuple[str, str], ...]:
    """Of the configuration and of the program, which counts more."""
    configured = settings.get("pipeline.global-job-parameters")
    found = configured if isinstance(configured, dict) else {}
    return tuple({**found, **program.job_parameters}.items())


def _granularity(settings: Settings) -> Granularity:
    key = "metrics.latency.granularity"
    text = (settings.get_str(key) or "").lower()
    try:
        return Granularity(text)
    except ValueError:
        expected = ", ".join(Granularity)
        raise ConfigurationError(f"{key}: expected one of {expected}, got {text!r}") from None


def job_manager_settings(settings: Settings, program: ProgramSettings) -> JobManagerSettings:
    """Raises ConfigurationError for a value out of range."""
    return JobManagerSettings(
        job=job_settings_of(settings, lambda: random.uniform(-1.0, 1.0)),
        resources=resource_settings_of(settings),
        task=TaskSettings(
            max_step_ms=settings.get_float("penstock.task.max-step-time"),
            frame_bytes=settings.get_int("penstock.exchange.frame-size"),
            watermark_interval_ms=program.auto_watermark_interval_ms,
            latency_interval_ms=settings.get_int("metrics.latency.interval"),
            latency_granularity=_granularity(settings),
            may_leave_splits_unaligned=bool(
                settings.get("pipeline.watermark-alignment.allow-unaligned-source-splits")
            ),
            cancellation_interval_ms=settings.get_int("task.cancellation.interval"),
            slow_call_ms=settings.get_int("penstock.task.slow-call"),
            checks_threads=settings.get_bool("penstock.task.check-threads"),
            job_parameters=_job_parameters(settings, program),
            network=network_settings_of(settings),
            blocking=blocking_settings_of(settings),
            state_backend=state_backend_settings_of(settings),
        ),
        heartbeat_interval_s=settings.get_int("heartbeat.interval") / 1000,
        heartbeat_timeout_s=settings.get_int("heartbeat.timeout") / 1000,
        cancellation_timeout_s=settings.get_int("task.cancellation.timeout") / 1000,
        frozen_timeout_s=settings.get_int("penstock.taskmanager.frozen-timeout") / 1000,
        max_taskmanagers=max_taskmanagers_of(settings),
        silence_timeout_s=settings.get_int("penstock.jobmanager.silence-timeout") / 1000,
        checkpoint_history_size=settings.get_int("web.checkpoints.history"),
    )
