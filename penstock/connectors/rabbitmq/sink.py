"""RMQSink: writes a message to a queue or an exchange for each record, at least once. Needs pika
(`penstock[rabbitmq]`).

Source: pyflink.datastream.connectors.rabbitmq, Flink's RMQSink, which guarantees nothing; differs:
the broker has confirmed all messages before the task forwards a checkpoint's barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import takewhile
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, cast

from penstock.common.serialization import SerializationSchema
from penstock.connectors.api.base import Accepts, Sink, SinkWriter, WriterContext
from penstock.connectors.api.builder import checked_schema
from penstock.connectors.api.sending import RowsWriter, bodies_of, subtask_of
from penstock.connectors.rabbitmq.channel_thread import ChannelThread
from penstock.connectors.rabbitmq.client import (
    ACCESS_REFUSED,
    PRECONDITION_FAILED,
    PikaClient,
    check_login,
    import_pika,
    look_for_exchange,
)
from penstock.connectors.rabbitmq.config import RMQConnectionConfig, checked_config, checked_queue
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.sink import SendFigures

# ---------------------------------------------------------------------- publishing
# Where a sink's messages go, and with which properties: by record. Plain data and hooks; does not know any client.
#
# Source: Flink's RMQSinkPublishOptions and SerializableReturnListener; AMQP 0-9-1, basic.publish and basic.return.


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


# ---------------------------------------------------------------------- sink


# ---------------------------------------------------------------------- messages
# Makes the messages of a sink from its records. Needs pika for their properties.


_AROUND_BYTES: Final = 20
"""What a frame of properties has in addition: its own head and end, and the head of the content."""


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


# ---------------------------------------------------------------------- publisher
# The publisher of a sink: sends messages, and keeps them until the broker has confirmed them.
# Needs pika.
#
# Source: Flink RMQSink; differs: uses publisher confirms and messages that survive a restart of
# the broker, and passes whole batches from thread to thread.


MAX_OPEN: Final = 16_384
MAX_OPEN_BYTES: Final = 16 << 20
WAIT_S: Final = 0.1


class MessagePublisher(ChannelThread):
    """Publishes messages. After a connection is lost, those that were not confirmed are sent again on the next one."""

    final_codes: ClassVar = frozenset({ACCESS_REFUSED, PRECONDITION_FAILED})

    def __init__(
        self,
        client: PikaClient,
        config: RMQConnectionConfig,
        queue: str | None,
        where: str,
        listener: ReturnListener | None = None,
    ) -> None:
        """`listener`: gets messages that come back, on the task's thread; None: they are an error."""
        super().__init__(client, config, queue, where)
        self._listener = listener
        self._outbox: list[Message] = []
        self._open = 0
        self._open_bytes = 0
        self._sent: dict[int, Message] = {}
        self._number = 0
        self._confirmed: list[Message] = []
        self._returned: list[ReturnedMessage] = []

    # ------------------------------------------------------------------ the task's thread

    def send(self, messages: Sequence[Message]) -> None:
        """Sends the messages. Waits while too many are not confirmed. Raises: ExternalError: sending has ended."""
        self._wait(MAX_OPEN, MAX_OPEN_BYTES)
        with self.changed:
            self._outbox.extend(messages)
            self._open += len(messages)
            self._open_bytes += sum(len(one.body) for one in messages)
        self.run_soon(self._publish)
        self._report_returned()

    def flush(self) -> None:
        """Waits until all messages are confirmed. Raises: ExternalError: some cannot be."""
        self._wait(1, 1)
        self._report_returned()

    def _report_returned(self) -> None:
        listener = self._listener
        if listener is None:
            return
        with self.changed:
            returned, self._returned = self._returned, []
        for one in returned:
            listener(one)

    def _wait(self, count: int, size: int) -> None:
        """Waits until fewer messages are open. The waits are short, so that a cancelled task can leave them."""
        while True:
            with self.changed:
                self.check()
                if not self._open or (self._open < count and self._open_bytes < size):
                    return
                self.changed.wait(WAIT_S)

    # ------------------------------------------------------------------ the connection's thread

    def _begin(self, channel: Any) -> None:
        channel.add_on_return_callback(self._on_returned)
        channel.confirm_delivery(self._on_confirmed)
        again, self._sent, self._number = self._sent, {}, 0
        for message in again.values():
            self._publish_one(message)
        self._publish()

    def _publish(self) -> None:
        if not self._is_usable:
            return
        with self.changed:
            messages, self._outbox = self._outbox, []
        for message in messages:
            self._publish_one(message)

    def _publish_one(self, message: Message) -> None:
        self._number += 1
        self._sent[self._number] = message
        self._channel.basic_publish(*message)

    def _on_confirmed(self, frame: Any) -> None:
        method = frame.method
        if self._life.is_ending:
            return  # a message that was returned is confirmed afterwards, too
        if method.NAME == "Basic.Nack":
            self._refuse(
                f"the broker at {self._config.address} refuses messages for {self._place}. "
                "Either a queue is full and its overflow policy rejects new "
                "messages, or the broker had an internal error: see its log."
            )
            return
        numbers = [method.delivery_tag]
        if method.multiple:
            last = method.delivery_tag or self._number
            numbers = list(takewhile(lambda number: number <= last, self._sent))
        self._confirmed.extend(self._sent.pop(number) for number in numbers if number in self._sent)

    def _after_step(self) -> None:
        if self._confirmed:
            confirmed, self._confirmed = self._confirmed, []
            with self.changed:
                self._open -= len(confirmed)
                self._open_bytes -= sum(len(one.body) for one in confirmed)
                self.changed.notify_all()

    @property
    def _place(self) -> str:
        return "its exchange" if self._queue is None else f"the queue {self._queue!r}"

    def _on_returned(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """The broker confirms the message as well, after this."""
        at = f"the broker at {self._config.address}"
        if self._queue is not None:
            self._refuse(
                f"{at} has no queue {self._queue!r} any more ({method.reply_text}): it was deleted "
                "while this sink wrote to it. The sink creates a new one when it starts again."
            )
        elif self._listener is None:
            self._refuse(
                f"{at} has no queue for a mandatory message ({method.reply_text}): exchange "
                f"{method.exchange!r}, routing key {method.routing_key!r}. Bind a queue to it, or "
                "give the RMQSink a return_listener."
            )
        else:
            with self.changed:
                self._returned.append(
                    ReturnedMessage(
                        method.reply_code,
                        method.reply_text,
                        method.exchange,
                        method.routing_key,
                        properties,
                        body,
                    )
                )


# ---------------------------------------------------------------------- sink


class RMQSink(Sink):
    """Writes to a queue through the default exchange, or to exchanges.

    A missing queue is created, as a durable one; exchanges must be there.
    """

    accepts = Accepts.ROWS
    is_converting = True

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str | None,
        serialization_schema: SerializationSchema,
        *,
        publish_options: RMQSinkPublishOptions | None = None,
        return_listener: ReturnListener | None = None,
    ) -> None:
        """Check the arguments. Raises ConfigurationError or TypeError.

        Args:
            connection_config: the connection.
            queue_name: the queue; None with `publish_options`.
            serialization_schema: turns a value into a message's body.
            publish_options: exchange, routing key and properties for each record, instead of a queue. Not in PyFlink.
            return_listener: a function that gets each mandatory message that no queue takes, before the next
                checkpoint's barrier is forwarded; without it such a message is an error. Not in PyFlink.
        """
        self._config = checked_config("RMQSink", connection_config)
        self._queue = None
        self._options = checked_options(publish_options, queue_name)
        self._listener = checked_listener(return_listener, publish_options)
        if publish_options is None:
            self._queue = checked_queue("RMQSink", queue_name)
        self._schema = checked_schema("RMQSink", serialization_schema, SerializationSchema)

    def validate(self) -> None:
        """Check client, login and, if there is only one, the exchange.

        A broker that the driver does not reach is no error: only the subtasks must reach it.

        Raises ConfigurationError if pika is missing, or the broker refuses.
        """
        where = "RMQSink on the driver"
        exchange = None if self._options is None else self._options.fixed_exchange
        look = None if exchange is None else partial(look_for_exchange, exchange, where)
        check_login(self._config, where, look)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        where = subtask_of("RMQSink", context)
        publisher = MessagePublisher(
            PikaClient.of(self._config, where), self._config, self._queue, where, self._listener
        )
        maker = MessageMaker(self._schema, self._queue, self._options, self._config.frame_max)
        publisher.start()
        return _MessageWriter(publisher, maker)


class _MessageWriter(RowsWriter):
    """Writer of one subtask."""

    sink_name = "RMQSink"

    def __init__(self, publisher: MessagePublisher, maker: MessageMaker) -> None:
        self.sent = SendFigures()
        self._publisher = publisher
        self._maker = maker

    def converted(self, values: Sequence[Any]) -> list[Message]:
        return self._maker.messages(values)

    def write_converted(self, converted: list[Message], watermark_ms: int) -> None:
        self._publisher.send(converted)
        self.sent.bytes += sum(len(one.body) for one in converted)

    def prepare_commit(self) -> Sequence[object]:
        """Called before a barrier, and at the end of the job."""
        self._publisher.flush()
        return ()

    def close(self) -> None:
        self._publisher.close()
