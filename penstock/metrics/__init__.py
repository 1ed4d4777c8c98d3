"""Metrics of user functions under PyFlink's address. Knows nothing else. Source: pyflink.metrics."""

from penstock.metrics.metricbase import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
