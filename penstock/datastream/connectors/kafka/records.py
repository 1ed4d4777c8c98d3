"""Turns Kafka's messages into batches of records: values by the deserialization schema, with Kafka's timestamps.

Does not know any client: a message is an object with value(), timestamp(), topic(), partition(), offset().
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.common.serialization import DeserializationSchema
from penstock.datastream.connectors.messaging.records import batch_of as batch_of_values
from penstock.datastream.connectors.messaging.records import stamps_of
from penstock.runtime.elements import Batch


def batch_of(messages: Sequence[Any], schema: DeserializationSchema) -> Batch | None:
    """The batch of these messages, in order, with the topic's kind of timestamps; None: no message gives a record.

    A message that the schema refuses gives a `Malformed`, whose text names topic, partition and offset.
    """

    def place(number: int) -> str:
        bad = messages[number]
        return f"Kafka record {bad.topic()}[{bad.partition()}] at offset {bad.offset()}"

    stamps = np.fromiter((message.timestamp()[1] for message in messages), np.int64, len(messages))
    values = [message.value() for message in messages]
    return batch_of_values(values, stamps_of(stamps, 0), schema, place)
