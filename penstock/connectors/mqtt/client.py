"""The client library paho-mqtt as the connector uses it: where the broker is, who may log in, what
its errors mean.

Only MQTT 5: it has reasons, and how long the broker keeps a session.
"""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from penstock.common.extras import extra
from penstock.connectors.api.builder import ServerBuilder, ServerSettings
from penstock.connectors.clients.tls import TlsFiles, tls_doubt, tls_refusal
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.runtime.interruption import uninterruptible

KEEP_ALIVE_S: Final = 30
LOOK_TIMEOUT_S: Final = 3.0
LONGEST_DELAY_S: Final = 5
PATIENCE_S: Final = 30.0
"""How long a source may have no connection, and a sink no confirmation."""
MAX_IN_FLIGHT: Final = 65_535
MAX_TOPIC_BYTES: Final = 65_535
TAKEN_OVER: Final = 0x8E
FINAL: Final = frozenset({0x81, 0x82, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C, 0x8F, 0x90, 0x95, 0x9A})
"""Reason codes that another try gets again: protocol, client id, login, rights, names, size, retain."""


@dataclass(frozen=True, slots=True)
class MqttSettings(ServerSettings):
    """Where a broker is, and who logs in."""

    ports: ClassVar = {"mqtt": 1883, "mqtts": 8883}
    secure: ClassVar = "mqtts"


def checked_topic(where: str, topic: object, *, is_filter: bool) -> str:
    """A topic's name, or a filter with wildcards. Raises: ConfigurationError."""
    levels = topic.split("/") if isinstance(topic, str) else []
    is_right = bool(topic) and bool(levels) and "\0" not in levels[-1]
    for place, level in enumerate(levels):
        is_wild = level == "+" or (level == "#" and place == len(levels) - 1)
        if ("+" in level or "#" in level) and not (is_wild and is_filter):
            is_right = False
    if is_right and len(str(topic).encode()) > MAX_TOPIC_BYTES:
        raise ConfigurationError(
            f"{where}: expected up to {MAX_TOPIC_BYTES} bytes, got {len(str(topic).encode())}: "
            f"{topic!r:.200}."
        )
    if not is_right:
        kind = (
            "a topic filter, with + for a level, or # as the last one"
            if is_filter
            else "the name of a topic, without + and #"
        )
        raise ConfigurationError(f"{where}: expected {kind}, got {topic!r:.200}.")
    return str(topic)


class MqttBuilder(ServerBuilder):
    """What the builders of source and sink share."""

    always: ClassVar = {"urls": 'set_url("mqtt://host:1883")'}
    form = "mqtt://[user:password@]host:1883, or mqtts:// for TLS, without a path"

    def set_url(self, url: str) -> Self:
        """Set the broker: mqtt://host:1883, or mqtts://host:8883 for TLS with the certificates that this Python trusts."""
        return self._with_urls(url)


class _ClosingSocket(ssl.SSLSocket):
    """Closed where hands cannot be shaken: the library forgets it then."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except BaseException:  # Of any kind, an interrupt too: it is raised again.
            self.close()
            raise


def make_client(broker: MqttSettings, where: str, client_id: str = "", **more: Any) -> Any:
    """A client that is not connected. Raises: ConfigurationError: paho is missing."""
    mqtt = extra("paho.mqtt.client", "mqtt", where)
    versions = extra("paho.mqtt.enums", "mqtt", where).CallbackAPIVersion
    client = mqtt.Client(versions.VERSION2, client_id=client_id, protocol=mqtt.MQTTv5, **more)
    username, password = broker.credentials
    if username is not None:
        client.username_pw_set(username, password)
    if broker.has_tls:
        context = (broker.tls or TlsFiles()).context(where)
        context.sslsocket_class = _ClosingSocket
        client.tls_set_context(context)
    client.reconnect_delay_set(1, LONGEST_DELAY_S)
    return client


def connect(client: Any, broker: MqttSettings, where: str, *, keeps_s: int = 0) -> None:
    """Connect, and start the client's own thread, which connects again by itself.

    `keeps_s`: how long the broker keeps the session of a client that is gone; 0: not at all.
    Raises: ExternalError.
    """
    properties = extra("paho.mqtt.properties", "mqtt", where).Properties
    kinds = extra("paho.mqtt.packettypes", "mqtt", where).PacketTypes
    wanted = properties(kinds.CONNECT)
    if keeps_s:
        wanted.SessionExpiryInterval = keeps_s
        wanted.ReceiveMaximum = MAX_IN_FLIGHT
    parts = urlsplit(broker.urls[0])
    port = parts.port or broker.ports[parts.scheme]
    try:
        client.connect(
            parts.hostname, port, KEEP_ALIVE_S, clean_start=not keeps_s, properties=wanted
        )
    except OSError as error:
        if refusal := tls_refusal(error):
            raise RefusedForGood(f"{where}: {broker}: {refusal}.") from error
        raise ExternalError(f"{where}: {broker} cannot be reached: {error}") from error
    with uninterruptible():
        client.loop_start()


def error_of(where: str, broker: MqttSettings, what: str, reason: Any) -> ExternalError:
    """The error of a reason code. `what`: what the broker refuses."""
    text = f"{where}: {broker} refuses {what}: {reason} (reason code {reason.value:#x})"
    if reason.value in FINAL:
        return RefusedForGood(f"{text}. Correct user, password, rights, or the topic.")
    return ExternalError(text)


def check_login(broker: MqttSettings, where: str) -> None:
    """Log in and out again, if the broker can be reached from here.

    Raises: ConfigurationError: the broker refuses. A broker that is not reached is not reported:
    only the subtasks must reach it.
    """
    client = make_client(broker, where)
    client.connect_timeout = LOOK_TIMEOUT_S
    answered, answers = threading.Event(), []

    def note(_client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        answers.append(reason)
        answered.set()

    client.on_connect = note
    try:
        connect(client, broker, where)
    except ExternalError as error:
        if broker.has_tls and (doubt := tls_doubt(error)):
            raise ConfigurationError(f"{where}: {broker}: {doubt}.") from error
        return
    answered.wait(LOOK_TIMEOUT_S)
    client.disconnect()
    client.loop_stop()
    if answers and answers[0].is_failure:
        raise ConfigurationError(str(error_of(where, broker, "the connection", answers[0])))
