"""The client library confluent-kafka (librdkafka): makes clients from properties, and looks up topics and offsets.

Optional: `pip install 'penstock[kafka]'` on the driver and on every executor. Does not know sources or sinks.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from penstock.common.extras import extra
from penstock.connectors.api.messaging.properties import int_of
from penstock.connectors.api.messaging.source import UnknownTopic
from penstock.connectors.clients.tls import tls_refusal
from penstock.connectors.kafka.offsets import KafkaTopicPartition
from penstock.connectors.kafka.properties import (
    API_TIMEOUT_MS,
    AUTO_OFFSET_RESET,
    BOOTSTRAP_SERVERS,
    CA_FILE,
    GROUP_ID,
    PROTOCOL,
    client_properties,
    shared_properties,
)
from penstock.engine.hosting.os.clock import within
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood

# ---------------------------------------------------------------------- refusals
# Which errors of Kafka's client come again with each try, and what helps. Does not know the client's module.
#
# Source: Errors.java (AuthenticationException, AuthorizationException are not retriable); librdkafka's texts of failed
# handshakes, as it has no codes for their causes.


_NOT_ALLOWED: Final = {
    "TOPIC_AUTHORIZATION_FAILED": "Allow READ of topics that a source reads, WRITE of those that a "
    "sink writes, and both of those that a sink writes exactly once",
    "GROUP_AUTHORIZATION_FAILED": "Allow READ of the source's group, or of the groups that begin "
    "with the transactional id prefix of a sink that writes exactly once",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "Allow WRITE of the transactional ids that begin "
    "with the sink's prefix",
    "CLUSTER_AUTHORIZATION_FAILED": "Allow IDEMPOTENT_WRITE of the cluster",
    "INVALID_TRANSACTION_TIMEOUT": "Set transaction.timeout.ms lower, or "
    "transaction.max.timeout.ms of the brokers higher",
}
_LOGIN: Final = frozenset({
    "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM",
})  # fmt: skip
_PASSING: Final = ("Local: ", "isconnected", "timed out")
"""A broker that ends in the middle of a login has refused nobody."""


def refusal_of(error: Any) -> str | None:
    """What is refused, and what to do, as a part of a sentence. None: the error may pass, or says nothing of refusals.

    `error`: a KafkaError, or anything else.
    """
    if not hasattr(error, "name"):
        return None
    name, text = error.name(), error.str()
    if name in _NOT_ALLOWED:
        return f"the brokers do not allow it: {_short(text)} ({name}). {_NOT_ALLOWED[name]}"
    if name in _LOGIN and not any(one in text for one in _PASSING):
        kind = "mechanism" if "supported mechanisms" in text else "password"
        return f"the broker refuses the login: {_short(text)}. {_HELP[kind]}"
    if "certificate verify failed" in text:
        return (
            f"the broker's certificate is not accepted: {_short(text)}. Name the authority that "
            "has signed it with ssl.ca.location, and the brokers as their certificates do"
        )
    if "SSL alert" in text or "sslv3 alert" in text or "tlsv1 alert" in text:
        return (
            f"the broker refuses the TLS handshake: {_short(text)}. If it asks for a certificate, "
            "set ssl.certificate.location and ssl.key.location, or ssl.keystore.location"
        )
    return None


_HELP: Final = {
    "mechanism": "Set sasl.mechanism to one that the broker has",
    "password": "Correct user and password (sasl.jaas.config, or sasl.username and sasl.password)",
}


def _short(text: str) -> str:
    """Without the time that it took, which differs from try to try."""
    return text.partition(" (after ")[0].removesuffix(".")


# ---------------------------------------------------------------------- client


API_TIMEOUT_DEFAULT_MS: Final = 30_000
NO_GROUP: Final = "penstock-no-group"
_KEPT_ERRORS: Final = 8
WAIT_S: Final = 0.1
_NO_LEADER: Final = frozenset({5, 6, 9, 74, 75})
"""Codes of Kafka's protocol: a partition has no leader, or another one than the client knows."""
EARLIEST: Final = -2
LATEST: Final = -1
GRACE_S: Final = 2.0
"""What a call may take above the time that the client was given, and seldom keeps: the client's own error says more."""
GROUP_SLICE_S: Final = 2.0
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""Of brokers before Kafka 2.8: all bits are 0."""
_NO_TOPIC: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID"})


def import_kafka(where: str) -> Any:
    """The client's module. Raises: ConfigurationError naming what to install where."""
    return extra("confluent_kafka", "kafka", where)


