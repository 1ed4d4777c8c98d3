"""The settings of one reporter, read by its name. Source: Flink ReporterSetupBuilder, MetricOptions.forReporter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from penstock.engine.metrics.scopes import delimiter_of, scope_formats
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.option import NAME, Option
from penstock.engine.model.options.reporters import (
    EVENTS,
    PREFIX,
    TRACES,
    EventReporterOptions,
    PrometheusOptions,
    ReporterOptions,
    TraceReporterOptions,
)
from penstock.ops.metrics.selection import MetricFilter, Selection

T = TypeVar("T")
_FACTORY_KEY: Final = ReporterOptions.FACTORY.key.partition(NAME)[2]


@dataclass(frozen=True, slots=True)
class ReporterKind:
    """What is reported. `prefix`: of its keys. `package`: of Flink's factories. `names`, `factory`: options that every kind has."""

    prefix: str
    package: str
    names: Option[list[str] | None]
    factory: Option[str | None]


METRICS: Final = ReporterKind(
    PREFIX, "org.apache.flink.metrics.", ReporterOptions.NAMES, ReporterOptions.FACTORY
)
SPANS: Final = ReporterKind(
    TRACES, "org.apache.flink.traces.", TraceReporterOptions.NAMES, TraceReporterOptions.FACTORY
)
HAPPENINGS: Final = ReporterKind(
    EVENTS, "org.apache.flink.events.", EventReporterOptions.NAMES, EventReporterOptions.FACTORY
)


@dataclass(frozen=True, slots=True)
class ReporterSettings:
    """What is set for one reporter."""

    name: str
    settings: Settings
    kind: ReporterKind = METRICS

    def get(self, option: Option[T]) -> T:
        """Return the value of an option that has `<name>` in its key."""
        return self.settings.get(option.of(self.name))

    @property
    def label(self) -> str:
        """The reporter's name in logs; for spans and events like `traces.x`."""
        if self.kind is METRICS:
            return self.name
        return f"{self.kind.prefix.partition('.')[0]}.{self.name}"

    @property
    def texts(self) -> dict[str, str]:
        """All that is set for it, to see whether other settings are the same."""
        prefix = f"{self.kind.prefix}{self.name}."
        return {k: v for k, v in self.settings.as_text().items() if k.startswith(prefix)}

    @property
    def factory(self) -> str | None:
        """The name of the factory's class without its package, or whole if the package is none of Flink's."""
        name = self.get(self.kind.factory)
        is_flinks = name is not None and name.startswith(self.kind.package)
        return name.rpartition(".")[2] if name and is_flinks else name

    @property
    def interval_s(self) -> float:
        """Raises: ConfigurationError: it is not above 0."""
        option = ReporterOptions.INTERVAL.of(self.name)
        interval_ms = self.settings.get(option)
        if interval_ms <= 0:
            raise ConfigurationError(f"option '{option.key}' is {interval_ms} ms. Make it longer.")
        return interval_ms / 1000

    def selection(self) -> Selection:
        """Return which metrics it shows, and how. Raises: ConfigurationError: a filter cannot be read."""
        formats, _ = scope_formats(self.settings)
        everywhere = delimiter_of(self.settings)
        own = self.settings.raw(ReporterOptions.DELIMITER.of(self.name))
        includes, excludes = self.get(ReporterOptions.INCLUDES), self.get(ReporterOptions.EXCLUDES)
        excluded, added = self.get(ReporterOptions.EXCLUDED), self.get(ReporterOptions.ADDITIONAL)
        allowed = self.get(PrometheusOptions.ALLOWED)
        return Selection(
            filter=MetricFilter(includes, excludes or ()),
            formats=formats,
            delimiter=own if isinstance(own, str) and len(own) == 1 else everywhere,
            scope_delimiter=everywhere,
            excluded=frozenset(excluded),
            additional=added or {},
            allowed=tuple(allowed or ()),
        )


def reporters_in(settings: Settings, kind: ReporterKind = METRICS) -> list[ReporterSettings]:
    """Return those that are named, or else all that have a factory."""
    names = settings.get(kind.names)
    found = names or sorted(_with_factory(settings, kind.prefix))
    return [ReporterSettings(name, settings, kind) for name in dict.fromkeys(found)]


def _with_factory(settings: Settings, prefix: str) -> Iterator[str]:
    for key in settings.as_dict():
        name = key.removeprefix(prefix).removesuffix(_FACTORY_KEY)
        if key == f"{prefix}{name}{_FACTORY_KEY}" and name and "." not in name:
            yield name
