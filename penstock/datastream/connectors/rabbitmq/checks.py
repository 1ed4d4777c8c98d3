"""Checks of the arguments of source and sink. Does not know any client."""

from __future__ import annotations

from typing import Any, Final

from penstock.datastream.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.model.errors import ConfigurationError

MAX_NAME_BYTES: Final = 255


def checked_config(where: str, config: object) -> RMQConnectionConfig:
    """The configuration. Raises: TypeError."""
    if not isinstance(config, RMQConnectionConfig):
        raise TypeError(
            f"{where}: expected an RMQConnectionConfig, got {type(config).__name__}. Make one with "
            "RMQConnectionConfig.Builder() and its build()."
        )
    return config


def checked_queue(where: str, queue: object) -> str:
    """The queue's name. Raises: ConfigurationError."""
    if not isinstance(queue, str) or not 0 < len(queue.encode()) <= MAX_NAME_BYTES:
        raise ConfigurationError(
            f"{where}: expected the name of a queue, of up to {MAX_NAME_BYTES} bytes, got {queue!r}."
        )
    return queue


def checked_schema(where: str, schema: object, kind: type) -> Any:
    """The schema. Raises: TypeError."""
    if not isinstance(schema, kind):
        raise TypeError(f"{where}: expected a {kind.__name__}, got {type(schema).__name__}.")
    return schema
