"""The defaults of elastic jobs: of Penstock, or of Flink.

`penstock.elastic.profile` chooses between them, for options that nobody sets. Does not know the readers of options. Source: none in
Flink. Flink's defaults are made for rescales that take minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.autoscaler import (
    AutoscalerMetricOptions,
    AutoscalerStepOptions,
    AutoscalerTargetOptions,
    ElasticOptions,
)
from penstock.engine.model.options.option import Option

T = TypeVar("T")


class ElasticProfile(StrEnum):
    """Whose defaults count."""

    PENSTOCK = "penstock"
    FLINK = "flink"


PENSTOCK_DEFAULTS: Final[Mapping[str, str]] = {
    AutoscalerMetricOptions.METRICS_WINDOW.key: "60 s",
    AutoscalerMetricOptions.STABILIZATION_INTERVAL.key: "20 s",
    # Narrower bounds mean more rescales, fewer idle slots, and growth before records wait. `python -m simulation autoscaler` shows both.
    AutoscalerTargetOptions.UTILIZATION_BOUNDARY.key: "0.15",
    AutoscalerStepOptions.SCALE_DOWN_INTERVAL.key: "10 min",
    AutoscalerTargetOptions.RESTART_TIME.key: "2 s",
    AutoscalerTargetOptions.RESTART_TIME_TRACKING.key: "true",
    AutoscalerTargetOptions.CATCH_UP_DURATION.key: "10 min",
    AutoscalerStepOptions.EFFECTIVENESS_ENABLED.key: "true",
    AutoscalerStepOptions.TOLERATED_INEFFECTIVE.key: "1",
    AutoscalerStepOptions.ALIGNMENT_MAX_ADDED.key: "0.25",
    AutoscalerStepOptions.AT_MOST_PARTITIONS.key: "true",
    # Doubles at most, so that a wrong measurement cannot ask for a hundred slots.
    AutoscalerStepOptions.SCALE_UP_MAX_FACTOR.key: "1.0",
}
"""By key, as texts: what profile `penstock` has in place of Flink's defaults."""


def profile_of(settings: Settings) -> ElasticProfile:
    """Return the profile that is set. Raises: ConfigurationError: there is no such profile."""
    given = settings.get(ElasticOptions.PROFILE).strip().lower()
    try:
        return ElasticProfile(given)
    except ValueError:
        names = " or ".join(ElasticProfile)
        raise ConfigurationError(
            f"option '{ElasticOptions.PROFILE.key}' is '{given}', but it takes {names}. "
            "Change the setting."
        ) from None


def elastic_value(settings: Settings, option: Option[T]) -> T:
    """Return the option's value; where nobody sets it, the default of the profile. None is possible only without any default."""
    if settings.is_set(option) or profile_of(settings) is ElasticProfile.FLINK:
        return settings.get(option)
    own = PENSTOCK_DEFAULTS.get(option.key)
    return settings.get(option) if own is None else option.parse(own)
