"""The reporters of this process: each is started with the first job that names it, and ends with the process.

A reporter that cannot be started is logged, and jobs go on without it. Source: Flink MetricRegistryImpl; differs: the driver reports
for all processes of its jobs.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

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
    """One that runs."""

    def stop(self) -> None:
        """End it. Comes back when its thread has ended."""


def _prometheus(settings: ReporterSettings) -> Reporter:
    from penstock.ops.reporters.prometheus import PrometheusReporter

    return PrometheusReporter(settings)


def _push_gateway(settings: ReporterSettings) -> Reporter:
    from penstock.ops.reporters.push_gateway import push_gateway_reporter

    return push_gateway_reporter(settings)


def _logging(settings: ReporterSettings) -> Reporter:
    from penstock.ops.reporters.logged import logging_reporter

    return logging_reporter(settings)


def _otlp(settings: ReporterSettings) -> Reporter:
    with needs_extra("otel", _OTEL):
        from penstock.ops.reporters.otlp import otlp_metric_reporter

        return otlp_metric_reporter(settings)


def _otlp_spans(settings: ReporterSettings) -> Reporter:
    with needs_extra("otel", _OTEL):
        from penstock.ops.reporters.otlp_traces import otlp_trace_reporter

        return otlp_trace_reporter(settings)


def _otlp_events(settings: ReporterSettings) -> Reporter:
    with needs_extra("otel", _OTEL):
        from penstock.ops.reporters.otlp_traces import otlp_event_reporter

        return otlp_event_reporter(settings)


def _logged_spans(settings: ReporterSettings) -> Reporter:
    from penstock.ops.reporters.traces import logged_spans

    return logged_spans(settings)


def _logged_events(settings: ReporterSettings) -> Reporter:
    from penstock.ops.reporters.traces import logged_events

    return logged_events(settings)


_Factories: TypeAlias = Mapping[str, Callable[[ReporterSettings], Reporter]]
_METRICS: Final[_Factories] = {
    "PrometheusReporterFactory": _prometheus,
    "PrometheusPushGatewayReporterFactory": _push_gateway,
    "OpenTelemetryMetricReporterFactory": _otlp,
    "Slf4jReporterFactory": _logging,
}
_SPANS: Final[_Factories] = {
    "OpenTelemetryTraceReporterFactory": _otlp_spans,
    "Slf4jTraceReporterFactory": _logged_spans,
}
_EVENTS: Final[_Factories] = {
    "OpenTelemetryEventReporterFactory": _otlp_events,
    "Slf4jEventReporterFactory": _logged_events,
}
_KINDS: Final[tuple[tuple[ReporterKind, _Factories], ...]] = (
    (METRICS, _METRICS),
    (SPANS, _SPANS),
    (HAPPENINGS, _EVENTS),
)


@dataclass(frozen=True, slots=True)
class _Running:
    reporter: Reporter
    texts: dict[str, str]


_RUNNING: Final[dict[str, _Running]] = {}
_LOCK: Final = threading.Lock()


def start_reporters(settings: Settings) -> bool:
    """Start the reporters that a job names and that do not run yet. Returns whether any reporter runs."""
    with _LOCK:
        for wanted in (one for kind, _ in _KINDS for one in reporters_in(settings, kind)):
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
    factories = next(known for kind, known in _KINDS if kind is wanted.kind)
    factory = factories.get(wanted.factory)
    if factory is None:
        raise ConfigurationError(
            f"option '{key}' is '{wanted.factory}', which Penstock does not have. It has "
            f"{', '.join(factories)}."
        )
    return factory(wanted)
