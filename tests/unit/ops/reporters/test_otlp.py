"""What a collector of OpenTelemetry gets of metrics. Source: Flink OpenTelemetryMetricReporter, and the messages of the protocol."""

import logging

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.reporters import OtlpOptions
from penstock.ops.reporters.otlp import SIGNAL, MetricReport, otlp_metric_reporter
from penstock.ops.reporters.otlp_sending import NotSent, endpoint_of, sender_to
from penstock.ops.reporters.settings import ReporterSettings
from tests.tools.hosting.otlp import attributes, grpc_collector, http_collector

SEEN = "flink.taskmanager.my grp.seen"
EVENTS = "flink.taskmanager.events"


@pytest.fixture(params=["HTTP", "gRPC"])
def protocol(request):
    return request.param


@pytest.fixture
def collector(protocol):
    with http_collector() if protocol == "HTTP" else grpc_collector() as made:
        made.protocol = protocol
        yield made


def settings(collector, **more):
    path = "/v1/metrics" if collector.protocol == "HTTP" else ""
    given = {
        "exporter.endpoint": f"{collector.address}{path}",
        "exporter.protocol": collector.protocol,
        "filter.includes": "taskmanager*",
        "interval": "10 ms",
        **more,
    }
    own = {f"metrics.reporter.x.{key}": value for key, value in given.items()}
    return ReporterSettings("x", Settings(own))


def report(collector, now_ns=lambda: 5_000, **more):
    given = settings(collector, **more)
    return MetricReport(given, sender_to(endpoint_of(given, OtlpOptions), SIGNAL), now_ns)


def metrics_in(request):
    (of_resource,) = request.resource_metrics
    (of_scope,) = of_resource.scope_metrics
    return {metric.name: metric for metric in of_scope.metrics}


def test_counters_are_deltas_and_meters_two_metrics(collector, job_registry):
    send = report(collector)
    send()
    send.close()
    found = metrics_in(collector.requests[0])
    assert set(found) == {SEEN, f"{EVENTS}.count", f"{EVENTS}.rate"}
    counter = found[SEEN].sum
    assert (counter.is_monotonic, counter.aggregation_temporality) == (
        True, AGGREGATION_TEMPORALITY_DELTA,
    )  # fmt: skip
    (point,) = counter.data_points
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (7, 0, 5_000)
    assert attributes(point) == {"host": "h.1", "tm_id": "tm-1"}
    (rate,) = found[f"{EVENTS}.rate"].gauge.data_points
    assert (rate.as_double, rate.time_unix_nano) == (8.25, 5_000)
    (count,) = found[f"{EVENTS}.count"].sum.data_points
    assert count.as_int == 99


def test_the_driver_says_who_it_is(collector, job_registry):
    more = {"service.name": "my service", "service.version": "7"}
    send = report(collector, **more)
    send()
    send.close()
    (of_resource,) = collector.requests[0].resource_metrics
    told = attributes(of_resource.resource)
    assert (told["service.name"], told["service.version"]) == ("my service", "7")
    assert told["telemetry.sdk.language"] == "python"
    assert of_resource.scope_metrics[0].scope.name == "io.confluent.flink.common.metrics"


def test_what_did_not_arrive_is_in_the_next_report(collector, job_registry):
    times = iter((100, 200, 300))
    send = report(collector, lambda: next(times))
    collector.refuses = True
    with pytest.raises(NotSent, match="too busy"):
        send()
    collector.refuses = False
    send()
    send()
    send.close()
    (second,), (third,) = (metrics_in(one)[SEEN].sum.data_points for one in collector.requests)
    assert (second.as_int, second.start_time_unix_nano) == (7, 0)
    assert (third.as_int, third.start_time_unix_nano) == (0, 200)


def test_requests_are_zipped_and_have_the_headers_of_the_environment(
    collector, job_registry, monkeypatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=a%20b,other=1")
    send = report(collector, **{"exporter.compression": "gzip"})
    send()
    send.close()
    assert SEEN in metrics_in(collector.requests[0])
    assert collector.headers[0].items() >= {"x-api-key": "a b", "other": "1"}.items()
    if collector.protocol == "HTTP":
        assert collector.headers[0]["content-encoding"] == "gzip"
        assert collector.headers[0]["content-type"] == "application/x-protobuf"


def test_a_report_can_be_cut_into_requests(collector, job_registry):
    send = report(collector, **{"batch.size": "2"})
    send()
    send.close()
    assert [len(metrics_in(one)) for one in collector.requests] == [2, 1]


def test_a_report_that_takes_too_long_ends(collector, job_registry):
    given = settings(collector, **{"batch.size": "1", "export-completion-timeout-millis": "1000"})
    clock = iter((0.0, 0.5, 1.5))
    sender = sender_to(endpoint_of(given, OtlpOptions), SIGNAL)
    send = MetricReport(given, sender, lambda: 5, lambda: next(clock))
    with pytest.raises(NotSent, match="longer than 1 s"):
        send()
    send.close()
    assert len(collector.requests) == 1


def test_it_reports_in_intervals_until_it_ends(collector, job_registry):
    reporter = otlp_metric_reporter(settings(collector))
    collector.first(lambda one: SEEN in metrics_in(one))
    reporter.stop()
    sent = len(collector.requests)
    assert sent >= 1
    assert not reporter.thread.is_alive()


def test_points_that_the_collector_refuses_are_a_warning(job_registry, caplog):
    with http_collector() as collector:
        collector.protocol = "HTTP"
        collector.answer = ExportMetricsServiceResponse(
            partial_success=ExportMetricsPartialSuccess(
                rejected_data_points=3, error_message="deltas are not taken"
            )
        )
        report(collector)()
    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert "points=3 cause=deltas are not taken" in told.getMessage()


@pytest.mark.parametrize("kind", ["HTTP", "gRPC"])
def test_a_collector_that_is_not_there_is_told_with_its_address(job_registry, kind):
    with http_collector() as gone:
        pass
    gone.protocol = kind
    send = report(gone, **{"exporter.timeout": "2 s"})
    with pytest.raises(NotSent, match=gone.address):
        send()
    send.close()


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({}, "exporter.endpoint' is not set"),
        ({"exporter.endpoint": "localhost:4317"}, "begins with http://"),
        ({"exporter.endpoint": "ftp://me:secret1@h"}, r"'ftp://\*+@h'. Set it to"),
        ({"exporter.endpoint": "http://h", "exporter.protocol": "thrift"}, "one of grpc, http"),
        ({"exporter.endpoint": "http://h", "exporter.compression": "zip"}, "one of none, gzip"),
    ],
)
def test_settings_that_cannot_be_used_are_told_by_their_keys(given, cause):
    own = {f"metrics.reporter.x.{key}": value for key, value in given.items()}
    with pytest.raises(ConfigurationError, match=f"metrics.reporter.x.*{cause}"):
        otlp_metric_reporter(ReporterSettings("x", Settings(own)))
