"""Options of reporters of metrics, spans and events.

Source: Flink MetricOptions, PrometheusPushGatewayReporterOptions, PrometheusReporterFactory, OpenTelemetryReporterOptions, TraceOptions,
EventOptions.
"""

from typing import Final

from penstock.engine.model.options.option import (
    OptionGroup,
    duration,
    flag,
    pairs,
    separated_texts,
    text,
    texts,
    whole,
)

PREFIX: Final = "metrics.reporter."
TRACES: Final = "traces.reporter."
EVENTS: Final = "events.reporter."


class ReporterOptions(OptionGroup, title="Metric reporters"):
    """Which metrics go where. `<name>` is a name of your choice, without dots; a driver may have several reporters.
    See [Reporters](../guides/metrics.md#reporters)."""

    NAMES = texts("metrics.reporters")
    """Names of the reporters to start. Not set: all that have a factory.class. The driver reports for all processes of
    its jobs."""
    FACTORY = text("metrics.reporter.<name>.factory.class")
    """What kind of reporter it is: one of Flink's factories. Unknown ones are logged."""
    INTERVAL = duration("metrics.reporter.<name>.interval", "10 s")
    """How often a reporter that pushes does so. The first report comes after one interval."""
    DELIMITER = text("metrics.reporter.<name>.scope.delimiter", ".")
    """One character between the parts of an identifier. Not set, or longer: metrics.scope.delimiter."""
    EXCLUDED = separated_texts("metrics.reporter.<name>.scope.variables.excludes", ".")
    """Variables that reporters with tags leave out, without brackets, separated by `;`."""
    ADDITIONAL = pairs("metrics.reporter.<name>.scope.variables.additional")
    """Variables that reporters with tags add to all metrics."""
    INCLUDES = separated_texts("metrics.reporter.<name>.filter.includes", "*:*:*")
    """Which metrics are reported: `scope[:name[,name][:type[,type]]]`, several separated by `;`. `*` is any text.
    Types: counter, gauge, meter, histogram."""
    EXCLUDES = separated_texts("metrics.reporter.<name>.filter.excludes")
    """Which metrics are not reported, although filter.includes has them. Same form."""


class PrometheusOptions(OptionGroup, title="Prometheus"):
    """Own options of the reporters `PrometheusReporterFactory` and `PrometheusPushGatewayReporterFactory`. They need
    the extra `penstock[prometheus]`."""

    PORT = text("metrics.reporter.<name>.port", "9249")
    """Ports to try, for example 9249,9250-9260. The first free one is taken. 0: any free one."""
    BIND_ADDRESS = text("penstock.metrics.prometheus.bind-address", "localhost")
    """The address at which reporters that Prometheus scrapes listen. Whoever reaches it reads all metrics; at a loopback
    address a scrape must call it by that address or as localhost. In Flink: all addresses."""
    FILTERS_VALUES = flag("metrics.reporter.<name>.filterLabelValueCharacters", "true")
    """Whether characters other than `a-zA-Z0-9:_` become `_` in values of labels too."""
    ALLOWED = texts("metrics.reporter.<name>.allowList")
    """If set, only metrics are reported whose scope and name, joined by dots, contain one of these texts."""
    HOST_URL = text("metrics.reporter.<name>.hostUrl")
    """PushGateway: its address, for example `http://localhost:9091`. Required."""
    JOB_NAME = text("metrics.reporter.<name>.jobName")
    """PushGateway: the name of the group that is pushed."""
    RANDOM_SUFFIX = flag("metrics.reporter.<name>.randomJobNameSuffix", "true")
    """PushGateway: whether 32 random digits follow that name, so that drivers do not meet."""
    DELETES = flag("metrics.reporter.<name>.deleteOnShutdown", "true")
    """PushGateway: whether the group is deleted when the driver ends."""
    GROUPING_KEY = text("metrics.reporter.<name>.groupingKey")
    """PushGateway: further labels of the group: `k1=v1;k2=v2`."""
    USERNAME = text("metrics.reporter.<name>.username")
    """PushGateway: the user, with metrics.reporter.<name>.password."""
    PASSWORD = text("metrics.reporter.<name>.password")
    """PushGateway: the password of that user."""


class OtlpOptions(OptionGroup, title="OpenTelemetry"):
    """Own options of the reporter `OpenTelemetryMetricReporterFactory`. It needs the extra `penstock[otel]`."""

    ENDPOINT = text("metrics.reporter.<name>.exporter.endpoint")
    """OpenTelemetry: where the collector listens. gRPC: `http://host:4317`, or https for TLS. HTTP: the whole address,
    for example `http://host:4318/v1/metrics`. Required."""
    PROTOCOL = text("metrics.reporter.<name>.exporter.protocol", "gRPC")
    """OpenTelemetry: `gRPC` or `HTTP`."""
    TIMEOUT = duration("metrics.reporter.<name>.exporter.timeout", "10 s")
    """OpenTelemetry: how long one request may take."""
    COMPRESSION = text("metrics.reporter.<name>.exporter.compression", "none")
    """OpenTelemetry: `none` or `gzip`."""
    SERVICE = text("metrics.reporter.<name>.service.name")
    """OpenTelemetry: the attribute `service.name` of the driver. Not set: OTEL_SERVICE_NAME of the environment, or
    `unknown_service:python`."""
    VERSION = text("metrics.reporter.<name>.service.version")
    """OpenTelemetry: the attribute `service.version` of the driver."""
    BATCH = whole("metrics.reporter.<name>.batch.size", "0")
    """OpenTelemetry: the most values in one request. 0: all of a report are in one."""
    COMPLETION_MS = whole("metrics.reporter.<name>.export-completion-timeout-millis", "300000")
    """OpenTelemetry: how long all requests of one report may take, in ms. What is not sent by then is in the next
    report."""


