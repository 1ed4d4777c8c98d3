"""Pushes all metrics to a PushGateway of Prometheus, and deletes them when the driver ends.

Source: Flink PrometheusPushGatewayReporter, PrometheusPushGatewayReporterOptions.
"""

from __future__ import annotations

import functools
import logging
import secrets
from collections.abc import Callable
from typing import Any, Final

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.reporters import PrometheusOptions
from penstock.ops.reporters.extra import collector_of
from penstock.ops.reporters.pushing import PushingReporter
from penstock.ops.reporters.settings import ReporterSettings

_LOG: Final = logging.getLogger(__name__)
_TIMEOUT_S: Final = 10.0
"""For one request. At its end a driver waits for two at most."""
_SUFFIX_BYTES: Final = 16


def push_gateway_reporter(settings: ReporterSettings) -> PushingReporter:
    """Return one that runs. Raises: ConfigurationError: a setting is missing or wrong; ImportError: prometheus_client is missing."""
    collector = collector_of(settings)
    from prometheus_client import delete_from_gateway, push_to_gateway

    address = settings.get(PrometheusOptions.HOST_URL)
    if not address:
        raise ConfigurationError(
            f"option '{PrometheusOptions.HOST_URL.of(settings.name).key}' is not set. Set it to "
            "the address of the PushGateway, for example http://localhost:9091."
        )
    given: dict[str, Any] = {
        "gateway": address,
        "job": job_name(settings),
        "grouping_key": grouping_key(settings.get(PrometheusOptions.GROUPING_KEY) or ""),
        "timeout": _TIMEOUT_S,
        "handler": _handler(settings),
    }
    return PushingReporter(
        settings.name,
        settings.interval_s,
        functools.partial(push_to_gateway, registry=collector, **given),
        functools.partial(delete_from_gateway, **given)
        if settings.get(PrometheusOptions.DELETES)
        else None,
    )


def job_name(settings: ReporterSettings) -> str:
    """Return the name of the group, with random digits unless they are switched off."""
    name = settings.get(PrometheusOptions.JOB_NAME) or ""
    has_suffix = settings.get(PrometheusOptions.RANDOM_SUFFIX)
    return name + secrets.token_hex(_SUFFIX_BYTES) if has_suffix else name


def grouping_key(text: str) -> dict[str, str]:
    """Return the pairs of `k1=v1;k2=v2`. What is no pair is logged and left out."""
    found = {}
    for part in filter(None, text.split(";")):
        key, _, value = part.partition("=")
        if key and value and "=" not in value:
            found[key.strip()] = value.strip()
        else:
            _LOG.warning("groupingKey part=%r LEFT OUT cause=it is not like key=value", part)
    return found


def _handler(settings: ReporterSettings) -> Callable[..., Callable[[], None]]:
    from prometheus_client.exposition import basic_auth_handler, default_handler

    user = settings.get(PrometheusOptions.USERNAME)
    password = settings.get(PrometheusOptions.PASSWORD)
    if (user is None) != (password is None):
        raise ConfigurationError(
            f"reporter '{settings.name}' has only one of username and password. Set both or none."
        )
    if user is None:
        return default_handler
    return functools.partial(basic_auth_handler, username=user, password=password)
