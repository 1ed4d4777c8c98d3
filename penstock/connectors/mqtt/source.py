"""MqttSource: reads topics at QoS 1, and acknowledges what complete checkpoints cover. Needs paho-mqtt (`penstock[mqtt]`).

Source: MQTT 5.0 (4.4 delivery retry, 3.1.2.11 session expiry and receive maximum, 4.8.2 shared subscriptions); Flink's
RMQSource for when to acknowledge.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, NamedTuple, Self

from penstock.common.extras import extra
from penstock.common.serialization import DeserializationSchema
from penstock.common.time import Duration
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import Batch, Poller, PollingSource, QueuePoller
from penstock.connectors.api.builder import MISSING
from penstock.connectors.api.messaging.records import NamedMessages
from penstock.connectors.mqtt.client import (
    MAX_IN_FLIGHT,
    PATIENCE_S,
    TAKEN_OVER,
    MqttBuilder,
    MqttSettings,
    check_login,
    checked_topic,
    connect,
    error_of,
    make_client,
)
from penstock.engine.hosting.os.clock import HELP
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.time import millis_of

_LOG: Final = logging.getLogger(__name__)
_NAME: Final = "MqttSource"
_ROWS: Final = 1000
_WAIT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Settings(MqttSettings):
    client_id: str = ""
    topics: tuple[str, ...] = ()
    schema: DeserializationSchema = MISSING
    with_topic: bool = False
    clients: int = 1
    keeps_s: int = Duration.of_days(1).to_millis() // 1000

    @property
    def messages(self) -> NamedMessages:
        return NamedMessages(self.schema, "topic" if self.with_topic else None)


class MqttSource(PollingSource):
    """Reads topics of an MQTT broker, at least once. Not in PyFlink. Build it with `MqttSource.builder()`."""

    def __init__(self, settings: _Settings) -> None:
        """Use the builder."""
        self.settings = settings
        self.shards = settings.clients
        self.default_parallelism = settings.clients

    def __repr__(self) -> str:
        return f"{_NAME}({self.settings}, {', '.join(self.settings.topics)})"

    @staticmethod
    def builder() -> MqttSource.Builder:
        return MqttSource.Builder()

    class Builder(MqttBuilder):
        """Builds an MqttSource; the setters return the builder."""

        name = _NAME
        begin = _Settings

        def set_client_id(self, client_id: str) -> Self:
            """Set the name of the session in which the broker keeps what was not acknowledged. No other client may have it."""
            if not isinstance(client_id, str) or not client_id or "/" in client_id:
                raise ConfigurationError(
                    f"{_NAME}.set_client_id: expected a text without '/', got {client_id!r}."
                )
            return self._with(client_id=client_id)

        def set_topics(self, *filters: str) -> Self:
            """Set topics, with + for any one level, and # for all that follow."""
            where = f"{_NAME}.set_topics"
            return self._with(
                topics=tuple(checked_topic(where, one, is_filter=True) for one in filters)
            )

        def set_deserializer(
            self, schema: DeserializationSchema, *, with_topic: bool = False
        ) -> Self:
            """Set the schema that makes a record of a message; None of it: no record.

            `with_topic`: records are Rows with the fields `topic` and `value`.
            """
            return self._with_schema(
                DeserializationSchema, "set_deserializer", schema, with_topic=with_topic
            )

        def set_clients(self, clients: int) -> Self:
            """Set how many clients share the messages, 1 by default: a shared subscription, without an order."""
            return self._with_number("set_clients", 1, clients=clients)

        def set_session_expiry(self, expiry: Duration) -> Self:
            """Set how long the broker keeps messages while the job is away; a day by default."""
            keeps_s = millis_of(expiry) // 1000
            if not 1 <= keeps_s < 1 << 32:
                raise ConfigurationError(
                    f"{_NAME}.set_session_expiry: expected 1 s to {(1 << 32) - 1} s, got {expiry}."
                )
            return self._with(keeps_s=keeps_s)

        def build(self) -> MqttSource:
            """Return the source. Raises ConfigurationError: something is missing."""
            settings = self._complete(
                client_id='set_client_id("orders-job")',
                topics='set_topics("orders/#")',
                schema="set_deserializer(schema)",
            )
            return MqttSource(settings)

    @property
    def produced_type(self) -> TypeInformation:
        return self.settings.messages.produced_type

    def validate(self) -> None:
        """Check client and login. Raises ConfigurationError.

        A broker that the driver does not reach is no error: only the subtasks must reach it.
        """
        check_login(self.settings, f"{_NAME} on the driver")

    def create_poller(self, shard: int) -> Poller:
        return _MqttPoller(self.settings, shard)


