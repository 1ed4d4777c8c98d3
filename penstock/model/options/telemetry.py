"""Options of reporters that speak OpenTelemetry, and of those of spans and events.

Does not know their readers. Source: Flink OpenTelemetryReporterOptions, TraceOptions, EventOptions.
"""

from typing import Final

from penstock.model.options.option import (
    OptionGroup,
    duration,
    pairs,
    separated_texts,
    text,
    texts,
    whole,
)

TRACES: Final = "traces.reporter."
EVENTS: Final = "events.reporter."
_ENDPOINT_DOC: Final = (
    "OpenTelemetry: where the collector listens. gRPC: `http://host:4317`, or https for TLS. "
    "HTTP: the whole address, for example `http://host:4318/v1/"
)
_PROTOCOL_DOC: Final = "OpenTelemetry: `gRPC` or `HTTP`."
_TIMEOUT_DOC: Final = "OpenTelemetry: how long one request may take."
_COMPRESSION_DOC: Final = "OpenTelemetry: `none` or `gzip`."
_SERVICE_DOC: Final = (
    "OpenTelemetry: the attribute `service.name` of the driver. Not set: OTEL_SERVICE_NAME of the "
    "environment, or `unknown_service:python`."
)
_VERSION_DOC: Final = "OpenTelemetry: the attribute `service.version` of the driver."
_ADDITIONAL_DOC: Final = "Variables that are added to the attributes of all."
_EXCLUDES_DOC: Final = "What is not reported, although filter.includes has it. Same form."


class OtlpOptions(OptionGroup, title="OpenTelemetry"):
    """Own options of the reporter `OpenTelemetryMetricReporterFactory`. It needs the extra `penstock[otel]`."""

    ENDPOINT: Final = text(
        "metrics.reporter.<name>.exporter.endpoint", None, f"{_ENDPOINT_DOC}metrics`. Required."
    )
    PROTOCOL: Final = text("metrics.reporter.<name>.exporter.protocol", "gRPC", _PROTOCOL_DOC)
    TIMEOUT: Final = duration("metrics.reporter.<name>.exporter.timeout", "10 s", _TIMEOUT_DOC)
    COMPRESSION: Final = text(
        "metrics.reporter.<name>.exporter.compression", "none", _COMPRESSION_DOC
    )
    SERVICE: Final = text("metrics.reporter.<name>.service.name", None, _SERVICE_DOC)
    VERSION: Final = text("metrics.reporter.<name>.service.version", None, _VERSION_DOC)
    BATCH: Final = whole(
        "metrics.reporter.<name>.batch.size",
        "0",
        "OpenTelemetry: the most values in one request. 0: all of a report are in one.",
    )
    COMPLETION_MS: Final = whole(
        "metrics.reporter.<name>.export-completion-timeout-millis",
        "300000",
        (
            "OpenTelemetry: how long all requests of one report may take, in ms. What is not sent "
            "by then is in the next report."
        ),
    )


class TraceReporterOptions(OptionGroup, title="Trace reporters"):
    """Spans of checkpoints, starts and recoveries: where they go. `<name>` is a name of your choice, without dots. See [Traces](../guides/metrics.md#traces-and-events)."""

    NAMES: Final = texts(
        "traces.reporters",
        None,
        "Names of the trace reporters to start. Not set: all that have a factory.class.",
    )
    FACTORY: Final = text(
        "traces.reporter.<name>.factory.class",
        None,
        "What kind of trace reporter it is: one of Flink's factories. Unknown ones are logged.",
    )
    ADDITIONAL: Final = pairs(
        "traces.reporter.<name>.scope.variables.additional", None, _ADDITIONAL_DOC
    )
    INCLUDES: Final = separated_texts(
        "traces.reporter.<name>.filter.includes",
        "*:*",
        "Which spans are reported: `scope[:name[,name]]`, separated by `;`. `*` is any text.",
    )
    EXCLUDES: Final = separated_texts("traces.reporter.<name>.filter.excludes", None, _EXCLUDES_DOC)
    ENDPOINT: Final = text(
        "traces.reporter.<name>.exporter.endpoint", None, f"{_ENDPOINT_DOC}traces`. Required."
    )
    PROTOCOL: Final = text("traces.reporter.<name>.exporter.protocol", "gRPC", _PROTOCOL_DOC)
    TIMEOUT: Final = duration("traces.reporter.<name>.exporter.timeout", "10 s", _TIMEOUT_DOC)
    COMPRESSION: Final = text(
        "traces.reporter.<name>.exporter.compression", "none", _COMPRESSION_DOC
    )
    SERVICE: Final = text("traces.reporter.<name>.service.name", None, _SERVICE_DOC)
    VERSION: Final = text("traces.reporter.<name>.service.version", None, _VERSION_DOC)
    DETAIL: Final = text(
        "traces.checkpoint.span-detail-level",
        "SPAN_PER_CHECKPOINT",
        (
            "What the spans of checkpoints tell: `SPAN_PER_CHECKPOINT`, "
            "`SPAN_PER_CHECKPOINT_WITH_TASKS` (figures of each vertex as attributes), "
            "`CHILDREN_SPANS_PER_TASK` (a span for each vertex), or `CHILDREN_SPANS_PER_SUBTASK`."
        ),
    )


class EventReporterOptions(OptionGroup, title="Event reporters"):
    """Events of jobs: changes of status, failures, checkpoints. The keys are those of trace reporters."""

    NAMES: Final = texts(
        "events.reporters",
        None,
        "Names of the event reporters to start. Not set: all that have a factory.class.",
    )
    FACTORY: Final = text(
        "events.reporter.<name>.factory.class",
        None,
        "What kind of event reporter it is: one of Flink's factories. Unknown ones are logged.",
    )
    ADDITIONAL: Final = pairs(
        "events.reporter.<name>.scope.variables.additional", None, _ADDITIONAL_DOC
    )
    INCLUDES: Final = separated_texts(
        "events.reporter.<name>.filter.includes",
        "*:*",
        "Which events are reported: `scope[:name[,name]]`, several separated by `;`.",
    )
    EXCLUDES: Final = separated_texts("events.reporter.<name>.filter.excludes", None, _EXCLUDES_DOC)
    ENDPOINT: Final = text(
        "events.reporter.<name>.exporter.endpoint", None, f"{_ENDPOINT_DOC}logs`. Required."
    )
    PROTOCOL: Final = text("events.reporter.<name>.exporter.protocol", "gRPC", _PROTOCOL_DOC)
    TIMEOUT: Final = duration("events.reporter.<name>.exporter.timeout", "10 s", _TIMEOUT_DOC)
    COMPRESSION: Final = text(
        "events.reporter.<name>.exporter.compression", "none", _COMPRESSION_DOC
    )
    SERVICE: Final = text("events.reporter.<name>.service.name", None, _SERVICE_DOC)
    VERSION: Final = text("events.reporter.<name>.service.version", None, _VERSION_DOC)
