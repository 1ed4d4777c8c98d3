"""Pulsar's commands, with the fields that matter here: numbers as in PulsarApi.proto."""

from tests.tools.brokers.pulsar.codec import Field, decode, encode

MESSAGE_ID = {
    "ledgerId": Field(1, int),
    "entryId": Field(2, int),
    "partition": Field(3, int),
    "batch_index": Field(4, int),
    "batch_size": Field(6, int),
}
METADATA = {
    "producer_name": Field(1, str),
    "sequence_id": Field(2, int),
    "publish_time": Field(3, int),
    "num_messages_in_batch": Field(11, int),
    "deliver_at_time": Field(19, int),
    "highest_sequence_id": Field(24, int),
}


def _ints(**numbers):
    return {name: Field(number, int) for name, number in numbers.items()}


def _texts(**numbers):
    return {name: Field(number, str) for name, number in numbers.items()}


# By the number of the command, which is its field in BaseCommand too.
COMMANDS = {
    2: ("CONNECT", _texts(client_version=1, auth_method_name=5) | {"auth_data": Field(3, bytes)}),
    3: ("CONNECTED", _texts(server_version=1) | _ints(protocol_version=2, max_message_size=3)),
    4: (
        "SUBSCRIBE",
        _texts(topic=1, subscription=2, consumer_name=6)
        | _ints(subType=3, consumer_id=4, request_id=5, durable=8, initialPosition=13)
        | {"start_message_id": Field(9, MESSAGE_ID)},
    ),
    5: ("PRODUCER", _texts(topic=1, producer_name=4) | _ints(producer_id=2, request_id=3)),
    6: ("SEND", _ints(producer_id=1, sequence_id=2, num_messages=3, highest_sequence_id=6)),
    7: (
        "SEND_RECEIPT",
        _ints(producer_id=1, sequence_id=2, highest_sequence_id=4)
        | {"message_id": Field(3, MESSAGE_ID)},
    ),
    8: ("SEND_ERROR", _ints(producer_id=1, sequence_id=2, error=3) | _texts(message=4)),
    9: ("MESSAGE", _ints(consumer_id=1) | {"message_id": Field(2, MESSAGE_ID)}),
    10: (
        "ACK",
        _ints(consumer_id=1, ack_type=2, request_id=8)
        | {"message_id": Field(3, MESSAGE_ID, is_repeated=True)},
    ),
    11: ("FLOW", _ints(consumer_id=1, messagePermits=2)),
    12: ("UNSUBSCRIBE", _ints(consumer_id=1, request_id=2)),
    13: ("SUCCESS", _ints(request_id=1)),
    14: ("ERROR", _ints(request_id=1, error=2) | _texts(message=3)),
    15: ("CLOSE_PRODUCER", _ints(producer_id=1, request_id=2)),
    16: ("CLOSE_CONSUMER", _ints(consumer_id=1, request_id=2)),
    17: ("PRODUCER_SUCCESS", _ints(request_id=1, last_sequence_id=3) | _texts(producer_name=2)),
    18: ("PING", {}),
    19: ("PONG", {}),
    20: (
        "REDELIVER",
        _ints(consumer_id=1) | {"message_ids": Field(2, MESSAGE_ID, is_repeated=True)},
    ),
    21: ("PARTITIONED_METADATA", _texts(topic=1) | _ints(request_id=2)),
    22: (
        "PARTITIONED_METADATA_RESPONSE",
        _ints(partitions=1, request_id=2, response=3, error=4) | _texts(message=5),
    ),
    23: ("LOOKUP", _texts(topic=1) | _ints(request_id=2)),
    24: (
        "LOOKUP_RESPONSE",
        _texts(brokerServiceUrl=1, brokerServiceUrlTls=2, message=7)
        | _ints(response=3, request_id=4, authoritative=5, error=6),
    ),
    28: (
        "SEEK",
        _ints(consumer_id=1, request_id=2, message_publish_time=4)
        | {"message_id": Field(3, MESSAGE_ID)},
    ),
    29: ("GET_LAST_MESSAGE_ID", _ints(consumer_id=1, request_id=2)),
    30: (
        "GET_LAST_MESSAGE_ID_RESPONSE",
        _ints(request_id=2)
        | {"last_message_id": Field(1, MESSAGE_ID), "consumer_mark_delete": Field(3, MESSAGE_ID)},
    ),
    32: ("GET_TOPICS_OF_NAMESPACE", _ints(request_id=1, mode=3) | _texts(namespace=2)),
    33: (
        "GET_TOPICS_OF_NAMESPACE_RESPONSE",
        _ints(request_id=1) | {"topics": Field(2, str, is_repeated=True)},
    ),
    38: ("ACK_RESPONSE", _ints(consumer_id=1, request_id=6)),
}
NUMBERS = {name: number for number, (name, _) in COMMANDS.items()}
_BASE = {"type": Field(1, int)}


def frame(command, body, rest=b""):
    """A command with its fields; `rest`: metadata and payload behind it."""
    number = NUMBERS[command]
    form = {"type": Field(1, int), command: Field(number, COMMANDS[number][1])}
    data = encode(form, {"type": number, command: body})
    size = len(data).to_bytes(4, "big") + data
    return (len(size) + len(rest)).to_bytes(4, "big") + size + rest


def parse(data):
    """(command, its fields, what stands behind it) of a frame without its first length. None as the name: not spoken here."""
    size = int.from_bytes(data[:4], "big")
    head, rest = data[4 : 4 + size], data[4 + size :]
    number = decode(_BASE, head)["type"]
    if number not in COMMANDS:
        return None, {"number": number}, rest
    name, form = COMMANDS[number]
    return name, decode({name: Field(number, form)}, head).get(name, {}), rest


def metadata(rest):
    """Of a message as it stands behind SEND: magic and checksum, the size of the metadata, they, and the payload."""
    place = 6 if rest[:2] == b"\x0e\x01" else 0
    size = int.from_bytes(rest[place : place + 4], "big")
    return decode(METADATA, rest[place + 4 : place + 4 + size])
