"""Checks of topics before a job starts. Does not know any client."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from penstock.engine.model.errors import ConfigurationError, ExternalError


class UnknownTopic(ExternalError):
    """The topic does not exist, or this client may not see it."""


Partition_co = TypeVar("Partition_co", covariant=True)


class HasPartitions(Protocol[Partition_co]):
    def partitions(self, topic: str) -> Sequence[Partition_co]: ...


def partitions_seen(cluster: HasPartitions[Partition_co], topic: str) -> Sequence[Partition_co]:
    """The partitions of a topic; none if it was deleted since it was listed."""
    try:
        return cluster.partitions(topic)
    except UnknownTopic:
        return ()


@contextmanager
def topics_of_settings(advertised: str) -> Generator[None]:
    """Turns errors of a lookup into errors of the settings, because the program has set the topics.

    `advertised`: the setting with which brokers advertise their addresses. Raises: ConfigurationError.
    """
    try:
        yield
    except UnknownTopic as error:
        raise ConfigurationError(str(error)) from error
    except ExternalError as error:
        raise ConfigurationError(
            f"{error} The driver and all executors must reach the brokers at the addresses that "
            f"the brokers advertise ({advertised})."
        ) from error
