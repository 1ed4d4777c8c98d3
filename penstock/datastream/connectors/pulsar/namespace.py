"""Lists the topics of a namespace, with a command of Pulsar's binary protocol that the Python client does not offer.

Source: PulsarApi.proto (CommandConnect, CommandGetTopicsOfNamespace), Flink's TopicPatternSubscriber.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.datastream.connectors.messaging.properties import flag_of
from penstock.datastream.connectors.pulsar.authentication import handshake
from penstock.datastream.connectors.pulsar.options import (
    SERVICE_URL,
    Options,
    operation_timeout_s,
)
from penstock.datastream.connectors.pulsar.protobuf import decode, encode
from penstock.model.errors import ConfigurationError, ExternalError

_CONNECT, _CONNECTED, _ERROR, _PING, _PONG, _TOPICS, _TOPICS_ANSWER = 2, 3, 14, 18, 19, 32, 33
_PROTOCOL_VERSION: Final = 19
_MAX_FRAME_BYTES: Final = 64 << 20
_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651}


def topics_of_namespace(options: Options, namespace: str, where: str) -> list[str]:
    """The full names of its persistent topics, each partition by itself, in the broker's order.

    Raises: ConfigurationError: the URL or the authentication cannot be used for this; ExternalError: no broker answers.
    """
    url = options[SERVICE_URL]
    scheme, hosts = _addresses(url, where)
    failures = []
    for host, port in hosts:
        try:
            return _asked(options, scheme, (host, port), namespace, where)
        except (OSError, EOFError) as error:
            failures.append(f"{host}:{port}: {error or type(error).__name__}")
    raise ExternalError(
        f"{where}: the topics of the namespace {namespace!r} cannot be listed at {url}: {'; '.join(failures)}."
    )


def _addresses(url: str, where: str) -> tuple[str, list[tuple[str, int]]]:
    parts = urlsplit(url)
    reason = f"the scheme {parts.scheme!r} has no binary protocol"
    if parts.scheme in _PORTS:
        try:
            each = [urlsplit(f"//{one}") for one in parts.netloc.split(",")]
            default = _PORTS[parts.scheme]
            return parts.scheme, [
                (one.hostname or "localhost", one.port or default) for one in each
            ]
        except ValueError as error:  # the port is not a number
            reason = str(error)
    raise ConfigurationError(
        f"{where}: to list the topics of a namespace, the service URL must be pulsar://host:6650 "
        f"or pulsar+ssl://host:6651, got {url!r}: {reason}."
    )


def _asked(
    options: Options, scheme: str, address: tuple[str, int], namespace: str, where: str
) -> list[str]:
    timeout_s = operation_timeout_s(options)
    context = _tls(options) if scheme == "pulsar+ssl" else None
    method, proof = handshake(options, where, context)
    with contextlib.ExitStack() as stack:
        connection: Any = stack.enter_context(socket.create_connection(address, timeout_s))
        if context is not None:
            connection = stack.enter_context(
                context.wrap_socket(connection, server_hostname=address[0])
            )
        stream = stack.enter_context(connection.makefile("rwb"))
        hello: dict[int, int | str | bytes] = {1: "penstock", 3: proof, 4: _PROTOCOL_VERSION}
        _send(stream, _CONNECT, hello | {5: method})
        _answer(stream, _CONNECTED, where)
        _send(stream, _TOPICS, {1: 1, 2: namespace})
        names = _answer(stream, _TOPICS_ANSWER, where).get(2, [])
        return [name.decode() for name in names if isinstance(name, bytes)]


def _tls(options: Options) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("pulsar.client.tlsTrustCertsFilePath"))
    context.check_hostname = flag_of(
        options, "pulsar.client.tlsHostnameVerificationEnable", default=False
    )
    if flag_of(options, "pulsar.client.tlsAllowInsecureConnection", default=False):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _send(stream: Any, command: int, fields: dict[int, int | str | bytes]) -> None:
    data = encode({1: command, command: encode(fields)})
    stream.write((len(data) + 4).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data)
    stream.flush()


def _answer(stream: Any, command: int, where: str) -> dict[int, list[int | bytes]]:
    """The broker's answer.

    Raises: ExternalError: the broker refuses; EOFError, OSError: it is gone, or speaks another protocol.
    """
    while True:
        size = int.from_bytes(_read(stream, 4), "big")
        if not 4 <= size <= _MAX_FRAME_BYTES:
            raise OSError("it does not speak Pulsar's binary protocol")
        data = _read(stream, size)
        try:
            fields = decode(data[4 : 4 + int.from_bytes(data[:4], "big")])
            (number,) = fields[1]
            body = fields.get(int(number), [b""])[-1]
            found = decode(body if isinstance(body, bytes) else b"")
        except (ValueError, KeyError) as error:
            raise OSError(f"it does not speak Pulsar's binary protocol: {error}") from error
        if number == command:
            return found
        if number == _PING:
            _send(stream, _PONG, {})
        elif number == _ERROR:
            text = found.get(3, [b""])[-1]
            shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
            raise ExternalError(f"{where}: the broker refuses to list topics: {shown}.")


def _read(stream: Any, size: int) -> bytes:
    found: bytes = stream.read(size)
    if len(found) < size:
        raise EOFError("it closed the connection")
    return found
