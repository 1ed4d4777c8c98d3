"""MqttSink: publishes a message for each record at QoS 1, at least once. Needs paho-mqtt (`penstock[mqtt]`).

Source: MQTT 5.0 (3.4 PUBACK, 4.9 flow control); Flink's RMQSink for the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self, TypeAlias

from penstock.common.serialization import SerializationSchema
from penstock.connectors.api.base import Accepts, Sink, WriterContext
from penstock.connectors.api.builder import MISSING
from penstock.connectors.api.sending import RowsWriter, bodies_of, subtask_of
from penstock.connectors.mqtt.client import (
    FINAL,
    MAX_IN_FLIGHT,
    PATIENCE_S,
    MqttBuilder,
    MqttSettings,
    check_login,
    checked_topic,
    connect,
    error_of,
    make_client,
)
from penstock.engine.hosting.os.clock import HELP
from penstock.engine.hosting.os.interrupts import uninterruptible_condition
from penstock.engine.model.errors import ExternalError, RefusedForGood
from penstock.engine.runtime.interruption import uninterruptible
from penstock.engine.runtime.sink import SendFigures

_NAME: Final = "MqttSink"
_MOST_UNCONFIRMED: Final = 10_000
_IN_FLIGHT: Final = 20
_MOST_BYTES: Final = 268_435_455
"""The largest packet, without its fixed header, that MQTT allows (MQTT 5.0, 1.5.5)."""
_FIXED_HEADER_BYTES: Final = 5
_AROUND_TOPIC_BYTES: Final = 5
"""The size of the topic, the packet's id, and no properties (3.3.2)."""

Converted: TypeAlias = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class _Settings(MqttSettings):
    topic: str | Callable[[Any], str] = MISSING
    schema: SerializationSchema = MISSING
    is_retained: bool = False
    in_flight: int = _IN_FLIGHT


class MqttSink(Sink):
    """Publishes to topics of an MQTT broker. Not in PyFlink. Build it with `MqttSink.builder()`."""

    accepts = Accepts.ROWS
    is_converting = True

    def __init__(self, settings: _Settings) -> None:
        """Use the builder."""
        self.settings = settings

    def __repr__(self) -> str:
        return f"{_NAME}({self.settings}, {self.settings.topic})"

    @staticmethod
    def builder() -> MqttSink.Builder:
        return MqttSink.Builder()

    class Builder(MqttBuilder):
        """Builds an MqttSink; the setters return the builder."""

        name = _NAME
        begin = _Settings

        def set_topic(self, topic: str | Callable[[Any], str]) -> Self:
            """Set the topic, or a function from a record to its topic."""
            if not callable(topic):
                checked_topic(f"{_NAME}.set_topic", topic, is_filter=False)
            return self._with(topic=topic)

        def set_serializer(self, schema: SerializationSchema) -> Self:
            """Set the schema that makes a message of a record."""
            return self._with_schema(SerializationSchema, "set_serializer", schema)

        def set_retained(self, is_retained: bool) -> Self:
            """Set whether the broker keeps the last message of a topic for who subscribes later; by default it does not."""
            return self._with(is_retained=is_retained)

        def set_max_in_flight(self, messages: int) -> Self:
            """Set how many messages are on their way without a confirmation; 20 by default, which brokers allow."""
            return self._with_number("set_max_in_flight", 1, MAX_IN_FLIGHT, in_flight=messages)

        def build(self) -> MqttSink:
            """Return the sink. Raises ConfigurationError: something is missing."""
            settings = self._complete(topic='set_topic("orders")', schema="set_serializer(schema)")
            return MqttSink(settings)

    def validate(self) -> None:
        """Check client and login. Raises ConfigurationError.

        A broker that the driver does not reach is no error: only the subtasks must reach it.
        """
        check_login(self.settings, f"{_NAME} on the driver")

    def create_writer(self, context: WriterContext) -> MqttWriter:
        writer = MqttWriter(self.settings, subtask_of(_NAME, context))
        writer.start()
        return writer


