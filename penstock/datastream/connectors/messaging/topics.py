"""Topics that are looked at before a job starts. Knows no client."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from penstock.model.errors import ConfigurationError, ExternalError


class UnknownTopic(ExternalError):
    """There is no such topic, or this client may not see it."""


Partition_co = TypeVar("Partition_co", covariant=True)


class HasPartitions(Protocol[Partition_co]):
    def partitions(self, topic: str) -> Sequence[Partition_co]: ...


def partitions_seen(cluster: HasPartitions[Partition_co], topic: str) -> Sequence[Partition_co]:
    """Of a topic that may have been deleted since it was listed: none."""
    try:
        return cluster.partitions(topic)
    except UnknownTopic:
        return ()


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