class LastError:
    """The client's latest connection errors, which explain why a request has timed out."""

    def __init__(self) -> None:
        self._errors: deque[Any] = deque(maxlen=_KEPT_ERRORS)
        self.note: Final = self._errors.append
        """The client's error callback: a C function, for the reason given at `producing.RecordProducer`."""

    def reason(self) -> str:
        known = [one for one in self._errors if one.name() != "_ALL_BROKERS_DOWN"]
        return f" The client's last error: {known[-1].str()} ({known[-1].name()})." if known else ""

    def refusal(self) -> str | None:
        """What a broker has refused for good, and what helps; None: nothing."""
        return next(filter(None, map(refusal_of, reversed(self._errors))), None)

    def forget(self) -> None:
        """Drops the errors: a request has succeeded since."""
        self._errors.clear()

    def has(self, name: str) -> bool:
        return any(one.name() == name for one in self._errors)


def make_client(
    kind: str, properties: Mapping[str, str], where: str, **more: Any
) -> tuple[Any, LastError]:
    """Makes a Consumer, Producer or AdminClient (`kind`), which connects later. `more`: librdkafka properties, with __ for each dot.

    Raises: ConfigurationError: librdkafka is missing, or refuses a property.
    """
    kafka = import_kafka(where)
    last = LastError()
    settings: dict[str, Any] = {
        "error_cb": last.note,
        # It would write lines to stderr for each try to connect, a hundred in a second. What it
        # fails with is an error, or a warning of who waits for it.
        "log_level": "7" if "debug" in properties else "0",
        **client_properties(properties, where),
    }
    settings.update((key.replace("__", "."), value) for key, value in more.items())
    try:
        module = extra("confluent_kafka.admin", "kafka", where) if kind == "AdminClient" else kafka
        return getattr(module, kind)(settings), last
    except (kafka.KafkaException, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{where}: the client refuses these properties: {text_of(error)}. Properties have the "
            "names of librdkafka (CONFIGURATION.md of librdkafka); most names of the Java client "
            "are the same."
        ) from error


def make_consumer(properties: Mapping[str, str], where: str, **more: Any) -> tuple[Any, LastError]:
    """Makes a consumer that joins no group: its partitions are assigned. `more` sets what it does at a missing offset."""
    usual = {
        GROUP_ID: NO_GROUP,  # librdkafka requires a group id, even if nothing is committed
        "enable.auto.commit": "false",
        AUTO_OFFSET_RESET: "error",
        # A reader that a full output holds back must not be taken for a dead group member.
        "max.poll.interval.ms": "86400000",
        "queued.max.messages.kbytes": "16384",
    }
    given = {key: value for key, value in properties.items() if key != AUTO_OFFSET_RESET}
    return make_client("Consumer", {**usual, **given}, where, **more)


@contextmanager
def kafka_errors(kafka: Any, what: str, last: LastError, *clients: Any) -> Generator[None]:
    """Turns the client's error into an ExternalError, with the client's error as the cause.

    `clients`: are asked what they know of connections. Raises: RefusedForGood: user, certificate or rights are refused.
    """
    try:
        yield
    except kafka.KafkaException as error:
        for client in clients:
            # Only this calls back with errors of connections. A client that has ended raises why.
            with suppress(kafka.KafkaException):
                client.poll(0)
        # The error has this frame, and since Python 3.13 lives until the next collection of garbage.
        # A client that nobody refers to ends at once.
        clients, client = (), None
        refusal = refusal_of(error.args[0]) or last.refusal()
        if refusal is not None:
            raise RefusedForGood(f"{what}: {refusal}.") from error
        raise ExternalError(f"{what}: {text_of(error)}.{last.reason()}") from error


def committed(
    kafka: Any, consumer: Any, places: Sequence[Any], timeout_s: float, last: LastError
) -> list[Any]:
    """What the consumer's group has committed. Raises: KafkaException.

    Where brokers refuse the group, the client waits on, and reports that only when it is polled.
    """
    end = time.monotonic() + timeout_s
    while True:
        left_s = max(0.0, end - time.monotonic())
        try:
            return list(consumer.committed(list(places), timeout=min(left_s, GROUP_SLICE_S)))
        except kafka.KafkaException:
            said = consumer.poll(0)
            if said is not None and said.error() is not None:
                last.note(said.error())
            if last.refusal() or time.monotonic() >= end:
                raise


