"""Checks of the arguments of source and sink. Does not know any client."""

from __future__ import annotations

from typing import Any, Final, cast

from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.connectors.rabbitmq.publishing import ReturnListener, RMQSinkPublishOptions
from penstock.engine.model.errors import ConfigurationError

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


def checked_options(options: object, queue: object) -> RMQSinkPublishOptions | None:
    """The options. Raises: TypeError; ConfigurationError: there is a queue as well."""
    if options is None:
        return None
    if not isinstance(options, RMQSinkPublishOptions):
        raise TypeError(
            f"RMQSink: expected RMQSinkPublishOptions as publish_options, got {options!r:.200}."
        )
    if queue is not None:
        raise ConfigurationError(
            f"RMQSink: publish_options say where messages go, and so does queue_name {queue!r}. "
            "Set one of the two to None."
        )
    return options


def checked_listener(listener: object, options: object) -> ReturnListener | None:
    """The listener. Raises: TypeError; ConfigurationError: it would never be called."""
    if listener is None:
        return None
    if not callable(listener):
        raise TypeError(f"RMQSink: expected a function as return_listener, got {listener!r:.200}.")
    if options is None:
        raise ConfigurationError(
            "RMQSink: a return_listener gets messages that an exchange cannot route, but there are "
            "no publish_options."
        )
    return cast("ReturnListener", listener)
