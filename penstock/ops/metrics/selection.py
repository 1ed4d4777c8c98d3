"""What one reporter shows of a metric: whether it does, its identifier, and its variables.

Does not know values. Source: Flink ReporterScopedSettings, FrontMetricGroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.engine.metrics.scopes import DEFAULT_DELIMITER, ScopeFormats, operator_name
from penstock.ops.metrics.entities import ReportedMetric
from penstock.ops.metrics.filters import MetricFilter


@dataclass(frozen=True, slots=True)
class Selection:
    """`delimiter`: of identifiers. `excluded`, `additional`: variables without brackets. `scope_delimiter`: of the scopes that filters see.

    `allowed`: if there are any, scope and name with dots must contain one of them.
    """

    filter: MetricFilter = field(default_factory=MetricFilter)
    formats: ScopeFormats = field(default_factory=ScopeFormats)
    delimiter: str = DEFAULT_DELIMITER
    scope_delimiter: str = DEFAULT_DELIMITER
    excluded: frozenset[str] = frozenset()
    additional: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()

    def takes(self, metric: ReportedMetric) -> bool:
        """Return whether the reporter shows this metric."""
        measured = metric.measured
        scope = metric.logical_scope(self.scope_delimiter)
        if not self.filter.takes(scope, measured.name, measured.type):
            return False
        if not self.allowed:
            return True
        name = f"{metric.logical_scope()}.{measured.name}"
        return any(one in name for one in self.allowed)

    def identifier(self, metric: ReportedMetric) -> str:
        """Return the whole name, for reporters without tags."""
        return metric.identifier(self.formats, self.delimiter)

    def variables(self, metric: ReportedMetric) -> dict[str, str]:
        """Return the variables, for reporters with tags. A metric's own win against additional ones."""
        own = {k: v for k, v in metric.variables.items() if k not in self.excluded}
        if "operator_name" in own:
            own["operator_name"] = operator_name(own["operator_name"])
        return {**self.additional, **own}
