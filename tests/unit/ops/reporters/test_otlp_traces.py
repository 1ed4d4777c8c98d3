"""Spans and events in the protocol's own messages. Source: Flink OpenTelemetryTraceReporter, OpenTelemetryEventReporter."""

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.ops.jobs.job_traces import Event, Span
from penstock.ops.registry.job_registry import JobRegistry
from penstock.ops.reporters import traces
from penstock.ops.reporters.otlp_traces import otlp_event_reporter, otlp_trace_reporter
from penstock.ops.reporters.settings import HAPPENINGS, SPANS, ReporterSettings
from tests.tools.hosting.otlp import attributes, grpc_collector, http_collector

GRANDCHILD = Span("a", "Checkpoint_Subtask", 3, 4, {"subtaskId": 0})
CHILD = Span("a", "Checkpoint_Task", 2, 5, {}, (GRANDCHILD,))
FIRST = Span("a", "Checkpoint", 1, 9, {"checkpointId": 7, "x": "text", "y": 0.5}, (CHILD,))
SECOND = Span("b", "JobRecovery", 10, 20, {})
MS = 1_000_000


@pytest.fixture
def jobs(monkeypatch):
    made = JobRegistry()
    monkeypatch.setattr(traces.job_registry, "JOB_REGISTRY", made)
    return made


@pytest.fixture(params=["HTTP", "gRPC"])
def collector(request):
    with http_collector() if request.param == "HTTP" else grpc_collector() as made:
        made.protocol = request.param
        yield made


def settings(collector, kind, path):
    own = {
        "exporter.endpoint": collector.address + (path if collector.protocol == "HTTP" else ""),
        "exporter.protocol": collector.protocol,
        "service.name": "mine",
    }
    given = {f"{kind.prefix}x.{key}": value for key, value in own.items()}
    return ReporterSettings("x", Settings(given), kind)


def report(jobs, reporter, *ones):
    for listener in jobs.listeners:
        for one in ones:
            listener(one)
    reporter.stop()


def test_a_span_has_its_times_attributes_and_scope(collector, jobs):
    given = settings(collector, SPANS, "/v1/traces")
    report(jobs, otlp_trace_reporter(given), FIRST, SECOND)
    (request,) = collector.requests
    (of_resource,) = request.resource_spans
    assert attributes(of_resource.resource)["service.name"] == "mine"
    assert [one.scope.name for one in of_resource.scope_spans] == ["a", "b"]
    first = of_resource.scope_spans[0].spans[0]
    assert (first.name, first.kind) == ("Checkpoint", first.SPAN_KIND_INTERNAL)
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == (1 * MS, 9 * MS)
    assert attributes(first) == {"checkpointId": 7, "x": "text", "y": 0.5}


def test_children_are_of_the_trace_of_their_parent_and_each_root_has_its_own(collector, jobs):
    given = settings(collector, SPANS, "/v1/traces")
    report(jobs, otlp_trace_reporter(given), FIRST, SECOND)
    scopes = collector.requests[0].resource_spans[0].scope_spans
    first, child, grandchild = scopes[0].spans
    (second,) = scopes[1].spans
    assert first.parent_span_id == second.parent_span_id == b""
    assert (child.parent_span_id, grandchild.parent_span_id) == (first.span_id, child.span_id)
    assert {one.trace_id for one in (first, child, grandchild)} == {first.trace_id}
    assert second.trace_id != first.trace_id
    assert (len(first.trace_id), len(first.span_id)) == (16, 8)


def test_events_are_log_records_without_a_body(collector, jobs):
    given = settings(collector, HAPPENINGS, "/v1/logs")
    event = Event("c", "JobStatusChangeEvent", 5, {"newJobStatus": "RUNNING"})
    report(jobs, otlp_event_reporter(given), event)
    (of_resource,) = collector.requests[0].resource_logs
    (of_scope,) = of_resource.scope_logs
    (record,) = of_scope.log_records
    assert of_scope.scope.name == "c"
    assert (record.severity_text, record.time_unix_nano) == ("INFO", 5 * MS)
    assert not record.HasField("body")
    assert attributes(record) == {"name": "JobStatusChangeEvent", "newJobStatus": "RUNNING"}


def test_an_endpoint_that_is_missing_is_told_by_its_key(jobs):
    with pytest.raises(ConfigurationError, match="traces.reporter.x.exporter.endpoint"):
        otlp_trace_reporter(ReporterSettings("x", Settings({}), SPANS))
