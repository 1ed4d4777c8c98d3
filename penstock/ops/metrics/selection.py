"""What one reporter shows of a metric: whether it does, its identifier, and its variables.

Does not know values. Source: Flink ReporterScopedSettings, FrontMetricGroup.

Which metrics a reporter shows: `scope[:names[:types]]` in lists of what is included and what is not.

Does not know values. Source: Flink DefaultReporterFilters, as described for `metrics.reporter.NAME.filter.includes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.metrics.scopes import DEFAULT_DELIMITER, ScopeFormats, operator_name
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.metrics import MetricType
from penstock.ops.metrics.entities import ReportedMetric

_EVERY_TYPE: Final = frozenset(MetricType)
_ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class _Rule:
    scope: re.Pattern[str]
    name: re.Pattern[str]
    types: frozenset[MetricType]

    def fits(self, scope: str, name: str, type_: MetricType) -> bool:
        return bool(
            type_ in self.types and self.name.fullmatch(name) and self.scope.fullmatch(scope)
        )


class MetricFilter:
    """Rules of one reporter."""

    def __init__(self, includes: Iterable[str] = ("*:*:*",), excludes: Iterable[str] = ()) -> None:
        """Raises: ConfigurationError: a rule cannot be read."""
        self._includes = [_rule(text) for text in includes]
        self._excludes = [_rule(text) for text in excludes]

    def takes(self, scope: str, name: str, type_: MetricType) -> bool:
        """Return whether a metric is reported. `scope`: the logical scope, with dots. What is excluded is never reported."""
        if any(rule.fits(scope, name, type_) for rule in self._excludes):
            return False
        return any(rule.fits(scope, name, type_) for rule in self._includes)


def _rule(text: str) -> _Rule:
    scope, name, types, *more = [*text.split(":"), *[_ANY, _ANY][text.count(":") :]]
    if more:
        raise _refusal(text, "it has more than three parts between colons")
    try:
        return _Rule(_pattern(scope), _pattern(name), _types(types))
    except (re.error, ValueError) as error:
        raise _refusal(text, str(error)) from error


def _pattern(texts: str) -> re.Pattern[str]:
    """One of several texts. As in Flink only `*` is changed, so that a dot is any character."""
    return re.compile("|".join(one.strip().replace(_ANY, ".*") for one in texts.split(",")))


def _types(text: str) -> frozenset[MetricType]:
    if text.strip() == _ANY:
        return _EVERY_TYPE
    return frozenset(MetricType(one.strip().lower()) for one in text.split(","))


def _refusal(text: str, cause: str) -> ConfigurationError:
    return ConfigurationError(
        f"the filter of metrics {text!r} cannot be read: {cause}. It takes "
        "scope[:name,name[:type,type]], where * is any text and the types are "
        "counter, gauge, meter and histogram."
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """The names and variables of metrics that one reporter takes.

    `delimiter`: of identifiers. `excluded`, `additional`: variables without brackets. `scope_delimiter`: of the scopes that filters see.

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
