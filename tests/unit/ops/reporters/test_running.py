"""Which reporters of a driver run, and what becomes of those that cannot."""

import logging
import sys

import pytest

from penstock.engine.model.config import Settings
from penstock.ops.reporters.running import running_reporter, start_reporters, stop_reporters

SLF4J = "org.apache.flink.metrics.slf4j.Slf4jReporterFactory"
PROMETHEUS = "org.apache.flink.metrics.prometheus.PrometheusReporterFactory"
OTEL = "org.apache.flink.metrics.otel.OpenTelemetryMetricReporterFactory"
PUSH = "org.apache.flink.metrics.prometheus.PrometheusPushGatewayReporterFactory"


pytestmark = pytest.mark.usefixtures("job_registry")
"""With it the reporters end."""


def settings(name, factory, **more):
    own = {f"metrics.reporter.{name}.{key}": value for key, value in more.items()}
    return {f"metrics.reporter.{name}.factory.class": factory, **own}


def test_without_settings_nothing_runs():
    assert not start_reporters(Settings({}))


def test_several_run_at_once_and_end_together():
    given = settings("a", SLF4J) | settings("b", PROMETHEUS, port="0")
    assert start_reporters(Settings(given))
    assert running_reporter("a") is not None
    assert running_reporter("b") is not None
    stop_reporters()
    assert running_reporter("a") is None
    assert not start_reporters(Settings({}))


def test_the_next_job_finds_the_reporter_of_the_first(caplog):
    given = Settings(settings("a", SLF4J))
    start_reporters(given)
    first = running_reporter("a")
    assert start_reporters(given)
    assert running_reporter("a") is first
    assert start_reporters(Settings({}))
    assert not caplog.records


def test_a_job_with_other_settings_for_a_reporter_that_runs_is_told(caplog):
    start_reporters(Settings(settings("a", SLF4J)))
    start_reporters(Settings(settings("a", SLF4J, interval="1 s")))
    assert "reporter=a runs with the settings of a former job" in caplog.text


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        (settings("a", "org.apache.flink.metrics.statsd.StatsDReporterFactory"), "StatsDReporter"),
        (settings("a", "my.Factory"), "my.Factory"),
        ({"metrics.reporters": "a"}, "metrics.reporter.a.factory.class"),
        (settings("a", SLF4J, interval="0"), "metrics.reporter.a.interval"),
        (settings("a", SLF4J, **{"filter.includes": "*:*:number"}), "cannot be read"),
        (settings("a", PROMETHEUS, port="x"), "metrics.reporter.a.port"),
        (settings("a", PUSH), "metrics.reporter.a.hostUrl"),
        (settings("a", OTEL), "metrics.reporter.a.exporter.endpoint"),
        (settings("a", PUSH, hostUrl="http://localhost:1", username="u"), "username and password"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_started_is_a_warning_and_others_run(given, cause, caplog):
    assert start_reporters(Settings(given | settings("b", SLF4J) | with_b(given)))
    assert running_reporter("a") is None
    assert running_reporter("b") is not None
    (told,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "reporter=a NOT STARTED" in told.getMessage()
    assert cause in told.getMessage()


def with_b(given):
    return {"metrics.reporters": "a,b"} if "metrics.reporters" in given else {}


def test_a_missing_package_is_told_with_the_line_that_installs_it(monkeypatch, caplog):
    monkeypatch.delitem(sys.modules, "penstock.ops.reporters.collector", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert not start_reporters(Settings(settings("a", PROMETHEUS, port="0")))
    assert "pip install 'penstock[prometheus]'" in caplog.text


@pytest.mark.parametrize("package", ["opentelemetry.proto", "opentelemetry.sdk", "grpc"])
def test_a_missing_package_of_opentelemetry_is_told_too(monkeypatch, caplog, package):
    for name in list(sys.modules):
        if name.startswith(("penstock.ops.reporters.otlp", f"{package}.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    given = settings("a", OTEL, **{"exporter.endpoint": "http://localhost:1"})
    assert not start_reporters(Settings(given))
    assert "pip install 'penstock[otel]'" in caplog.text
