"""Transactions that producers have left in a Kafka cluster: which there are, and how to end them. Needs confluent-kafka to end them.

Source: KIP-664 (ListTransactions, DescribeTransactions), kafka-transactions.sh; KIP-98 (a new producer of a transactional id
aborts what the former one has begun).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final, Self, TypeAlias, TypeVar

from penstock.connectors.api.messaging.properties import int_of
from penstock.connectors.kafka.client import (
    API_TIMEOUT_DEFAULT_MS,
    addresses,
    import_kafka,
    kafka_errors,
    make_client,
    refusal_by_handshake,
    tls_context,
)
from penstock.connectors.kafka.properties import (
    API_TIMEOUT_MS,
    BOOTSTRAP_SERVERS,
    MECHANISM,
    PROTOCOL,
    client_properties,
    shared_properties,
)
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood

# ---------------------------------------------------------------------- sasl
# A client's side of SASL PLAIN and SCRAM: what it says, from what it hears. Does no I/O.
#
# Source: RFC 4616, RFC 5802, RFC 7677.


Talk: TypeAlias = Generator[bytes, bytes, None]
"""Yields what to say, and is sent the answer."""

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def talk(mechanism: str, user: str, password: str) -> Talk:
    """Raises: ConfigurationError: another mechanism. RefusedForGood: the broker does not know the password itself."""
    if mechanism == "PLAIN":
        return _plain(user, password)
    if mechanism in _HASHES:
        return _scram(_HASHES[mechanism], user, password, secrets.token_urlsafe(24))
    raise ConfigurationError(
        f"sasl.mechanism {mechanism!r} is not known here; expected PLAIN, {' or '.join(_HASHES)}."
    )


def _plain(user: str, password: str) -> Talk:
    yield f"\0{user}\0{password}".encode()


def _scram(name_of_hash: str, user: str, password: str, nonce: str) -> Talk:
    shown = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={shown},r={nonce}"
    answer = (yield f"n,,{first}".encode()).decode()
    fields = dict(one.split("=", 1) for one in answer.split(","))
    if not fields.get("r", "").startswith(nonce):
        raise RefusedForGood("the broker answers with another nonce than it was given")
    salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
    salted = hashlib.pbkdf2_hmac(name_of_hash, password.encode(), salt, rounds)
    final = f"c=biws,r={fields['r']}"
    said = f"{first},{answer},{final}".encode()
    key = hmac.digest(salted, b"Client Key", name_of_hash)
    signature = hmac.digest(hashlib.new(name_of_hash, key).digest(), said, name_of_hash)
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    verified = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    server_key = hmac.digest(salted, b"Server Key", name_of_hash)
    expected = b"v=" + base64.b64encode(hmac.digest(server_key, said, name_of_hash))
    if not hmac.compare_digest(verified, expected):
        raise RefusedForGood("the broker does not know the password that it asks for")


# ---------------------------------------------------------------------- wire


TIMEOUT_S: Final = 10.0
_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_CLIENT: Final = "penstock"
_MOST_BYTES: Final = 100 << 20
_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36
T = TypeVar("T")


class Reader:
    """Primitive types, big-endian. Names with `short` are those of the versions before flexible ones."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def number(self, form: str) -> int:
        """`form`: b, h, i or q: 1, 2, 4 or 8 bytes."""
        (found,) = struct.unpack_from(f">{form}", self._data, self._place)
        self._place += struct.calcsize(form)
        return int(found)

    def varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text(self) -> str:
        return self._bytes(max(0, self.varint() - 1)).decode()

    def short_text(self) -> str | None:
        size = self.number("h")
        return None if size < 0 else self._bytes(size).decode()

    def short_bytes(self) -> bytes:
        return self._bytes(max(0, self.number("i")))

    def array(self, item: Callable[[], T]) -> list[T]:
        return [item() for _ in range(self.varint() - 1)]

    def short_array(self, item: Callable[[], T]) -> list[T]:
        return [item() for _ in range(self.number("i"))]

    def tags(self) -> None:
        """Skips tagged fields."""
        for _ in range(self.varint()):
            self.varint()
            self._bytes(self.varint())

    def _bytes(self, size: int) -> bytes:
        found = self._data[self._place : self._place + size]
        self._place += size
        return found


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def texts(values: list[str]) -> bytes:
    """A compact array of compact texts."""
    encoded = [value.encode() for value in values]
    return varint(len(values) + 1) + b"".join(varint(len(one) + 1) + one for one in encoded)


