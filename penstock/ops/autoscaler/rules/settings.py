"""The settings of the autoscaler, read from the options and checked.

Source: AutoScalerOptions of Flink's Kubernetes operator (docs/spec/autoscaler.md#options).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.engine.model.config import Settings
from penstock.engine.model.elastic import elastic_value
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.autoscaler import (
    AutoscalerMetricOptions,
    AutoscalerOptions,
    AutoscalerStepOptions,
    AutoscalerTargetOptions,
)
from penstock.engine.model.options.option import Option, refusal


class Aggregator(StrEnum):
    """Which subtask's busy time counts for its vertex."""

    MAX = "MAX"
    MIN = "MIN"
    AVG = "AVG"


class AlignmentMode(StrEnum):
    """How a parallelism is made to fit key groups or partitions."""

    BALANCED = "BALANCED"
    EVENLY_SPREAD = "EVENLY_SPREAD"
    OFF = "OFF"


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """When measurements count. `lag_shows_s`: with a lag of this many seconds a source shows how fast it can be."""

    window_ms: int = 60_000
    stabilization_ms: int = 20_000
    aggregator: Aggregator = Aggregator.MAX
    lag_shows_s: float = 30.0
    switch_threshold: float = 0.15
    min_observations: int = 2


@dataclass(frozen=True, slots=True)
class CapacitySettings:
    """What a vertex should be able to do. `utilization_*`: shares of its time, 0 to 1."""

    utilization: float = 0.7
    utilization_max: float = 0.85
    utilization_min: float = 0.55
    catch_up_s: float = 600.0
    restart_s: float = 2.0
    is_restart_tracked: bool = True
    restart_limit_s: float = 900.0
    backlog_s: float = 300.0


@dataclass(frozen=True, slots=True)
class StepSettings:
    """How far one decision may go, and to which numbers."""

    min_parallelism: int = 1
    max_parallelism: int = 200
    down_max: float = 0.6
    up_max: float = 1.0
    alignment: AlignmentMode = AlignmentMode.BALANCED
    max_added: float = 0.25
    is_at_most_partitions: bool = True
    is_scalability_observed: bool = False
    scalability_observations: int = 3
    scalability_min: float = 0.5


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What holds a decision up. `quota_memory`: bytes. None: no limit."""

    is_scaling: bool = True
    scale_down_ms: int = 600_000
    is_effect_required: bool = True
    effect_min: float = 0.1
    ineffective_tolerated: int = 1
    excluded_vertices: frozenset[str] = frozenset()
    gc_pressure_max: float = 1.0
    heap_usage_max: float = 1.0
    quota_cpu: float | None = None
    quota_memory: int | None = None


@dataclass(frozen=True, slots=True)
class AutoscalerSettings:
    """Defaults are those of the profile `penstock`. `history_count`: rescales that are remembered of each vertex."""

    is_enabled: bool = False
    interval_ms: int = 10_000
    window: WindowSettings = field(default_factory=WindowSettings)
    capacity: CapacitySettings = field(default_factory=CapacitySettings)
    step: StepSettings = field(default_factory=StepSettings)
    gates: GateSettings = field(default_factory=GateSettings)
    history_count: int = 3
    history_age_ms: int = 86_400_000
    event_interval_ms: int = 1_800_000


def autoscaler_settings_of(settings: Settings) -> AutoscalerSettings:
    """Return what the options say, with the defaults of the profile.

    Raises: ConfigurationError: a value out of its range, or an unknown name.
    """
    reader = _Reader(settings)
    return AutoscalerSettings(
        is_enabled=reader.get(AutoscalerOptions.ENABLED),
        interval_ms=reader.at_least(AutoscalerOptions.INTERVAL, 1),
        window=_window(reader),
        capacity=_capacity(reader),
        step=_step(reader),
        gates=_gates(reader),
        history_count=reader.at_least(AutoscalerOptions.HISTORY_MAX_COUNT, 1),
        history_age_ms=reader.get(AutoscalerOptions.HISTORY_MAX_AGE),
        event_interval_ms=reader.get(AutoscalerOptions.EVENT_INTERVAL),
    )


class _Reader:
    """Reads options with the profile's defaults, and checks their ranges."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def get(self, option: Option[Any]) -> Any:
        return elastic_value(self._settings, option)

    def at_least(self, option: Option[Any], least: float) -> Any:
        value = self.get(option)
        return self._checked(option, value, value >= least, f"at least {least:g}")

    def share(self, option: Option[Any], *, above: float = -1.0) -> Any:
        value = self.get(option)
        if value is None:
            return None
        limits = "above 0 and at most 1" if above == 0 else "from 0 to 1"
        return self._checked(option, value, above < value <= 1 and value >= 0, limits)

    def quota(self, option: Option[Any]) -> Any:
        value = self.get(option)
        return self._checked(option, value, value is None or value > 0, "more than 0")

    def chosen(self, option: Option[str], kind: type[StrEnum]) -> Any:
        given = self.get(option).strip().upper()
        names = [str(one) for one in kind]
        self._checked(option, given, given in names, "one of " + ", ".join(names))
        return kind(given)

    @staticmethod
    def _checked(option: Option[Any], value: Any, is_good: bool, wanted: str) -> Any:
        if not is_good:
            raise refusal(option.key, value, wanted)
        return value