def text_of(error: BaseException) -> str:
    """The text of the KafkaError in a KafkaException."""
    inner: Any = error.args[0] if error.args else None
    if not hasattr(inner, "name"):
        return str(error)
    found = f"{inner.str()} ({inner.name()})"
    if inner.name() in {"_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}:
        found += ": another process writes with this id. Give each sink a prefix of its own"
    return found


class TopicIds:
    """Asks a cluster for topics' ids, as `kafka-topics.sh --describe` shows them. One thread uses it."""

    def __init__(self, properties: Mapping[str, str], where: str) -> None:
        self._where = where
        self._kafka = import_kafka(where)
        self._timeout_s = int_of(properties, API_TIMEOUT_MS, API_TIMEOUT_DEFAULT_MS) / 1000
        self._client, self._last = make_client("AdminClient", shared_properties(properties), where)

    def ask(self, topics: Collection[str]) -> dict[str, Future[Any]]:
        """Asks without waiting; the answers are for `id_in`."""
        names = self._kafka.TopicCollection(sorted(topics))
        asked: dict[str, Future[Any]] = self._client.describe_topics(
            names, request_timeout=self._timeout_s
        )
        return asked

    def id_in(self, topic: str, answer: Future[Any]) -> str | None:
        """The id; "": the brokers know none. None: there is no such topic. Raises: ExternalError: no answer."""
        what = f"{self._where}: cannot look up the id of the topic {topic!r}"
        with kafka_errors(self._kafka, what, self._last, self._client):
            try:
                found = within(self._timeout_s + GRACE_S, answer.result, what)
            except self._kafka.KafkaException as error:
                if error.args[0].name() in _NO_TOPIC:
                    return None
                raise
        return str(found.topic_id).replace(_NO_ID, "")

    def _has_controller(self) -> bool:
        """Whether a broker answers for the cluster. That of librdkafka for tests has none, and would be waited for."""
        what = f"{self._where}: cannot look up the cluster"
        with kafka_errors(self._kafka, what, self._last, self._client):
            found = self._client.list_topics(timeout=self._timeout_s)
        return found.controller_id in found.brokers

    def of(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of topics; "": the cluster knows none. Raises: UnknownTopic; ExternalError: the cluster does not answer."""
        if not topics or not self._has_controller():
            return dict.fromkeys(topics, "")
        found = {}
        for topic, answer in self.ask(topics).items():
            one = self.id_in(topic, answer)
            if one is None:
                raise UnknownTopic(
                    f"{self._where}: the topic {topic!r} was deleted while it was looked up."
                )
            found[topic] = one
        return found


class KafkaCluster:
    """Looks up topics, partitions and offsets of a cluster, on one thread.

    A request waits at most `default.api.timeout.ms` (30 s).
    """

    def __init__(self, properties: Mapping[str, str], where: str) -> None:
        self._kafka = import_kafka(where)
        self._where = where
        self._properties = properties
        self._servers = properties.get(BOOTSTRAP_SERVERS, "")
        self.group_id = properties.get(GROUP_ID)
        self._timeout_s = int_of(properties, API_TIMEOUT_MS, API_TIMEOUT_DEFAULT_MS) / 1000
        self._consumer, self._last = make_consumer(properties, where, enable__auto__commit="false")

    def topics(self) -> list[str]:
        """All topics that this client may see, without Kafka's internal ones."""
        found = self._asked(
            "cannot list topics", lambda: self._consumer.list_topics(timeout=self._timeout_s)
        )
        own = {"__consumer_offsets", "__transaction_state", "__share_group_state"}
        return sorted(name for name in found.topics if name not in own)

    def partitions(self, topic: str) -> list[KafkaTopicPartition]:
        """The partitions of a topic. Raises: UnknownTopic; ExternalError."""
        found = self._asked(
            f"cannot look up the topic {topic!r}",
            lambda: self._consumer.list_topics(topic, timeout=self._timeout_s),
        ).topics[topic]
        if found.error is not None:
            name = found.error.name()
            if refusal := refusal_of(found.error):
                raise RefusedForGood(
                    f"{self._where}: cannot look up the topic {topic!r} of {self._servers}: "
                    f"{refusal}."
                )
            kind = (
                UnknownTopic
                if name in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"}
                else ExternalError
            )
            raise kind(
                f"{self._where}: cannot read the topic {topic!r} of {self._servers}: "
                f"{found.error.str()} ({name}). Check its name and this client's permission to "
                "read it, and create it before the job starts."
            )
        return [KafkaTopicPartition(topic, number) for number in sorted(found.partitions)]

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """See `TopicIds.of`."""
        return TopicIds(self._properties, self._where).of(topics) if topics else {}

    def earliest(self, partitions: Sequence[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        return self._bounds(partitions, 0)

    def latest(self, partitions: Sequence[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """The offset after the last record that a reader of this isolation level can see."""
        return self._bounds(partitions, 1)

    def at_time(
        self, partitions: Sequence[KafkaTopicPartition], timestamp_ms: int
    ) -> dict[KafkaTopicPartition, int]:
        """The first record whose timestamp is at or after this one, or the end if there is no such record."""
        wanted = [self._place(one, timestamp_ms) for one in partitions]
        found = self._listed(
            f"cannot find the offsets for the time {timestamp_ms}",
            lambda: (
                self._consumer.offsets_for_times(wanted, timeout=self._timeout_s) if wanted else []
            ),
        )
        missing = [one for one in partitions if found.get(one, -1) < 0]
        return {**found, **self.latest(missing)}

    def committed(
        self, partitions: Sequence[KafkaTopicPartition]
    ) -> dict[KafkaTopicPartition, int]:
        """The offsets that the group has committed; partitions without one are missing. Without a group there are none."""
        if self.group_id is None or not partitions:
            return {}
        wanted = [self._place(one) for one in partitions]
        found = self._listed(
            f"cannot read what the group {self.group_id!r} has committed",
            lambda: committed(self._kafka, self._consumer, wanted, self._timeout_s, self._last),
        )
        return {one: offset for one, offset in found.items() if offset >= 0}

    def close(self) -> None:
        self._consumer.close()

    def _answer(self, ask: Callable[[], Any]) -> Any:
        """Asks again while a partition gets a leader, which the client leaves to its user."""
        end = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except self._kafka.KafkaException as error:
                if error.args[0].code() not in _NO_LEADER or time.monotonic() >= end:
                    raise
            time.sleep(WAIT_S)

    def _bounds(
        self, partitions: Sequence[KafkaTopicPartition], side: int
    ) -> dict[KafkaTopicPartition, int]:
        return {
            one: self._asked(
                f"cannot find the first and last offset of {one}",
                partial(
                    self._consumer.get_watermark_offsets, self._place(one), timeout=self._timeout_s
                ),
            )[side]
            for one in partitions
        }

    def _place(self, partition: KafkaTopicPartition, offset: int = -1001) -> Any:
        """A place in a partition. -1001 is librdkafka's value for no offset."""
        return self._kafka.TopicPartition(partition.topic, partition.partition, offset)

    def _listed(self, what: str, ask: Callable[[], Any]) -> dict[KafkaTopicPartition, int]:
        found = self._asked(what, ask)
        for one in found:
            if one.error is not None:
                if refusal := refusal_of(one.error):
                    raise RefusedForGood(f"{self._where}: {what}: {refusal}.")
                raise ExternalError(
                    f"{self._where}: {what}, {one.topic}[{one.partition}]: {one.error.str()}."
                )
        return {KafkaTopicPartition(one.topic, one.partition): one.offset for one in found}

    def _asked(self, what: str, ask: Callable[[], Any]) -> Any:
        at = f"{self._where}: {what} at {self._servers} (waited up to {self._timeout_s:g} s)"
        with kafka_errors(self._kafka, at, self._last, self._consumer):
            found = self._answer(ask)
            if found is None:
                raise ExternalError(f"{at}: no answer.{self._last.reason()}")
            self._last.forget()
            return found


# ---------------------------------------------------------------------- login Logs in to a Kafka
# cluster before a job starts, so that a wrong password or certificate is reported at once. Needs
# confluent-kafka.
#
# The client says that a handshake failed, but seldom why. So Python's ssl makes another one, whose
# error has the reason.


LOGIN_TIMEOUT_S: Final = 3.0
SLICE_S: Final = 0.25
KAFKA_PORT: Final = 9092


def check_login(properties: Mapping[str, str], where: str) -> bool:
    """Log in to the first broker that answers, and out again. Returns False: none is reached.

    Raises: ConfigurationError: the broker refuses the user, or one of the two refuses the other's
    certificate; or one speaks TLS and the other does not. Brokers that are not reached are not
    reported.
    """
    found = shared_properties(properties)
    client, last = make_client("Producer", found, where)
    if _answers(client, last, properties):
        return True
    servers = properties.get(BOOTSTRAP_SERVERS, "")
    known = _refusal_by_tls(client_properties(found, where)) or last.refusal()
    if known is not None:
        raise ConfigurationError(f"{where}: cannot use the brokers at {servers}: {known}.")
    return False


def _answers(client: Any, last: LastError, properties: Mapping[str, str]) -> bool:
    """Whether a broker has let the client in. Waits no longer once it is clear that none does."""
    limit_s = min(
        LOGIN_TIMEOUT_S, int_of(properties, API_TIMEOUT_MS, API_TIMEOUT_DEFAULT_MS) / 1000
    )
    end = time.monotonic() + limit_s
    kafka = import_kafka("KafkaSource")
    while time.monotonic() < end:
        try:
            client.list_topics(timeout=min(SLICE_S, limit_s))
        except kafka.KafkaException:
            client.poll(0)
        else:
            return True
        if last.has("_ALL_BROKERS_DOWN") or last.refusal():
            return False
    return False


def _refusal_by_tls(settings: Mapping[str, str]) -> str | None:
    """Return the error of a handshake of Python's; None: there is nothing wrong with TLS, or no
    broker is reached.
    """
    has_tls = settings.get(PROTOCOL, "plaintext").lower() in {"ssl", "sasl_ssl"}
    for host, port in addresses(settings.get(BOOTSTRAP_SERVERS, "")):
        try:
            with socket.create_connection((host, port), LOGIN_TIMEOUT_S) as sock:
                if not has_tls:
                    return _refusal_without_tls(sock)
                with tls_context(settings).wrap_socket(sock, server_hostname=host):
                    continue
        except (OSError, ValueError) as error:
            if has_tls and (known := refusal_by_handshake(error)):
                return f"{host}:{port}: {known}"
    return None


def refusal_by_handshake(error: BaseException) -> str | None:
    """What is wrong with TLS if this ended a handshake, and what helps; None: nothing is."""
    if isinstance(error, TimeoutError | ConnectionResetError | ssl.SSLEOFError):
        return (
            f"it does not answer as a broker with TLS ({error}). Correct the port, or set "
            f"{PROTOCOL} to PLAINTEXT or SASL_PLAINTEXT"
        )
    return tls_refusal(error, _REMEDIES)


_REMEDIES: Final = {
    "authority": f"Name the CA that has signed it with {CA_FILE}",
    "name": "Name the brokers, in bootstrap.servers and advertised.listeners, as their "
    "certificates do",
    "no tls": f"Correct the port, or set {PROTOCOL} to PLAINTEXT or SASL_PLAINTEXT",
    "own": "If it asks for a certificate, set ssl.certificate.location and ssl.key.location",
}


def _refusal_without_tls(sock: socket.socket) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is said there
    try:
        context.wrap_socket(sock).close()
    except (OSError, ValueError):
        return None
    return f"they speak TLS, and {PROTOCOL} is without. Set it to SSL, or to SASL_SSL with a user"


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """What verifies brokers, and shows the client's certificate. `settings`: librdkafka's. Raises: OSError: a file."""
    pem = settings.get("ssl.ca.pem")
    path = settings.get(CA_FILE)
    is_folder = path in {None, "probe"}
    context = ssl.create_default_context(cafile=None if is_folder else path, cadata=pem)
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if settings.get("enable.ssl.certificate.verification") == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if own := settings.get("ssl.certificate.location"):
        key, password = settings.get("ssl.key.location"), settings.get("ssl.key.password")
        context.load_cert_chain(own, key, password)
    return context


def addresses(servers: str) -> Iterator[tuple[str, int]]:
    """Hosts and ports of bootstrap.servers; what is none is left out."""
    for one in servers.split(","):
        host, _, port = one.strip().rpartition("://")[2].rpartition(":")
        if host and port.isdecimal():
            yield host.strip("[]"), int(port)
        elif port and not host:
            yield port, KAFKA_PORT
