"""Transactions that producers have left in a Kafka cluster: which there are, and how to end them. Needs confluent-kafka to end them.

Source: KIP-664 (ListTransactions, DescribeTransactions), kafka-transactions.sh; KIP-98 (a new producer of a transactional id
aborts what the former one has begun).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

from penstock.connectors.api.messaging.properties import int_of
from penstock.connectors.kafka.client import (
    API_TIMEOUT_DEFAULT_MS,
    import_kafka,
    kafka_errors,
    make_client,
)
from penstock.connectors.kafka.login import addresses
from penstock.connectors.kafka.properties import (
    API_TIMEOUT_MS,
    BOOTSTRAP_SERVERS,
    client_properties,
    shared_properties,
)
from penstock.connectors.kafka.wire import TIMEOUT_S, BrokerConnection, Reader, texts
from penstock.engine.model.errors import ConfigurationError, ExternalError

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
