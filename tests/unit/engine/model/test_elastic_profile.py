"""Whose defaults count for elastic jobs. Source: docs/spec/autoscaler.md#options."""

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.elastic import PENSTOCK_DEFAULTS, elastic_value
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.autoscaler import (
    AutoscalerMetricOptions,
    AutoscalerTargetOptions,
    ElasticOptions,
    ElasticProfile,
)
from penstock.engine.model.options.catalogue import OPTIONS

WINDOW = AutoscalerMetricOptions.METRICS_WINDOW


def settings(profile=None, **others):
    return Settings({ElasticOptions.PROFILE.key: profile} if profile else {}, **others)


def test_penstocks_profile_is_the_default():
    assert settings().get(ElasticOptions.PROFILE) is ElasticProfile.PENSTOCK
    assert settings(" Flink ").get(ElasticOptions.PROFILE) is ElasticProfile.FLINK


def test_a_profile_gives_the_defaults():
    assert elastic_value(settings(), WINDOW) == 60_000
    assert elastic_value(settings("flink"), WINDOW) == 15 * 60_000


def test_who_sets_an_option_is_right_with_every_profile():
    for profile in ("flink", "penstock"):
        set_by_user = settings(profile, command_line={WINDOW.key: "3 min"})
        assert elastic_value(set_by_user, WINDOW) == 180_000


def test_an_option_that_both_have_alike_is_the_same_with_both():
    option = AutoscalerTargetOptions.UTILIZATION_TARGET
    assert option.key not in PENSTOCK_DEFAULTS
    assert elastic_value(settings(), option) == elastic_value(settings("flink"), option) == 0.7
    assert elastic_value(settings(), AutoscalerTargetOptions.UTILIZATION_MAX) is None


@pytest.mark.parametrize("key", PENSTOCK_DEFAULTS)
def test_each_default_is_one_of_an_option_and_differs_from_flinks(key):
    option = OPTIONS[key]
    flinks = None if option.default is None else option.parse(option.default)
    assert option.parse(PENSTOCK_DEFAULTS[key]) != flinks


def test_another_profile_is_refused():
    with pytest.raises(ConfigurationError, match="one of penstock, flink"):
        settings("fast")
