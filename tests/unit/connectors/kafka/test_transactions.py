"""Requests about transactions, byte by byte: the bytes are those that an independent codec of Kafka's schemas (kio) gives."""

import socket

import pytest

from penstock.connectors.kafka.transactions import (
    KafkaTransaction,
    Reader,
    _described,
    _listed,
    list_transactions,
)
from penstock.engine.model.errors import ExternalError

LISTED = (
    "0000000000000103076f7572732d31000000000000004d084f6e676f696e67"
    "0008616e6f74686572000000000000004e06456d7074790000"
)
ASKED = "02076f7572732d3100"
DESCRIBED = (
    "00000000020000076f7572732d31084f6e676f696e670000ea600000018bcfe56800000000000000004d0003"
    "0206776f726473030000000000000004000000"
)


class Recorded:
    """A connection with one answer."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    def ask(self, *request, **_):
        self.asked.append((*request[:2], request[2].hex()))
        return Reader(bytes.fromhex(self.answer))


def test_transactions_are_listed():
    broker = Recorded(LISTED)
    assert list(_listed(broker)) == [
        KafkaTransaction("ours-1", 77, "Ongoing"),
        KafkaTransaction("another", 78, "Empty"),
    ]
    assert broker.asked == [(66, 0, "010100")]


def test_transactions_are_described():
    broker = Recorded(DESCRIBED)
    assert list(_described(broker, [KafkaTransaction("ours-1", 77, "Empty")])) == [
        KafkaTransaction(
            "ours-1", 77, "Ongoing", 1_700_000_000_000, 60_000, ("words[0]", "words[4]")
        )
    ]
    assert broker.asked == [(65, 0, ASKED)]


def test_without_any_nothing_is_asked():
    broker = Recorded("")
    assert list(_described(broker, [])) == []
    assert broker.asked == []


@pytest.mark.parametrize(
    ("property_ms", "limit_s"), [({}, 10), ({"default.api.timeout.ms": "50"}, 0.05)]
)
def test_a_broker_is_waited_for_as_long_as_the_property_says(monkeypatch, property_ms, limit_s):
    limits = []

    def refuse(address, limit):
        limits.append(limit)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(ExternalError, match="broker-1:9092 does not answer: TimeoutError"):
        list_transactions({"bootstrap.servers": "broker-1:9092", **property_ms}, "")
    assert limits == [limit_s]
