"""Topics that are looked at before a job starts. Knows no client."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from penstock.model.errors import ConfigurationError, ExternalError


class UnknownTopic(ExternalError):
    """There is no such topic, or this client may not see it."""


@contextmanager
def topics_of_settings(advertised: str) -> Generator[None]:
    """What goes wrong with them is wrong with the settings. `advertised`: what names brokers give themselves by.

    Raises: ConfigurationError.
    """
    try:
        yield
    except UnknownTopic as error:
        raise ConfigurationError(str(error)) from error
    except ExternalError as error:
        raise ConfigurationError(
            f"{error} The driver and all executors must reach the brokers by the names that these give themselves "
            f"({advertised})."
        ) from error