class _Message(NamedTuple):
    number: int
    topic: str
    payload: bytes


class _MqttPoller(QueuePoller):
    """Messages are numbered as they come; a position is the number of the last one.

    The client's thread fills `waiting`. `_open`: the packets that were not acknowledged, with their numbers. One that
    comes again on a new connection has its old id, and is known by it.
    """

    def __init__(self, settings: _Settings, shard: int) -> None:
        super().__init__()
        self.settings = settings
        self._where = f"{_NAME}, client {settings.client_id}-{shard}"
        self._client = make_client(
            settings, self._where, f"{settings.client_id}-{shard}", manual_ack=True
        )
        self._open: dict[int, int] = {}
        self._came = self._given = 0
        self._error: ExternalError | None = None
        # Since when there is no connection; None: there is one.
        self._lost_s: float | None = None

    def open(self, position: Any) -> None:
        self._came = self._given = position or 0
        self._lost_s = monotonic()
        client = self._client
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.on_disconnect = self._on_disconnect
        connect(client, self.settings, self._where, keeps_s=self.settings.keeps_s)

    def poll(self) -> Sequence[Any] | Batch:
        taken = self.taken(_ROWS, _WAIT_S, lambda: self._error)
        if not taken:
            self._check()
            return []
        self._given = taken[-1].number
        return self.settings.messages.batch(
            [one.topic for one in taken],
            [one.payload for one in taken],
            None,
            lambda number: f"a message of the topic {taken[number].topic!r}",
        )

    def _check(self) -> None:
        """Raises: ExternalError: the client has given up, or does not get a connection."""
        if self._error is not None:
            raise self._error
        if self._lost_s is not None and monotonic() - self._lost_s > PATIENCE_S:
            raise ExternalError(
                f"{self._where}: no connection to {self.settings} for {PATIENCE_S:g} s. {HELP}"
            )

    def position(self) -> int:
        return self._given

    def acknowledge(self, position: int) -> None:
        with self.changed:
            done = [mid for mid, number in self._open.items() if number <= position]
            for mid in done:
                del self._open[mid]
        for mid in done:
            self._client.ack(mid, 1)

    def close(self) -> None:
        """The broker keeps the session."""
        self._client.disconnect()
        self._client.loop_stop()

    # ------------------------------------------------------------------ the client's thread

    def _on_connect(
        self, client: Any, _data: Any, flags: Any, reason: Any, _properties: Any
    ) -> None:
        if reason.is_failure:
            self._fail(error_of(self._where, self.settings, "the connection", reason))
            return
        with self.changed:
            self._lost_s = None
            if not flags.session_present:  # nothing comes again, and its ids are used anew
                if self._open:
                    _LOG.warning("%s: the broker has lost the session", self._where)
                self._open.clear()
        settings = self.settings
        options = extra("paho.mqtt.subscribeoptions", "mqtt", self._where).SubscribeOptions
        head = f"$share/{settings.client_id}/" if settings.clients > 1 else ""
        # 1: retained messages come with a subscription that is new, not with each connection.
        retained = 0 if head else 1
        wanted = options(qos=1, retainHandling=retained)
        client.subscribe([(f"{head}{one}", wanted) for one in settings.topics])

    def _on_subscribe(
        self, _client: Any, _data: Any, _mid: int, reasons: Sequence[Any], _properties: Any
    ) -> None:
        for topic, reason in zip(self.settings.topics, reasons, strict=True):
            if reason.is_failure:
                what = f"the subscription of {topic!r}"
                self._fail(error_of(self._where, self.settings, what, reason))

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        with self.changed:
            if message.qos:
                if message.dup and message.mid in self._open:
                    return  # it was read on a former connection, and is acknowledged in time
                self._came += 1
                self._open[message.mid] = self._came
            elif len(self.waiting) >= MAX_IN_FLIGHT:
                return  # QoS 0 promises nothing, and memory is bounded
            else:
                self._came += 1
            self.waiting.append(_Message(self._came, message.topic, bytes(message.payload)))
            self.changed.notify()

    def _on_disconnect(
        self, client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any
    ) -> None:
        with self.changed:
            if self._lost_s is None:
                self._lost_s = monotonic()
        if reason.value == TAKEN_OVER:
            client.disconnect()  # or both would take the session from each other for ever
            self._fail(
                ExternalError(
                    f"{self._where}: another client with this id has connected to "
                    f"{self.settings}. If it is no new attempt of this job, give one of them "
                    "another set_client_id."
                )
            )

    def _fail(self, error: ExternalError) -> None:
        with self.changed:
            self._error = error
            self.changed.notify()