class TraceReporterOptions(OptionGroup, title="Trace reporters"):
    """Spans of checkpoints, starts and recoveries: where they go. `<name>` is a name of your choice, without dots.
    See [Traces](../guides/metrics.md#traces-and-events)."""

    NAMES = texts("traces.reporters")
    """Names of the trace reporters to start. Not set: all that have a factory.class."""
    FACTORY = text("traces.reporter.<name>.factory.class")
    """What kind of trace reporter it is: one of Flink's factories. Unknown ones are logged."""
    ADDITIONAL = pairs("traces.reporter.<name>.scope.variables.additional")
    """Variables that are added to the attributes of all."""
    INCLUDES = separated_texts("traces.reporter.<name>.filter.includes", "*:*")
    """Which spans are reported: `scope[:name[,name]]`, separated by `;`. `*` is any text."""
    EXCLUDES = separated_texts("traces.reporter.<name>.filter.excludes")
    """What is not reported, although filter.includes has it. Same form."""
    ENDPOINT = text("traces.reporter.<name>.exporter.endpoint")
    """OpenTelemetry: where the collector listens. gRPC: `http://host:4317`, or https for TLS. HTTP: the whole address,
    for example `http://host:4318/v1/traces`. Required."""
    PROTOCOL = text("traces.reporter.<name>.exporter.protocol", "gRPC")
    """OpenTelemetry: `gRPC` or `HTTP`."""
    TIMEOUT = duration("traces.reporter.<name>.exporter.timeout", "10 s")
    """OpenTelemetry: how long one request may take."""
    COMPRESSION = text("traces.reporter.<name>.exporter.compression", "none")
    """OpenTelemetry: `none` or `gzip`."""
    SERVICE = text("traces.reporter.<name>.service.name")
    """OpenTelemetry: the attribute `service.name` of the driver. Not set: OTEL_SERVICE_NAME of the environment, or
    `unknown_service:python`."""
    VERSION = text("traces.reporter.<name>.service.version")
    """OpenTelemetry: the attribute `service.version` of the driver."""
    DETAIL = text("traces.checkpoint.span-detail-level", "SPAN_PER_CHECKPOINT")
    """What the spans of checkpoints contain: `SPAN_PER_CHECKPOINT`,
    `SPAN_PER_CHECKPOINT_WITH_TASKS` (figures of each vertex as attributes),
    `CHILDREN_SPANS_PER_TASK` (a span for each vertex), or `CHILDREN_SPANS_PER_SUBTASK`.
    """


class EventReporterOptions(OptionGroup, title="Event reporters"):
    """Events of jobs: changes of status, failures, checkpoints. The keys are those of trace reporters."""

    NAMES = texts("events.reporters")
    """Names of the event reporters to start. Not set: all that have a factory.class."""
    FACTORY = text("events.reporter.<name>.factory.class")
    """What kind of event reporter it is: one of Flink's factories. Unknown ones are logged."""
    ADDITIONAL = pairs("events.reporter.<name>.scope.variables.additional")
    """Variables that are added to the attributes of all."""
    INCLUDES = separated_texts("events.reporter.<name>.filter.includes", "*:*")
    """Which events are reported: `scope[:name[,name]]`, several separated by `;`."""
    EXCLUDES = separated_texts("events.reporter.<name>.filter.excludes")
    """What is not reported, although filter.includes has it. Same form."""
    ENDPOINT = text("events.reporter.<name>.exporter.endpoint")
    """OpenTelemetry: where the collector listens. gRPC: `http://host:4317`, or https for TLS. HTTP: the whole address,
    for example `http://host:4318/v1/logs`. Required."""
    PROTOCOL = text("events.reporter.<name>.exporter.protocol", "gRPC")
    """OpenTelemetry: `gRPC` or `HTTP`."""
    TIMEOUT = duration("events.reporter.<name>.exporter.timeout", "10 s")
    """OpenTelemetry: how long one request may take."""
    COMPRESSION = text("events.reporter.<name>.exporter.compression", "none")
    """OpenTelemetry: `none` or `gzip`."""
    SERVICE = text("events.reporter.<name>.service.name")
    """OpenTelemetry: the attribute `service.name` of the driver. Not set: OTEL_SERVICE_NAME of the environment, or
    `unknown_service:python`."""
    VERSION = text("events.reporter.<name>.service.version")
    """OpenTelemetry: the attribute `service.version` of the driver."""
