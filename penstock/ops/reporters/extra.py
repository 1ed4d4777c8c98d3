"""Where packages are asked for that only drivers with some reporters need."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

from penstock.engine.model.options.reporters import PrometheusOptions
from penstock.ops.reporters.settings import ReporterSettings

if TYPE_CHECKING:
    from penstock.ops.reporters.collector import MetricCollector


@contextlib.contextmanager
def needs_extra(extra: str, packages: str) -> Generator[None]:
    """Import `packages` inside. Raises: ImportError: one is missing, and what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{packages} cannot be imported by this driver ({error}). Install what is missing "
            f"there: pip install 'penstock[{extra}]'"
        ) from error


def collector_of(settings: ReporterSettings) -> MetricCollector:
    """Return the metrics of one reporter.

    Raises: ConfigurationError: a filter cannot be read; ImportError: prometheus_client is missing.
    """
    with needs_extra("prometheus", "the package 'prometheus_client'"):
        from penstock.ops.reporters.collector import MetricCollector
    filters_values = settings.get(PrometheusOptions.FILTERS_VALUES)
    return MetricCollector(settings.selection(), filters_values=filters_values)
