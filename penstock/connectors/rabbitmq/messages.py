"""Makes the messages of a sink from its records. Needs pika for their properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from penstock.common.serialization import SerializationSchema
from penstock.connectors.api.sending import bodies_of
from penstock.connectors.rabbitmq.client import import_pika
from penstock.connectors.rabbitmq.publishing import (
    PERSISTENT,
    RMQMessageProperties,
    RMQSinkPublishOptions,
    checked_name,
)
from penstock.engine.model.errors import ConfigurationError

_AROUND_BYTES: Final = 20
"""What a frame of properties has besides them: its own head and end, and the head of the content."""


class Message(NamedTuple):
    """`properties`: as pika has them."""

    exchange: str
    routing_key: str
    body: bytes
    properties: Any
    is_mandatory: bool


class MessageMaker:
    """Makes messages for one queue, or as the options say for each record."""

    def __init__(
        self,
        schema: SerializationSchema,
        queue: str | None,
        options: RMQSinkPublishOptions | None,
        max_frame_bytes: int,
    ) -> None:
        """`max_frame_bytes`: AMQP sends the properties of a message in one frame."""
        self._max_bytes = max_frame_bytes - _AROUND_BYTES
        self._schema = schema
        self._queue = queue
        self._options = options
        self._pika = import_pika("RMQSink")
        self._usual = self._pika.BasicProperties(delivery_mode=PERSISTENT)

    def messages(self, values: Sequence[Any]) -> list[Message]:
        """The messages, in order. Raises: TypeError, ConfigurationError: the program gives something else for a record."""
        bodies = bodies_of(self._schema, values)
        options = self._options
        if options is None:
            assert self._queue is not None, "a sink has a queue or options"
            usual, queue = self._usual, self._queue
            return [Message("", queue, body, usual, True) for body in bodies]
        return [
            self._message(options, value, body) for value, body in zip(values, bodies, strict=True)
        ]

    def _message(self, options: RMQSinkPublishOptions, value: Any, body: bytes) -> Message:
        if options.compute_immediate(value):
            raise ConfigurationError(
                f"RMQSink: {type(options).__name__}.compute_immediate gave True for "
                f"{value!r:.200}. RabbitMQ refuses immediate messages. Return False; a queue "
                "with x-message-ttl 0 does about the same."
            )
        properties = options.compute_properties(value)
        return Message(
            checked_name("exchange", options.compute_exchange(value)),
            checked_name("routing key", options.compute_routing_key(value)),
            body,
            self._usual if properties is None else self._of_pika(properties, value),
            options.compute_mandatory(value),
        )

    def _of_pika(self, properties: RMQMessageProperties, value: Any) -> Any:
        if not isinstance(properties, RMQMessageProperties):
            raise TypeError(
                f"RMQSink: compute_properties gave {type(properties).__name__} for {value!r:.200}; "
                "expected RMQMessageProperties or None"
            )
        made = self._pika.BasicProperties(**asdict(properties))
        encode: Callable[[], Sequence[bytes]] = made.encode
        try:
            size = sum(map(len, encode()))  # here an error belongs to a record
        except Exception as error:  # the client's errors have no common base class
            raise TypeError(
                f"RMQSink: AMQP has no such properties of {value!r:.200}: "
                f"{self._odd_header(properties.headers) or f'{error!r}. Got {properties}'!s:.500}"
            ) from error
        if size > self._max_bytes:
            raise ValueError(
                f"RMQSink: the properties of {value!r:.200} have {size} bytes, but one frame of "
                f"AMQP takes {self._max_bytes}. Put long texts into the body."
            )
        return made

    def _odd_header(self, headers: Mapping[str, Any] | None) -> str | None:
        """What is wrong with the first header that cannot be sent; None: it is none of them."""
        for name, header in (headers or {}).items():
            try:
                self._pika.BasicProperties(headers={name: header}).encode()
            except Exception:  # as above
                return (
                    f"header {name!r:.100} is {header!r:.100}, a {type(header).__name__}. Names "
                    "are texts of up to 255 bytes, values are texts, bytes, whole numbers of 64 "
                    "bits, Decimals of 32 bits, booleans, datetimes, None, or lists and dicts of "
                    "them. Write a float as Decimal or text"
                )
        return None
