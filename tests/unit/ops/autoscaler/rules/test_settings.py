"""Options of the autoscaler: defaults of both profiles, and what is refused. Source: docs/spec/autoscaler.md#options."""

import math
import re

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.ops.autoscaler.rules.settings import (
    Aggregator,
    AlignmentMode,
    AutoscalerSettings,
    CapacitySettings,
    GateSettings,
    StepSettings,
    WindowSettings,
    autoscaler_settings_of,
)

MINUTE, HOUR = 60_000, 3_600_000


def read(**options):
    keys = {key.replace("_", "."): value for key, value in options.items()}
    return autoscaler_settings_of(Settings(keys))


def test_the_profile_of_flink_has_its_defaults():
    assert read(penstock_elastic_profile="flink") == AutoscalerSettings(
        is_enabled=False,
        interval_ms=10_000,
        window=WindowSettings(15 * MINUTE, 5 * MINUTE, Aggregator.MAX, 30, 0.15, 2),
        capacity=CapacitySettings(0.7, 1.0, 0.7 - 0.3, 1800, 300, False, 900, 300),
        step=StepSettings(
            1, 200, 0.6, 100_000, AlignmentMode.BALANCED, math.inf, False, False, 3, 0.5
        ),
        gates=GateSettings(True, HOUR, False, 0.1, 0, frozenset(), 1.0, 1.0, None, None),
        history_count=3,
        history_age_ms=24 * HOUR,
        event_interval_ms=30 * MINUTE,
    )


def test_the_profile_of_penstock_is_the_default():
    found = read()
    assert found == read(penstock_elastic_profile="penstock")
    assert (found.window.window_ms, found.window.stabilization_ms) == (60_000, 20_000)
    capacity = found.capacity
    assert (capacity.utilization_min, capacity.utilization_max) == pytest.approx((0.55, 0.85))
    assert (capacity.catch_up_s, capacity.restart_s, capacity.is_restart_tracked) == (600, 2, True)
    step = found.step
    assert (step.up_max, step.max_added, step.is_at_most_partitions) == (1.0, 0.25, True)
    gates = found.gates
    assert (gates.scale_down_ms, gates.is_effect_required) == (10 * MINUTE, True)
    assert gates.ineffective_tolerated == 1


def test_what_is_set_counts_with_both_profiles():
    for profile in ("flink", "penstock"):
        options = {"job.autoscaler.metrics.window": "7 min", "penstock.elastic.profile": profile}
        assert autoscaler_settings_of(Settings(options)).window.window_ms == 7 * MINUTE


def test_names_of_the_operator_are_taken():
    key = "kubernetes.operator.job.autoscaler.catch-up.duration"
    assert autoscaler_settings_of(Settings({key: "90 s"})).capacity.catch_up_s == 90


def test_bounds_of_the_utilization_lie_around_its_target_unless_they_are_set():
    options = {"job.autoscaler.utilization.target": 0.9, "penstock.elastic.profile": "flink"}
    found = autoscaler_settings_of(Settings(options)).capacity
    assert (found.utilization_min, found.utilization_max) == (pytest.approx(0.6), 1.0)
    options |= {"job.autoscaler.utilization.max": 0.95, "job.autoscaler.utilization.min": 0.1}
    found = autoscaler_settings_of(Settings(options)).capacity
    assert (found.utilization_min, found.utilization_max) == (0.1, 0.95)


def test_lists_and_names():
    options = {
        "job.autoscaler.vertex.exclude.ids": "a;b",
        "job.autoscaler.metrics.busy-time.aggregator": "avg",
        "job.autoscaler.scaling.parallelism-alignment.mode": "evenly_spread",
        "job.autoscaler.quota.cpu": "12.5",
        "job.autoscaler.quota.memory": "2 gb",
    }
    found = autoscaler_settings_of(Settings(options))
    assert found.gates.excluded_vertices == {"a", "b"}
    assert found.window.aggregator is Aggregator.AVG
    assert found.step.alignment is AlignmentMode.EVENLY_SPREAD
    assert (found.gates.quota_cpu, found.gates.quota_memory) == (12.5, 2 << 30)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("job.autoscaler.utilization.target", 0),
        ("job.autoscaler.utilization.target", 1.1),
        ("job.autoscaler.utilization.min", 0.8),
        ("job.autoscaler.utilization.max", 0.5),
        ("job.autoscaler.target.utilization.boundary", -0.1),
        ("job.autoscaler.interval", 0),
        ("job.autoscaler.metrics.window", 0),
        ("job.autoscaler.vertex.min-parallelism", 0),
        ("job.autoscaler.vertex.min-parallelism", 201),
        ("job.autoscaler.scale-down.max-factor", 1.5),
        ("job.autoscaler.scale-up.max-factor", -1),
        ("job.autoscaler.scale-up.max-factor", "nan"),
        ("job.autoscaler.metrics.busy-time.aggregator", "SUM"),
        ("job.autoscaler.scaling.parallelism-alignment.mode", "EVEN"),
        ("job.autoscaler.history.max.count", 0),
        ("job.autoscaler.memory.heap-usage.threshold", 1.5),
        ("job.autoscaler.observed-scalability.coefficient-min", 0),
        ("job.autoscaler.quota.cpu", 0),
        ("penstock.autoscaler.tolerated-ineffective-scalings", -1),
        ("penstock.elastic.profile", "spark"),
    ],
)
def test_a_value_out_of_its_range_is_refused_with_key_and_value(key, value):
    with pytest.raises(ConfigurationError, match=re.escape(str(value))):
        autoscaler_settings_of(Settings({key: value}))
