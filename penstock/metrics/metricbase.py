"""Counter, Meter, Distribution and their MetricGroup, which functions get from their RuntimeContext.

Source: pyflink.metrics.metricbase; differs: these are the metrics themselves, not their interfaces.
"""

from penstock.engine.runtime.user_metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
