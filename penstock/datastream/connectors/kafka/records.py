"""Messages of Kafka as batches of records: values by the deserialization schema, Kafka's timestamps.

Knows no client: a message is what has value(), timestamp(), topic(), partition(), offset().
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.common.serialization import DeserializationSchema
from penstock.runtime.elements import NO_TIMESTAMP, Batch, ColumnBatch, Int64s, RowBatch


def batch_of(messages: Sequence[Any], schema: DeserializationSchema) -> Batch | None:
    """In order; a message whose value is None after deserializing gives no record. None: none does.

    Raises: ValueError: the schema refuses a message; the text names topic, partition and offset.
    """
    values = [message.value() for message in messages]
    stamps = _timestamps(messages)
    columns = schema.deserialize_columns(values)
    if columns is not None:
        return ColumnBatch(columns, stamps)
    records = _deserialized(messages, values, schema)
    if None in records:
        kept = [place for place, record in enumerate(records) if record is not None]
        if not kept:
            return None
        records = [records[place] for place in kept]
        stamps = None if stamps is None else stamps[kept]
    return RowBatch(records, stamps)


def _deserialized(
    messages: Sequence[Any], values: Sequence[bytes | None], schema: DeserializationSchema
) -> list[Any]:
    deserialize = schema.deserialize
    records: list[Any] = []
    append = records.append
    try:
        for value in values:
            append(deserialize(value))  # type: ignore[arg-type] # a tombstone is the schema's to judge
    except Exception as error:  # whatever the user's schema raises
        bad = messages[len(records)]
        shown = bad.value()
        raise ValueError(
            f"Kafka record {bad.topic()}[{bad.partition()}] at offset {bad.offset()} cannot be deserialized by "
            f"{type(schema).__name__}: {type(error).__name__}: {error}. Its value: "
            f"{shown if shown is None else bytes(shown[:200])!r}. A schema that returns None for it passes it over."
        ) from error
    return records


def _timestamps(messages: Sequence[Any]) -> Int64s | None:
    """Kafka's, of whichever kind the topic has; None: no message has one."""
    stamps = np.fromiter((message.timestamp()[1] for message in messages), np.int64, len(messages))
    is_missing = stamps < 0
    if not is_missing.any():
        return stamps
    if is_missing.all():
        return None
    stamps[is_missing] = NO_TIMESTAMP
    return stamps
