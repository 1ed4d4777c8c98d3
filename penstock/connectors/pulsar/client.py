"""The client library pulsar-client (C++): makes clients from options, and looks up topics and places in them.

Optional: `pip install 'penstock[pulsar]'` on the driver and on every executor. Does not know sources or sinks.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.common.extras import extra
from penstock.connectors.api.messaging.properties import flag_of, int_of
from penstock.connectors.api.messaging.source import UnknownTopic
from penstock.connectors.pulsar.cursors import (
    Place,
    PulsarSplit,
    Start,
    StartKind,
    Stop,
    StopKind,
    TopicPartition,
    decode,
    encode,
)
from penstock.connectors.pulsar.options import (
    CLIENT,
    CONSUMER,
    CONSUMER_NAME,
    PROPERTIES,
    RECEIVER_QUEUE,
    RECEIVER_QUEUE_DEFAULT,
    RESET_SUBSCRIPTION,
    SERVICE_URL,
    SUBSCRIPTION,
    Options,
    arguments_of,
    authentication_of,
    handshake,
    operation_timeout_s,
    properties_of,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError

# ---------------------------------------------------------------------- namespace
# Lists the topics of a namespace, with a command of Pulsar's binary protocol that the Python
# client does not offer.
#
# Source: PulsarApi.proto (CommandConnect, CommandGetTopicsOfNamespace), Flink's
# TopicPatternSubscriber.


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


# ---------------------------------------------------------------------- client


MAX_BATCH_BYTES: Final = 1 << 20
WAIT_MS: Final = 1
"""How long a consumer waits to fill a batch. It is short, because a subtask's consumers wait one after the other."""

RETRY_S: Final = 0.01


class ConsumerIsBusy(ExternalError):
    """Another consumer has the subscription: of another job, or one that is about to close."""


def import_pulsar(where: str) -> Any:
    """The client's module. Raises: ConfigurationError naming what to install where."""
    return extra("pulsar", "pulsar", where)