def short_text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


class BrokerConnection:
    """One connection. `settings`: librdkafka's, of which those of security are read. A context manager."""

    def __init__(
        self,
        host: str,
        port: int,
        settings: Mapping[str, str],
        where: str,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`timeout_s`: of each step.

        Raises: ExternalError: the broker is not reached. RefusedForGood: user or certificate is refused.
        ConfigurationError: there is no such protocol.
        """
        self._at = f"{where}: the broker {host}:{port}"
        self._count = 0
        self._stack = contextlib.ExitStack()
        protocol = settings.get(PROTOCOL, "plaintext").lower()
        if protocol not in _PROTOCOLS:
            raise ConfigurationError(
                f"{where}: expected one of {', '.join(_PROTOCOLS)} as {PROTOCOL}, got {protocol!r}."
            )
        has_tls = protocol in {"ssl", "sasl_ssl"}
        with self._stack:
            with self._errors():
                sock = self._stack.enter_context(socket.create_connection((host, port), timeout_s))
            with self._errors(shakes_hands=has_tls):
                if has_tls:
                    context = tls_context(settings)
                    sock = self._stack.enter_context(
                        context.wrap_socket(sock, server_hostname=host)
                    )
                self._sock = sock
                if protocol.startswith("sasl_"):
                    self._log_in(settings)
            self._stack = self._stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()

    def ask(self, api: int, version: int, body: bytes, *, is_flexible: bool = False) -> Reader:
        """Return the answer, without its header. Raises: ExternalError."""
        with self._errors():
            self._count += 1
            head = struct.pack(">hhi", api, version, self._count) + short_text(_CLIENT)
            frame = head + (b"\0" if is_flexible else b"") + body
            self._sock.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", self._exactly(4))
            if not 4 <= size <= _MOST_BYTES:
                raise ExternalError(f"{self._at} gives an answer of {size} bytes.")
            reader = Reader(self._exactly(size))
            reader.number("i")
            if is_flexible:
                reader.tags()
            return reader

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._sock.recv(size - len(found))
            if not more:
                raise ConnectionResetError("it has closed the connection")
            found += more
        return found

    def _log_in(self, settings: Mapping[str, str]) -> None:
        mechanism = settings.get(MECHANISM, settings.get("sasl.mechanisms", "GSSAPI"))
        user, password = settings.get("sasl.username", ""), settings.get("sasl.password", "")
        says = talk(mechanism, user, password)
        said = next(says)
        answer = self.ask(_HANDSHAKE, 1, short_text(mechanism))
        if code := answer.number("h"):
            known = answer.short_array(answer.short_text)
            raise RefusedForGood(
                f"{self._at} refuses the login with error {code}; its mechanisms are "
                f"{', '.join(filter(None, known))}, got {mechanism}. Set {MECHANISM}."
            )
        with contextlib.suppress(StopIteration):
            while True:
                body = struct.pack(">i", len(said)) + said
                answer = self.ask(_AUTHENTICATE, 0, body)
                code, text = answer.number("h"), answer.short_text()
                if code:
                    raise RefusedForGood(
                        f"{self._at} refuses the login: {text or code}. Correct user and password."
                    )
                said = says.send(answer.short_bytes())

    @contextlib.contextmanager
    def _errors(self, *, shakes_hands: bool = False) -> Any:
        try:
            yield
        except (OSError, ValueError, struct.error) as error:  # an SSLError is an OSError
            if shakes_hands and (known := refusal_by_handshake(error)):
                raise RefusedForGood(f"{self._at}: {known}.") from error
            raise ExternalError(f"{self._at} does not answer: {error!r}.") from error


# ---------------------------------------------------------------------- transactions


METADATA: Final = 3
VERSIONS: Final = 18
DESCRIBE: Final = 65
LIST: Final = 66
ONGOING: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
_WHERE: Final = "transactions of Kafka"


@dataclass(frozen=True, slots=True)
class KafkaTransaction:
    """What the coordinator knows of a transactional id. `began_ms`: epoch ms; below 0: there is none.

    `topics`: the partitions that the open transaction has written to, as texts.
    """

    transactional_id: str
    producer_id: int
    state: str
    began_ms: int = -1
    timeout_ms: int = -1
    topics: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.state in ONGOING


def list_transactions(properties: Mapping[str, str], prefix: str) -> list[KafkaTransaction]:
    """All transactional ids that begin with the prefix, in order.

    Raises: ConfigurationError: the brokers are too old. ExternalError: one does not answer. RefusedForGood.
    """
    settings = client_properties(shared_properties(properties), _WHERE)
    timeout_s = int_of(properties, API_TIMEOUT_MS, round(TIMEOUT_S * 1000)) / 1000
    found: dict[str, KafkaTransaction] = {}
    for host, port in _brokers(settings, timeout_s):
        with BrokerConnection(host, port, settings, _WHERE, timeout_s) as broker:
            _check_versions(broker, f"{host}:{port}")
            own = [one for one in _listed(broker) if one.transactional_id.startswith(prefix)]
            found |= {one.transactional_id: one for one in _described(broker, own)}
    return [found[name] for name in sorted(found)]


def abort_transaction(properties: Mapping[str, str], transactional_id: str) -> None:
    """Becomes the producer of this id: what the former one has begun is aborted, and it can write no more.

    Raises: ExternalError. RefusedForGood: user, certificate or rights are refused.
    """
    kafka = import_kafka(_WHERE)
    shared = shared_properties(properties)
    client, last = make_client("Producer", shared, _WHERE, transactional__id=transactional_id)
    timeout_s = int_of(properties, API_TIMEOUT_MS, API_TIMEOUT_DEFAULT_MS) / 1000
    with kafka_errors(kafka, f"{_WHERE}: cannot abort {transactional_id!r}", last, client):
        client.init_transactions(timeout_s)


def _brokers(settings: Mapping[str, str], timeout_s: float) -> Sequence[tuple[str, int]]:
    """All brokers, as the first one that answers names them."""
    failure: ExternalError | None = None
    for host, port in addresses(settings.get(BOOTSTRAP_SERVERS, "")):
        try:
            with BrokerConnection(host, port, settings, _WHERE, timeout_s) as broker:
                answer = broker.ask(METADATA, 1, b"\0\0\0\0")
        except ExternalError as error:
            failure = failure or error
            continue
        return answer.short_array(partial(_broker, answer))
    raise failure or ConfigurationError(
        f"{_WHERE}: expected host:port,... as {BOOTSTRAP_SERVERS}, got "
        f"{settings.get(BOOTSTRAP_SERVERS)!r}."
    )


def _broker(answer: Reader) -> tuple[str, int]:
    answer.number("i")
    host, port = answer.short_text(), answer.number("i")
    answer.short_text()
    return host or "", port


def _check_versions(broker: BrokerConnection, name: str) -> None:
    answer = broker.ask(VERSIONS, 0, b"")
    answer.number("h")
    known = answer.short_array(lambda: (answer.number("h"), answer.number("h"), answer.number("h")))
    if not {LIST, DESCRIBE} <= {api for api, *_ in known}:
        raise ConfigurationError(
            f"{_WHERE}: the broker {name} cannot list transactions. Kafka can since 3.0. Name the "
            "transactional ids with --id instead."
        )


def _listed(broker: BrokerConnection) -> Iterator[KafkaTransaction]:
    answer = broker.ask(LIST, 0, texts([]) + b"\1\0", is_flexible=True)
    answer.number("i")
    if code := answer.number("h"):
        raise ExternalError(f"{_WHERE}: the broker does not list them: error {code} of Kafka.")
    answer.array(answer.text)

    def one() -> KafkaTransaction:
        made = KafkaTransaction(answer.text(), answer.number("q"), answer.text())
        answer.tags()
        return made

    yield from answer.array(one)


def _described(
    broker: BrokerConnection, listed: Sequence[KafkaTransaction]
) -> Iterator[KafkaTransaction]:
    by_id = {one.transactional_id: one for one in listed}
    if not by_id:
        return
    answer = broker.ask(DESCRIBE, 0, texts(list(by_id)) + b"\0", is_flexible=True)
    answer.number("i")

    def partitions() -> list[str]:
        topic = answer.text()
        found = [f"{topic}[{number}]" for number in answer.array(lambda: answer.number("i"))]
        answer.tags()
        return found

    def one() -> KafkaTransaction:
        code, name, state = answer.number("h"), answer.text(), answer.text()
        timeout_ms, began_ms = answer.number("i"), answer.number("q")
        answer.number("q"), answer.number("h")
        topics = tuple(chain.from_iterable(answer.array(partitions)))
        answer.tags()
        if code:  # it is gone since it was listed
            return by_id[name]
        return replace(
            by_id[name], state=state, began_ms=began_ms, timeout_ms=timeout_ms, topics=topics
        )

    yield from answer.array(one)
