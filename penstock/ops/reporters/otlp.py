"""Sends all metrics to a collector of OpenTelemetry in intervals.

Imported only where OpenTelemetry's packages are there. Messages are made of the protocol's own classes: OpenTelemetry's SDK has no
summaries, which Flink sends. Source: Flink OpenTelemetryMetricReporter.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb2
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from penstock.engine.hosting.os.clock import give_way
from penstock.engine.model.options.reporters import OtlpOptions
from penstock.ops.metrics.otlp import Delta, OtlpPoints, Point, Summary, pieces
from penstock.ops.reporters.otlp_sending import (
    NotSent,
    Sender,
    Signal,
    attribute,
    endpoint_of,
    resource_of,
    sender_to,
)
from penstock.ops.reporters.pushing import PushingReporter
from penstock.ops.reporters.settings import ReporterSettings
from penstock.ops.reporters.source import lent_metrics

_LOG: Final = logging.getLogger(__name__)
_AT_A_TIME: Final = 200
SCOPE: Final = "io.confluent.flink.common.metrics"
"""What Flink 2.3 calls the instrumentation scope of its metrics."""
SIGNAL: Final = Signal(
    "opentelemetry.proto.collector.metrics.v1.MetricsService",
    ExportMetricsServiceResponse.FromString,
)


def otlp_metric_reporter(settings: ReporterSettings) -> PushingReporter:
    """Return one that runs. Raises: ConfigurationError: a setting is missing or wrong; ImportError: grpcio is missing."""
    report = MetricReport(settings, sender_to(endpoint_of(settings, OtlpOptions), SIGNAL))
    return PushingReporter(settings.name, settings.interval_s, report, report.close)


class MetricReport:
    """Sends all metrics as they are when it is called. What did not arrive is in the next report."""

    def __init__(
        self,
        settings: ReporterSettings,
        sender: Sender,
        now_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = settings.name
        self._points = OtlpPoints(settings.selection())
        self._resource = resource_of(settings, OtlpOptions)
        self._batch = max(0, settings.get(OtlpOptions.BATCH))
        self._most_s = settings.get(OtlpOptions.COMPLETION_MS) / 1000
        self._sender = sender
        self._now_ns = now_ns
        self._monotonic = monotonic
        self._logged: set[str] = set()

    def __call__(self) -> None:
        """Raises: NotSent."""
        now_ns, until = self._now_ns(), self._monotonic() + self._most_s
        with lent_metrics() as metrics:
            points = list(self._points.points(metrics, now_ns))
        self._log_fallen()
        for piece in pieces(points, self._batch):
            if self._monotonic() > until:
                raise NotSent(f"the report took longer than {self._most_s:g} s")
            self._log_refused(self._sender.send(request_of(piece, now_ns, self._resource)))
            self._points.sent(piece, now_ns)
        self._points.ended(now_ns)

    def close(self) -> None:
        self._sender.close()

    def _log_fallen(self) -> None:
        for name in self._points.fallen - self._logged:
            _LOG.warning("metric=%s LEFT OUT cause=the counter has been counted down", name)
        self._logged |= self._points.fallen

    def _log_refused(self, answer: ExportMetricsServiceResponse) -> None:
        refused = answer.partial_success
        if refused.rejected_data_points:
            _LOG.warning(
                "reporter=%s REFUSED points=%d cause=%s",
                self._name,
                refused.rejected_data_points,
                refused.error_message,
            )


def request_of(
    points: Sequence[Point], now_ns: int, resource: Resource
) -> ExportMetricsServiceRequest:
    """Return one request. Other threads run after each few points."""
    request = ExportMetricsServiceRequest()
    of_resource = request.resource_metrics.add(resource=resource)
    of_scope = of_resource.scope_metrics.add(scope=InstrumentationScope(name=SCOPE))
    metrics: dict[tuple[str, type], pb2.Metric] = {}
    shared: tuple[object, list[KeyValue]] = None, []
    for count, point in enumerate(points, 1):
        key = point.name, _kind(point)
        metric = metrics.get(key)
        if metric is None:
            metric = metrics[key] = of_scope.metrics.add(name=point.name)
        if point.attributes is not shared[0]:  # Those of one place come one after the other.
            made = [attribute(name, value) for name, value in point.attributes.items()]
            shared = point.attributes, made
        _add(metric, point, now_ns, shared[1])
        if count % _AT_A_TIME == 0:
            give_way()
    return request


def _kind(point: Point) -> type:
    return type(point.value) if isinstance(point.value, Delta | Summary) else float


def _add(metric: pb2.Metric, point: Point, now_ns: int, attributes: list[KeyValue]) -> None:
    value = point.value
    if isinstance(value, Delta):
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = pb2.AGGREGATION_TEMPORALITY_DELTA
        metric.sum.data_points.add(
            attributes=attributes,
            start_time_unix_nano=value.start_ns,
            time_unix_nano=now_ns,
            as_int=value.count,
        )
    elif isinstance(value, Summary):
        metric.summary.data_points.add(
            attributes=attributes,
            time_unix_nano=now_ns,
            count=value.count,
            sum=value.sum,
            quantile_values=[
                pb2.SummaryDataPoint.ValueAtQuantile(quantile=quantile, value=one)
                for quantile, one in value.quantiles
            ],
        )
    elif isinstance(value, int):
        metric.gauge.data_points.add(attributes=attributes, time_unix_nano=now_ns, as_int=value)
    else:
        metric.gauge.data_points.add(attributes=attributes, time_unix_nano=now_ns, as_double=value)
