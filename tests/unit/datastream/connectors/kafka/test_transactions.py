"""Requests about transactions, byte by byte: the bytes are those that an independent codec of Kafka's schemas (kio) gives."""

from penstock.datastream.connectors.kafka.transactions import KafkaTransaction, _described, _listed
from penstock.datastream.connectors.kafka.wire import Reader

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
