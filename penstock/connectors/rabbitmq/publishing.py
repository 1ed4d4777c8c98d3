"""Where a sink's messages go, and with which properties: by record. Plain data and hooks; does not know any client.

Source: Flink's RMQSinkPublishOptions and SerializableReturnListener; AMQP 0-9-1, basic.publish and basic.return.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.engine.model.errors import ConfigurationError

# ---------------------------------------------------------------------- publishing


MAX_SHORT_BYTES: Final = 255
PERSISTENT: Final = 2
DELIVERY_MODES: Final = (1, PERSISTENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RMQMessageProperties:
    """The properties of a message, with the names of AMQP; None: not set.

    Args:
        content_type: such as `application/json`.
        content_encoding: such as `gzip`.
        headers: names with texts, bytes, whole numbers, Decimals, booleans, datetimes, None, or lists and dicts of
            them, but no floats; headers exchanges go by them.
        delivery_mode: 2 (default): the message survives a restart of the broker; 1: it does not.
        priority: 0 to 255, for queues with priorities.
        correlation_id: by which an RMQSource recognises a message that comes again.
        reply_to: a queue for answers.
        expiration: after how many ms a queue drops the message, as a text.
        message_id: an id of the application's.
        timestamp: in s since 1970.
        type: the kind of message.
        user_id: the broker refuses a name other than that of the connection's user.
        app_id: the application.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Mapping[str, Any] | None = None
    delivery_mode: int = PERSISTENT
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None

    def __post_init__(self) -> None:
        """Check what the broker would close the channel for. Raises ConfigurationError."""
        if self.delivery_mode not in DELIVERY_MODES:
            raise ConfigurationError(
                "RMQMessageProperties: expected 1 (gone with the broker) or 2 (persistent) as "
                f"delivery_mode, got {self.delivery_mode!r}."
            )
        expiration = self.expiration
        if expiration is not None and not (
            isinstance(expiration, str) and expiration.isascii() and expiration.isdigit()
        ):
            raise ConfigurationError(
                "RMQMessageProperties: expected a whole number of ms as a text, such as '60000', "
                f"as expiration, got {expiration!r}."
            )


class RMQSinkPublishOptions:
    """Where messages go: to one exchange with one routing key, or, in a subclass, as its methods say for each record.

    Not in PyFlink; the names are those of Flink's Java interface.
    """

    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = False

    def __init__(
        self, exchange: str = "", routing_key: str = "", *, mandatory: bool = False
    ) -> None:
        """Send every message to this exchange.

        Args:
            exchange: its name; the empty one sends to the queue that the routing key names.
            routing_key: a direct exchange compares it, a topic exchange matches it; fanout and headers exchanges do
                not look at it.
            mandatory: the broker returns a message that no queue takes; else it drops it.
        """
        self.exchange = checked_name("exchange", exchange)
        self.routing_key = checked_name("routing_key", routing_key)
        self.mandatory = mandatory

    def compute_exchange(self, value: Any) -> str:
        """Return the exchange for a record."""
        return self.exchange

    def compute_routing_key(self, value: Any) -> str:
        """Return the routing key for a record."""
        return self.routing_key

    def compute_properties(self, value: Any) -> RMQMessageProperties | None:
        """Return the properties for a record; None (default): persistent, and nothing else."""
        return None

    def compute_mandatory(self, value: Any) -> bool:
        """Return whether the broker is to return the message if no queue takes it."""
        return self.mandatory

    def compute_immediate(self, value: Any) -> bool:
        """Return False: RabbitMQ has no immediate messages since its version 3.0. Another answer is an error."""
        return False

    @property
    def fixed_exchange(self) -> str | None:
        """The only exchange there is; None: it is the empty one, or depends on the record."""
        is_fixed = type(self).compute_exchange is RMQSinkPublishOptions.compute_exchange
        return self.exchange or None if is_fixed else None


@dataclass(frozen=True, slots=True)
class ReturnedMessage:
    """A mandatory message that no queue has taken.

    Args:
        reply_code: AMQP's code; 312: there is no route.
        reply_text: its text.
        exchange: where it was sent.
        routing_key: with which key.
        properties: as pika has them.
        body: the bytes.
    """

    reply_code: int
    reply_text: str
    exchange: str
    routing_key: str
    properties: Any
    body: bytes


ReturnListener: TypeAlias = Callable[[ReturnedMessage], None]


def checked_name(what: str, name: object) -> str:
    """The name of an exchange, or a routing key. Raises: ConfigurationError."""
    if not isinstance(name, str) or len(name.encode()) > MAX_SHORT_BYTES:
        raise ConfigurationError(
            f"RMQSinkPublishOptions: expected a text of up to {MAX_SHORT_BYTES} bytes as {what}, "
            f"got {name!r:.300}."
        )
    return name


# ---------------------------------------------------------------------- checks
# Checks of the arguments of source and sink. Does not know any client.


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
            f"{where}: expected the name of a queue, of up to {MAX_NAME_BYTES} bytes, got "
            f"{queue!r}."
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
