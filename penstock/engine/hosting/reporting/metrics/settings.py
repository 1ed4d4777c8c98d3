"""What the configuration says of metrics, as far as a TaskManager needs it. Knows no metric."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.runtime.task.latency import LatencySettings


@dataclass(frozen=True, slots=True)
class MetricSettings:
    """`report_interval_ms` 0: nothing is reported. `probing_interval_ms` 0: the machine is not measured."""

    report_interval_ms: int = 10_000
    probing_interval_ms: int = 0
    is_python_enabled: bool = True
    has_channel_details: bool = False
    latency: LatencySettings = field(default_factory=LatencySettings)
