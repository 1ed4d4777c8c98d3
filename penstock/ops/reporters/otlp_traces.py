"""Sends spans, and events as log records, to a collector of OpenTelemetry.

Imported only where OpenTelemetry's packages are there. Source: Flink OpenTelemetryTraceReporter, OpenTelemetryEventReporter.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from penstock.engine.model.options.reporters import EventReporterOptions, TraceReporterOptions
from penstock.ops.jobs.job_traces import Event, Span, Trace
from penstock.ops.reporters.otlp_sending import (
    ExporterOptions,
    Message,
    Signal,
    attribute,
    endpoint_of,
    resource_of,
    sender_to,
)
from penstock.ops.reporters.settings import ReporterSettings
from penstock.ops.reporters.traces import TraceReporter

_NS: Final = 1_000_000
_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8
_TRACES: Final = Signal(
    "opentelemetry.proto.collector.trace.v1.TraceService", ExportTraceServiceResponse.FromString
)
_LOGS: Final = Signal(
    "opentelemetry.proto.collector.logs.v1.LogsService", ExportLogsServiceResponse.FromString
)


def otlp_trace_reporter(settings: ReporterSettings) -> TraceReporter:
    """Return one that runs. Raises: ConfigurationError: a setting is missing or wrong; ImportError: grpcio is missing."""
    return _reporter(settings, TraceReporterOptions, _TRACES, spans_request)


def otlp_event_reporter(settings: ReporterSettings) -> TraceReporter:
    """Return one that runs. Raises: as `otlp_trace_reporter`."""
    return _reporter(settings, EventReporterOptions, _LOGS, events_request)


def _reporter(
    settings: ReporterSettings,
    options: ExporterOptions,
    signal: Signal,
    request_of: Callable[[Iterable[Trace], Resource], Message],
) -> TraceReporter:
    sender = sender_to(endpoint_of(settings, options), signal)
    resource = resource_of(settings, options)

    def deliver(traces: Sequence[Trace]) -> None:
        sender.send(request_of(traces, resource))

    return TraceReporter(settings, deliver, sender.close)


def spans_request(traces: Iterable[Trace], resource: Resource) -> ExportTraceServiceRequest:
    """Return one request. Each span has a trace of its own, together with its children."""
    request = ExportTraceServiceRequest()
    of_resource = request.resource_spans.add(resource=resource)
    spans = (one for one in traces if isinstance(one, Span))
    for scope, ones in groupby(spans, lambda one: one.scope):
        of_scope = of_resource.scope_spans.add(scope=InstrumentationScope(name=scope))
        for one in ones:
            of_scope.spans.extend(_spans(one, secrets.token_bytes(_TRACE_ID_BYTES), b""))
    return request


def _spans(span: Span, trace_id: bytes, parent_id: bytes) -> Iterator[trace_pb2.Span]:
    span_id = secrets.token_bytes(_SPAN_ID_BYTES)
    yield trace_pb2.Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=parent_id,
        name=span.name,
        kind=trace_pb2.Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=span.start_ms * _NS,
        end_time_unix_nano=span.end_ms * _NS,
        attributes=[attribute(name, value) for name, value in span.attributes.items()],
    )
    for child in span.children:
        yield from _spans(child, trace_id, span_id)


def events_request(traces: Iterable[Trace], resource: Resource) -> ExportLogsServiceRequest:
    """Return one request. The name of an event is an attribute, and its body is empty, as Flink has it."""
    request = ExportLogsServiceRequest()
    of_resource = request.resource_logs.add(resource=resource)
    events = (one for one in traces if isinstance(one, Event))
    for scope, ones in groupby(events, lambda one: one.scope):
        of_scope = of_resource.scope_logs.add(scope=InstrumentationScope(name=scope))
        for one in ones:
            attributes = {"name": one.name, **one.attributes}
            of_scope.log_records.add(
                time_unix_nano=one.at_ms * _NS,
                observed_time_unix_nano=one.at_ms * _NS,
                severity_number=logs_pb2.SEVERITY_NUMBER_INFO,
                severity_text="INFO",
                attributes=[attribute(name, value) for name, value in attributes.items()],
            )
    return request