def _window(reader: _Reader) -> WindowSettings:
    return WindowSettings(
        window_ms=reader.at_least(AutoscalerMetricOptions.METRICS_WINDOW, 1),
        stabilization_ms=reader.get(AutoscalerMetricOptions.STABILIZATION_INTERVAL),
        aggregator=reader.chosen(AutoscalerMetricOptions.BUSY_TIME_AGGREGATOR, Aggregator),
        lag_shows_s=reader.get(AutoscalerMetricOptions.OBSERVED_LAG_THRESHOLD) / 1000,
        switch_threshold=reader.at_least(AutoscalerMetricOptions.OBSERVED_SWITCH_THRESHOLD, 0),
        min_observations=reader.at_least(AutoscalerMetricOptions.OBSERVED_MIN_OBSERVATIONS, 1),
    )


def _capacity(reader: _Reader) -> CapacitySettings:
    target = reader.share(AutoscalerTargetOptions.UTILIZATION_TARGET, above=0)
    boundary = reader.share(AutoscalerTargetOptions.UTILIZATION_BOUNDARY)
    above = reader.share(AutoscalerTargetOptions.UTILIZATION_MAX)
    below = reader.share(AutoscalerTargetOptions.UTILIZATION_MIN)
    most = min(1.0, target + boundary) if above is None else above
    least = max(0.0, target - boundary) if below is None else below
    if not least <= target <= most:
        keys = (
            AutoscalerTargetOptions.UTILIZATION_TARGET.key,
            AutoscalerTargetOptions.UTILIZATION_MIN.key,
            AutoscalerTargetOptions.UTILIZATION_MAX.key,
        )
        raise ConfigurationError(
            f"option '{keys[0]}' is {target:g}, but it lies between '{keys[1]}' ({least:g}) and "
            f"'{keys[2]}' ({most:g}). Change one of them."
        )
    return CapacitySettings(
        utilization=target,
        utilization_max=most,
        utilization_min=least,
        catch_up_s=reader.get(AutoscalerTargetOptions.CATCH_UP_DURATION) / 1000,
        restart_s=reader.get(AutoscalerTargetOptions.RESTART_TIME) / 1000,
        is_restart_tracked=reader.get(AutoscalerTargetOptions.RESTART_TIME_TRACKING),
        restart_limit_s=reader.get(AutoscalerTargetOptions.RESTART_TIME_LIMIT) / 1000,
        backlog_s=reader.get(AutoscalerTargetOptions.BACKLOG_LAG_THRESHOLD) / 1000,
    )


def _step(reader: _Reader) -> StepSettings:
    least = reader.at_least(AutoscalerStepOptions.VERTEX_MIN_PARALLELISM, 1)
    return StepSettings(
        min_parallelism=least,
        max_parallelism=reader.at_least(AutoscalerStepOptions.VERTEX_MAX_PARALLELISM, least),
        down_max=reader.share(AutoscalerStepOptions.SCALE_DOWN_MAX_FACTOR),
        up_max=reader.at_least(AutoscalerStepOptions.SCALE_UP_MAX_FACTOR, 0),
        alignment=reader.chosen(AutoscalerStepOptions.ALIGNMENT_MODE, AlignmentMode),
        max_added=reader.at_least(AutoscalerStepOptions.ALIGNMENT_MAX_ADDED, 0),
        is_at_most_partitions=reader.get(AutoscalerStepOptions.AT_MOST_PARTITIONS),
        is_scalability_observed=reader.get(AutoscalerStepOptions.SCALABILITY_ENABLED),
        scalability_observations=reader.at_least(
            AutoscalerStepOptions.SCALABILITY_MIN_OBSERVATIONS, 1
        ),
        scalability_min=reader.share(AutoscalerStepOptions.SCALABILITY_COEFFICIENT_MIN, above=0),
    )


def _gates(reader: _Reader) -> GateSettings:
    return GateSettings(
        is_scaling=reader.get(AutoscalerOptions.SCALING_ENABLED),
        scale_down_ms=reader.get(AutoscalerStepOptions.SCALE_DOWN_INTERVAL),
        is_effect_required=reader.get(AutoscalerStepOptions.EFFECTIVENESS_ENABLED),
        effect_min=reader.get(AutoscalerStepOptions.EFFECTIVENESS_THRESHOLD),
        ineffective_tolerated=reader.at_least(AutoscalerStepOptions.TOLERATED_INEFFECTIVE, 0),
        excluded_vertices=frozenset(reader.get(AutoscalerOptions.VERTEX_EXCLUDE_IDS) or ()),
        gc_pressure_max=reader.share(AutoscalerOptions.GC_PRESSURE_THRESHOLD),
        heap_usage_max=reader.share(AutoscalerOptions.HEAP_USAGE_THRESHOLD),
        quota_cpu=reader.quota(AutoscalerOptions.QUOTA_CPU),
        quota_memory=reader.quota(AutoscalerOptions.QUOTA_MEMORY),
    )
