"""What the options of elastic jobs mean. Expectations: docs/spec/elasticity.md#options."""

import pytest

from penstock.engine.machines.rescaling.adaptive_settings import (
    AdaptiveSettings,
    adaptive_settings_of,
)
from penstock.engine.machines.rescaling.transition_manager import TransitionTimings
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError

PREFIX = "jobmanager.adaptive-scheduler."


def of_flink(values=None, interval=None):
    settings = Settings({"penstock.elastic.profile": "flink"} | (values or {}))
    return adaptive_settings_of(settings, interval)


def test_flinks_profile_has_flinks_defaults():
    assert of_flink() == AdaptiveSettings(
        wait_timeout_ms=300_000,
        submission=TransitionTimings(0, 10_000, 0),
        executing=TransitionTimings(30_000, 60_000, 0),
        max_checkpoint_failures=2,
        prefers_few_taskmanagers=True,
        history_size=0,
    )


def test_with_checkpoints_a_change_waits_one_interval_more_than_failures_are_tolerated():
    assert of_flink(interval=1_000).executing.max_trigger_delay_ms == 3_000
    failures = {f"{PREFIX}rescale-trigger.max-checkpoint-failures": "4"}
    assert of_flink(failures, 1_000).executing.max_trigger_delay_ms == 5_000


def test_the_own_profile_is_quicker():
    found = adaptive_settings_of(Settings({}), 1_000)
    assert found.submission == TransitionTimings(0, 2_000, 0)
    assert found.executing == TransitionTimings(10_000, 10_000, 5_000, waits_only_for_coming=True)
    assert found.history_size == 16


def test_what_is_set_counts_in_each_profile():
    values = {
        f"{PREFIX}executing.cooldown-after-rescaling": "1 s",
        f"{PREFIX}executing.resource-stabilization-timeout": "2 s",
        f"{PREFIX}submission.resource-stabilization-timeout": "3 s",
        f"{PREFIX}rescale-trigger.max-delay": "4 s",
        "web.adaptive-scheduler.rescale-history.size": "5",
    }
    for profile in ("flink", "penstock"):
        found = adaptive_settings_of(Settings(values | {"penstock.elastic.profile": profile}))
        assert found.executing == TransitionTimings(1_000, 2_000, 4_000)
        assert found.submission.stabilization_ms == 3_000
        assert found.history_size == 5


def test_older_keys_count_where_the_present_ones_are_not_set():
    older = {
        f"{PREFIX}scaling-interval.min": "7 s",
        f"{PREFIX}resource-wait-timeout": "8 s",
        f"{PREFIX}resource-stabilization-timeout": "9 s",
    }
    found = adaptive_settings_of(Settings(older))
    assert found.executing.cooldown_ms == 7_000
    assert found.wait_timeout_ms == 8_000
    assert found.submission.stabilization_ms == 9_000
    newer = {f"{PREFIX}submission.resource-wait-timeout": "1 s"}
    assert adaptive_settings_of(Settings(older | newer)).wait_timeout_ms == 1_000


def test_reactive_mode_waits_for_ever_and_then_begins_at_once():
    found = of_flink({"scheduler-mode": "reactive"})
    assert found.is_adaptive
    assert found.is_reactive
    assert found.wait_timeout_ms is None
    assert found.submission.stabilization_ms == 0


def test_reactive_mode_keeps_what_is_set():
    values = {"scheduler-mode": "REACTIVE", f"{PREFIX}submission.resource-wait-timeout": "1 min"}
    assert of_flink(values).wait_timeout_ms == 60_000


@pytest.mark.parametrize("given", ["-1", "-1 ms"])
def test_a_negative_timeout_is_none(given):
    assert of_flink({f"{PREFIX}submission.resource-wait-timeout": given}).wait_timeout_ms is None


def test_an_autoscaler_makes_the_job_elastic_and_excludes_reactive_mode():
    scaled = {"job.autoscaler.enabled": "true"}
    assert of_flink(scaled).is_adaptive
    with pytest.raises(ConfigurationError, match=r"job\.autoscaler\.enabled.*reactive"):
        of_flink(scaled | {"scheduler-mode": "reactive"})


def test_the_scheduler_is_chosen_by_its_option():
    assert adaptive_settings_of(Settings({"jobmanager.scheduler": "Adaptive"})).is_adaptive
    assert not adaptive_settings_of(Settings({})).is_adaptive


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"{PREFIX}rescale-trigger.max-checkpoint-failures", "0"),
        ("scheduler-mode", "eager"),
        ("penstock.elastic.profile", "fast"),
        ("web.adaptive-scheduler.rescale-history.size", "-1"),
    ],
)
def test_what_an_option_does_not_take_is_refused(key, value):
    with pytest.raises(ConfigurationError, match=key):
        adaptive_settings_of(Settings({key: value}))
