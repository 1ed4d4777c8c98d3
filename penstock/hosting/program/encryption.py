"""Whether the connections of a job are encrypted, and with which identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.hosting.wire.tls import Identity, new_identity
from penstock.model.config import Settings
from penstock.model.options.security import SecurityOptions

SPARK_ENCRYPTS: Final = ("spark.network.crypto.enabled", "spark.ssl.enabled")
"""Whoever has one of them on wants no data of a job in clear on the network."""


def identity_of(settings: Settings, spark: Mapping[str, str]) -> Identity | None:
    """Return a new identity for a job; None: its connections are not encrypted.

    `spark`: Spark's configuration, which decides if the program does not. Raises ConfigurationError:
    the package `cryptography` is missing.
    """
    return new_identity() if is_encrypted(settings, spark) else None


def is_encrypted(settings: Settings, spark: Mapping[str, str]) -> bool:
    """Return whether the connections of jobs with these settings are encrypted."""
    is_wanted = settings.get(SecurityOptions.INTERNAL_SSL)
    if is_wanted is None:
        is_wanted = any(spark.get(key, "").strip().lower() == "true" for key in SPARK_ENCRYPTS)
    return is_wanted
