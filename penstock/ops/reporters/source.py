"""All metrics of this driver, lent by the job_registry to one reporter at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator
from typing import Final

from penstock.engine.hosting.os.clock import give_way
from penstock.ops.metrics.entities import ReportedMetric
from penstock.ops.registry.job_registry import JOB_REGISTRY

_AT_A_TIME: Final = 200


@contextlib.contextmanager
def lent_metrics() -> Generator[Iterator[ReportedMetric]]:
    """Lend all metrics as they are now. Other threads run after each few of them, because jobs must not wait."""
    with JOB_REGISTRY.metrics() as store:
        yield giving_way(store.metrics())


def giving_way(metrics: Iterable[ReportedMetric]) -> Iterator[ReportedMetric]:
    """Return them all, and let other threads run from time to time."""
    for count, metric in enumerate(metrics, 1):
        yield metric
        if count % _AT_A_TIME == 0:
            give_way()
