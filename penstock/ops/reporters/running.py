"""The reporters of this process: each is started with the first job that names it, and ends with the process.

A reporter that cannot be started is logged, and jobs go on without it. Source: Flink MetricRegistryImpl; differs: the driver reports
for all processes of its jobs.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final, Protocol

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.ops.reporters.extra import needs_extra
from penstock.ops.reporters.settings import (
    HAPPENINGS,
    METRICS,
    SPANS,
    ReporterKind,
    ReporterSettings,
    reporters_in,
)

_LOG: Final = logging.getLogger(__name__)
_OTEL: Final = "the packages of OpenTelemetry"


class Reporter(Protocol):
    """A reporter that runs."""

    def stop(self) -> None:
        """End it. Comes back when its thread has ended."""


_FACTORIES: Final[Mapping[ReporterKind, Mapping[str, str]]] = {
    METRICS: {
        "PrometheusReporterFactory": "prometheus.PrometheusReporter",
        "PrometheusPushGatewayReporterFactory": "push_gateway.push_gateway_reporter",
        "OpenTelemetryMetricReporterFactory": "otlp.otlp_metric_reporter",
        "Slf4jReporterFactory": "logged.logging_reporter",
    },
    SPANS: {
        "OpenTelemetryTraceReporterFactory": "otlp_traces.otlp_trace_reporter",
        "Slf4jTraceReporterFactory": "traces.logged_spans",
    },
    HAPPENINGS: {
        "OpenTelemetryEventReporterFactory": "otlp_traces.otlp_event_reporter",
        "Slf4jEventReporterFactory": "traces.logged_events",
    },
}
"""For each of Flink's factories what makes the reporter of its settings: a module of this package, which is imported when a job names it."""


@dataclass(frozen=True, slots=True)
class _Running:
    reporter: Reporter
    texts: dict[str, str]


_RUNNING: Final[dict[str, _Running]] = {}
_LOCK: Final = threading.Lock()


def start_reporters(settings: Settings) -> bool:
    """Start the reporters that a job names and that do not run yet. Returns whether any reporter runs."""
    with _LOCK:
        for wanted in (one for kind in _FACTORIES for one in reporters_in(settings, kind)):
            known = _RUNNING.get(wanted.label)
            if known is None:
                _start(wanted)
            elif known.texts != wanted.texts:
                _LOG.warning(
                    "reporter=%s runs with the settings of a former job. Give it another name to "
                    "have one with these.",
                    wanted.label,
                )
        return bool(_RUNNING)


def running_reporter(label: str) -> Reporter | None:
    """Return the reporter with this name, for spans and events like `traces.x`; None: there is none."""
    known = _RUNNING.get(label)
    return None if known is None else known.reporter


def stop_reporters() -> None:
    """End all reporters of this process."""
    with _LOCK:
        for one in _RUNNING.values():
            one.reporter.stop()
        _RUNNING.clear()


def _start(wanted: ReporterSettings) -> None:
    name = wanted.label
    try:
        reporter = _made(wanted)
    except (ConfigurationError, ImportError, OSError) as error:
        _LOG.warning("reporter=%s NOT STARTED cause=%s", name, error)
        return
    if not _RUNNING:
        atexit.register(stop_reporters)
    _RUNNING[name] = _Running(reporter, wanted.texts)
    _LOG.info("reporter=%s STARTED factory=%s", name, wanted.factory)


def _made(wanted: ReporterSettings) -> Reporter:
    key = wanted.kind.factory.of(wanted.name).key
    if wanted.factory is None:
        raise ConfigurationError(f"option '{key}' is not set. Set it to one of Flink's factories.")
    factories = _FACTORIES[wanted.kind]
    if wanted.factory not in factories:
        raise ConfigurationError(
            f"option '{key}' is '{wanted.factory}', which Penstock does not have. It has "
            f"{', '.join(factories)}."
        )
    module, _, name = factories[wanted.factory].partition(".")
    with needs_extra("otel", _OTEL) if module.startswith("otlp") else contextlib.nullcontext():
        made: Reporter = getattr(import_module(f"{__package__}.{module}"), name)(wanted)
    return made