def make_client(options: Options, where: str) -> Any:
    """Makes a client, which connects later.

    Raises: ConfigurationError: the client library is missing, or refuses an option.
    """
    pulsar = import_pulsar(where)
    try:
        return pulsar.Client(
            options[SERVICE_URL],
            authentication=authentication_of(options, pulsar, where),
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
            **arguments_of(options, CLIENT),
        )
    except (pulsar.PulsarException, ValueError, RuntimeError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(
            f"{where}: the client refuses the service URL {options[SERVICE_URL]!r} or its options: "
            f"{error}. Expected a URL such as pulsar://host:6650, or pulsar+ssl://host:6651 with "
            "TLS."
        ) from error


@contextmanager
def pulsar_errors(pulsar: Any, what: str) -> Generator[None]:
    """Turns the client's error into an ExternalError, with the client's error as the cause."""
    try:
        yield
    except pulsar.TopicNotFound as error:
        raise UnknownTopic(
            f"{what}: there is no such topic. Check its name and this client's permission to see "
            "it, and create it before the job starts."
        ) from error
    except pulsar.ConsumerBusy as error:
        raise ConsumerIsBusy(
            f"{what}: the subscription is exclusive and has a consumer already. Check whether "
            "another job uses its name."
        ) from error
    except pulsar.Timeout as error:
        raise ExternalError(
            f"{what}: no answer in time. Check that a broker is there, and that it accepts this "
            "client's authentication."
        ) from error
    except pulsar.PulsarException as error:
        raise ExternalError(f"{what}: {text_of(error)}.") from error


def close_client(client: Any, pulsar: Any) -> None:
    """Closes a client with its consumers and producers. Requests under way are given up, and errors are ignored.

    It does not call the client's `shutdown`. That call waits ten seconds for threads that it keeps out of Python
    meanwhile.
    """
    with suppress(pulsar.PulsarException):
        client.close()


def text_of(error: object) -> str:
    return str(error).removeprefix("Pulsar error: ")


def open_consumer(
    client: Any, partition: TopicPartition, options: Options, where: str, *, at_end: bool = False
) -> Any:
    """Opens a consumer of the job's subscription. A missing one is made at the first message, or after the last one.

    Raises: UnknownTopic; ConsumerIsBusy; ExternalError.
    """
    pulsar = import_pulsar(where)
    position = pulsar.InitialPosition
    queue = int_of(options, RECEIVER_QUEUE, RECEIVER_QUEUE_DEFAULT)
    policy = pulsar.ConsumerBatchReceivePolicy(max(1, queue // 2), MAX_BATCH_BYTES, WAIT_MS)
    with pulsar_errors(pulsar, f"{where}: cannot subscribe to {partition}"):
        return client.subscribe(
            str(partition),
            options[SUBSCRIPTION],
            consumer_type=pulsar.ConsumerType.Exclusive,
            consumer_name=options.get(CONSUMER_NAME),
            initial_position=position.Latest if at_end else position.Earliest,
            start_message_id_inclusive=True,
            batch_receive_policy=policy,
            properties=properties_of(options, PROPERTIES[1]) or None,
            **arguments_of(options, CONSUMER),
        )


def place_of(message_id: Any) -> Place:
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


class PulsarCluster:
    """Looks up topics, partitions and places of a cluster, for the driver, on one thread.

    A request waits at most `pulsar.client.operationTimeoutMs` (30 s).
    """

    def __init__(self, options: Options, where: str) -> None:
        self._options = options
        self._where = where
        self._pulsar = import_pulsar(where)
        self._client = make_client(options, where)

    def topics(self, namespace: str) -> list[str]:
        """The full names of the topics that this client may see. Partitions of a topic count as one topic."""
        names = topics_of_namespace(self._options, namespace, self._where)
        return sorted({TopicPartition.of(name).topic for name in names})

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic. Raises: UnknownTopic; ExternalError."""
        what = f"{self._where}: cannot look up the topic {topic!r} at {self._options[SERVICE_URL]}"
        with pulsar_errors(self._pulsar, what):
            return sorted(map(TopicPartition.of, self._client.get_topic_partitions(topic)))

    def begin(self, partition: TopicPartition, start: Start, stop: Stop | None) -> PulsarSplit:
        """The split of a new partition. Makes the subscription too, so that no message is removed before it is read."""
        at_end = start.kind is StartKind.LATEST
        keeps_place = stop is None and (at_end or start.kind is StartKind.EARLIEST)
        consumer = self._consumer(partition, at_end=at_end)
        if keeps_place and not flag_of(self._options, RESET_SUBSCRIPTION, default=False):
            consumer.close()
            return PulsarSplit(partition, Start(StartKind.SUBSCRIPTION))
        what = f"{self._where}: cannot look up where to start and stop reading {partition}"
        with pulsar_errors(self._pulsar, what):
            try:
                return self._split(consumer, partition, start, stop)
            finally:
                consumer.close()

    def close(self) -> None:
        close_client(self._client, self._pulsar)

    def _consumer(self, partition: TopicPartition, *, at_end: bool) -> Any:
        """Opens a consumer. A reader of an earlier attempt may still hold the subscription for a moment."""
        deadline = monotonic() + operation_timeout_s(self._options)
        while True:
            try:
                return open_consumer(
                    self._client, partition, self._options, self._where, at_end=at_end
                )
            except ConsumerIsBusy:
                if monotonic() > deadline:
                    raise
                sleep(RETRY_S)

    def _split(
        self, consumer: Any, partition: TopicPartition, start: Start, stop: Stop | None
    ) -> PulsarSplit:
        needs_last = start.kind is StartKind.LATEST or (stop and stop.kind is StopKind.LATEST)
        last = place_of(consumer.get_last_message_id()) if needs_last else None
        is_empty = last is not None and last[1] < 0
        if start.kind is StartKind.LATEST:
            start = Start(StartKind.EARLIEST) if is_empty else Start(StartKind.AFTER, last)
        if stop is None or stop.kind is not StopKind.LATEST:
            return PulsarSplit(partition, start, stop, is_over=_ends_at_once(start, stop))
        stop = Stop(StopKind.PLACE, last, stop.is_inclusive)
        is_over = is_empty or _ends_at_once(start, stop)
        if not is_over and start.kind is StartKind.PUBLISH_TIME:
            is_over = self._last_published(consumer, last) < start.timestamp_ms
        return PulsarSplit(partition, start, stop, is_over)

    def _last_published(self, consumer: Any, last: Place | None) -> int:
        """The publish time of the last message, in epoch ms."""
        assert last is not None, "the last message is known"
        consumer.seek(message_id(self._pulsar, last))
        while True:
            message = consumer.receive(int(operation_timeout_s(self._options) * 1000))
            if place_of(message.message_id()) >= last:
                return int(message.publish_timestamp())


def message_id(pulsar: Any, place: Place) -> Any:
    """The place as the client's message id."""
    ledger, entry, index = place
    return pulsar.MessageId(-1, ledger, entry, index)


def _ends_at_once(start: Start, stop: Stop | None) -> bool:
    """Whether nothing is to be read, as far as the places alone show."""
    if stop is None or stop.kind is not StopKind.PLACE or start.place is None:
        return False
    assert isinstance(stop.goal, tuple), "the goal is a place"
    if start.kind is StartKind.AFTER:
        return start.place >= stop.goal
    return start.place > stop.goal or (start.place == stop.goal and not stop.is_inclusive)
