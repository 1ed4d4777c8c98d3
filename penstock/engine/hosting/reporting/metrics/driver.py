"""The metrics of the driver's own process, by the names of Flink's JobManager.

Who keeps the store puts them there from time to time: `store.put(place, registry.measured(), now_ms)`. Source: Flink MetricUtils.
"""

from __future__ import annotations

import socket

from penstock.engine.hosting.reporting.metrics.process import add_process_metrics
from penstock.engine.metrics.registry import Registry
from penstock.engine.metrics.scopes import Component, Place


def driver_registry() -> Registry:
    """The metrics of this process. Call its `update` every 5 s."""
    registry = Registry()
    add_process_metrics(registry)
    return registry


def driver_place(host: str = "") -> Place:
    """Where they belong. `host`: the name under which others know this machine; empty: its own."""
    return Place(Component.JOBMANAGER, {"host": host or socket.gethostname()})
