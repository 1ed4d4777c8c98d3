"""All metrics as prometheus_client sees them: a collector that makes them when it is asked, so that nothing is kept twice.

Imported only where prometheus_client is there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from penstock.engine.hosting.os.clock import give_way
from penstock.ops.metrics.prometheus import Families, Family
from penstock.ops.metrics.selection import Selection
from penstock.ops.reporters.source import lent_metrics

_LOG: Final = logging.getLogger(__name__)


class MetricCollector(Collector):
    """Collects the metrics of one reporter."""

    def __init__(self, selection: Selection, *, filters_values: bool) -> None:
        self._selection = selection
        self._filters_values = filters_values
        self._logged: set[str] = set()

    def collect(self) -> Iterator[Metric]:
        """Return all metrics as they are now."""
        families = Families(self._selection, filters_values=self._filters_values)
        with lent_metrics() as metrics:
            families.take(metrics)
        for name in families.left_out - self._logged:
            _LOG.warning("metric=%s LEFT OUT cause=histograms and others have the same name", name)
        self._logged |= families.left_out
        for family in families:
            yield _metric(family)

    def page(self, names: Collection[str] = ()) -> bytes:
        """Return the text that Prometheus reads. `names`: if there are any, only lines with these."""
        parts = []
        for metric in self.collect():
            if names:
                metric.samples = [one for one in metric.samples if one.name in names]
            if metric.samples:
                parts.append(generate_latest(_One(metric)))
            give_way()
        return b"".join(parts)


class _One(CollectorRegistry):
    """A registry of one metric, to print it alone and let other threads run before the next."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def _metric(family: Family) -> Metric:
    metric = Metric(family.name, family.documentation, family.type)
    for name, labels, value in family.samples():
        metric.add_sample(name, labels, value)
    return metric
