"""Turns Kafka's messages into batches of records: values by the deserialization schema, with Kafka's timestamps.

Does not know any client: a message is an object with value(), timestamp(), topic(), partition(), offset(), and what
`KafkaRecord.of` asks for besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from penstock.common.serialization import DeserializationSchema
from penstock.connectors.api.messaging.records import batch_of as batch_of_values
from penstock.connectors.api.messaging.records import rows_of, stamps_of
from penstock.connectors.kafka.record_schema import KafkaRecord, KafkaRecordDeserializationSchema
from penstock.engine.model.texts.bounded_text import bounded_str
from penstock.engine.runtime.elements import Batch

KafkaSchema: TypeAlias = DeserializationSchema | KafkaRecordDeserializationSchema


def batch_of(messages: Sequence[Any], schema: KafkaSchema) -> Batch | None:
    """The batch of these messages, in order, with the topic's kind of timestamps; None: no message gives a record.

    A message that the schema refuses gives a `Malformed`, whose text names topic, partition and offset.
    """

    def place(number: int) -> str:
        bad = messages[number]
        return f"Kafka record {bad.topic()}[{bad.partition()}] at offset {bad.offset()}"

    stamps = np.fromiter((message.timestamp()[1] for message in messages), np.int64, len(messages))
    if isinstance(schema, DeserializationSchema):
        values = [message.value() for message in messages]
        return batch_of_values(values, stamps_of(stamps, 0), schema, place)

    def failure(number: int, error: Exception) -> ValueError:
        return ValueError(
            f"{place(number)} cannot be deserialized by {type(schema).__name__}: "
            f"{type(error).__name__}: {bounded_str(error, 2000)}. To skip such records, give the "
            'source .on_error("skip"), or let the schema return None for them.'
        )

    records = list(map(KafkaRecord.of, messages))
    return rows_of(records, stamps_of(stamps, 0), schema.deserialize, failure)