class MqttWriter(RowsWriter):
    """Writer of one subtask. The client has a thread of its own, and sends again what is not confirmed."""

    sink_name = _NAME

    def __init__(self, settings: _Settings, where: str) -> None:
        self.sent = SendFigures()
        self.settings = settings
        self._where = where
        self._client = make_client(settings, where)
        self._client.max_queued_messages_set(0)
        self._client.max_inflight_messages_set(settings.in_flight)
        self._changed = uninterruptible_condition()
        self._published = self._confirmed = 0
        self._most_bytes: int | None = None
        self._error: ExternalError | None = None

    def start(self) -> None:
        """Connect. Raises ExternalError."""
        self._client.on_connect = self._on_connect
        self._client.on_publish = self._on_publish
        self._client.on_disconnect = self._on_disconnect
        connect(self._client, self.settings, self._where)

    def converted(self, values: Sequence[Any]) -> Converted:
        topic, bodies = self.settings.topic, bodies_of(self.settings.schema, values)
        if callable(topic):
            where = f"{_NAME}: the function of set_topic"
            topics = [checked_topic(where, topic(value), is_filter=False) for value in values]
            converted = list(zip(topics, bodies, strict=True))
        else:
            converted = [(topic, body) for body in bodies]
        self._check_sizes(converted)
        return converted

    def _check_sizes(self, converted: Converted) -> None:
        """Here, so that the policy for errors has it. Raises: RefusedForGood: one is larger than the broker takes."""
        if not converted:
            return
        sizes = [len(topic.encode()) + len(body) for topic, body in converted]
        size = max(sizes) + _FIXED_HEADER_BYTES + _AROUND_TOPIC_BYTES
        most = self._wait_for_limit()
        if size > most:
            topic, body = converted[sizes.index(max(sizes))]
            raise RefusedForGood(
                f"{self._where}: a message for the topic {topic!r:.200} has {len(body)} bytes, "
                f"and its packet {size}. {self.settings} takes packets of {most} bytes. Set that "
                "higher, or make the records smaller."
            )

    def _wait_for_limit(self) -> int:
        """What the broker takes as a packet: it says so when it takes the connection. Raises: ExternalError."""
        with self._changed:
            self._changed.wait_for(lambda: self._most_bytes or self._error, PATIENCE_S)
            if self._error is not None:
                raise self._error
            if self._most_bytes is None:
                raise ExternalError(
                    f"{self._where}: {self.settings} has not answered for {PATIENCE_S:.0f} s. "
                    + HELP
                )
            return self._most_bytes

    def write_converted(self, converted: Converted, watermark_ms: int) -> None:
        for begin in range(0, len(converted), _MOST_UNCONFIRMED):
            piece = converted[begin : begin + _MOST_UNCONFIRMED]
            self._wait_for(_MOST_UNCONFIRMED)
            self._published += len(piece)
            with uninterruptible():  # the client has locks, which its thread takes too
                for topic, body in piece:
                    self._client.publish(topic, body, qos=1, retain=self.settings.is_retained)
            self.sent.bytes += sum(len(body) for _, body in piece)

    def prepare_commit(self) -> Sequence[object]:
        """Wait until all messages are confirmed; then the task forwards the
        checkpoint's barrier.
        """
        self._wait_for(0)
        return ()

    def close(self) -> None:
        with uninterruptible():
            self._client.disconnect()
        self._client.loop_stop()

    def _wait_for(self, most: int) -> None:
        """Wait until at most `most` messages are not confirmed. Raises: ExternalError: a refusal,
        or nothing is confirmed for long.
        """
        with self._changed:
            while self._error is None and (left := self._published - self._confirmed) > most:
                seen = self._confirmed
                if not self._changed.wait_for(partial(self._has_news, seen), PATIENCE_S):
                    self._error = ExternalError(
                        f"{self._where}: {self.settings} has confirmed none of {left} messages "
                        f"for {PATIENCE_S:.0f} s. {HELP}"
                    )
            if self._error is not None:
                self.sent.errors += self._published - self._confirmed
                raise self._error

    def _has_news(self, confirmed: int) -> bool:
        return self._confirmed != confirmed or self._error is not None

    # ------------------------------------------------------------------ the client's thread

    def _on_connect(
        self, client: Any, _data: Any, _flags: Any, reason: Any, properties: Any
    ) -> None:
        if reason.is_failure:
            self._fail(error_of(self._where, self.settings, "the connection", reason))
            return
        with self._changed:
            self._most_bytes = getattr(properties, "MaximumPacketSize", _MOST_BYTES)
            self._changed.notify()
        most = getattr(properties, "ReceiveMaximum", MAX_IN_FLIGHT)
        if most < self.settings.in_flight:
            self._fail(
                RefusedForGood(
                    f"{self._where}: {self.settings} takes {most} messages at once, and "
                    f"{self.settings.in_flight} may be on their way. Set "
                    f"set_max_in_flight({most})."
                )
            )

    def _on_publish(
        self, _client: Any, _data: Any, _mid: int, reason: Any, _properties: Any
    ) -> None:
        if reason.is_failure:
            self._fail(error_of(self._where, self.settings, "a message", reason))
            return
        with self._changed:
            self._confirmed += 1
            self._changed.notify()

    def _on_disconnect(
        self, client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any
    ) -> None:
        """The client would connect again and send the same again. An answer that it does not know is one, too."""
        if reason.value in FINAL:
            client.disconnect()
            self._fail(
                RefusedForGood(
                    f"{self._where}: {self.settings} has ended the connection at a message: "
                    f"{reason} (reason code {reason.value:#x}). It may be too large for the "
                    "broker, or its topic have too many levels."
                )
            )

    def _fail(self, error: ExternalError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify()
