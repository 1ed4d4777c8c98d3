"""Turns Pulsar's messages into batches of records: selects the messages to read, with their values and event times.

Does not know any client: a message is an object with data(), event_timestamp(), publish_timestamp(), partition_key(),
ordering_key(), message_id().
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.common.serialization import DeserializationSchema
from penstock.datastream.connectors.messaging.records import batch_of as batch_of_values
from penstock.datastream.connectors.messaging.records import stamps_of
from penstock.datastream.connectors.pulsar.client import place_of
from penstock.datastream.connectors.pulsar.cursors import RangeGenerator
from penstock.datastream.connectors.pulsar.splits import (
    Start,
    StartKind,
    Stop,
    StopKind,
    TopicPartition,
)
from penstock.runtime.elements import Batch


def not_yet_read(messages: Sequence[Any], start: Start) -> Sequence[Any]:
    """The messages that were not read yet.

    A consumer that reconnects gets whole batches again from the last acknowledged message on.
    """
    if start.place is None or not messages:
        return messages
    place, is_behind = start.place, start.kind is StartKind.BEHIND
    first = place_of(messages[0].message_id())
    if first > place or (first == place and not is_behind):
        return messages
    places = [place_of(message.message_id()) for message in messages]
    return [
        message
        for message, at in zip(messages, places, strict=True)
        if at > place or (at == place and not is_behind)
    ]


def up_to(messages: Sequence[Any], stop: Stop | None) -> tuple[Sequence[Any], bool]:
    """The messages before the stop, and whether it is reached. Source: Flink StopCursor.StopCondition.compare."""
    if stop is None or not messages:
        return messages, False
    goal: Any = stop.goal
    if stop.kind is StopKind.PLACE and place_of(messages[-1].message_id()) < goal:
        return messages, False
    for count, message in enumerate(messages):
        match stop.kind:
            case StopKind.EVENT_TIME:
                at = message.event_timestamp()
            case StopKind.PUBLISH_TIME:
                at = message.publish_timestamp()
            case _:
                at = place_of(message.message_id())
        if at >= goal:
            return messages[: count + (at == goal and stop.is_inclusive)], True
    return messages, False


def with_keys(messages: Sequence[Any], keys: RangeGenerator) -> Sequence[Any]:
    if keys.keys is None:
        return messages
    return [one for one in messages if keys.wants(one.partition_key(), one.ordering_key())]


def batch_of(
    messages: Sequence[Any], schema: DeserializationSchema, partition: TopicPartition
) -> Batch | None:
    """The batch of these messages, in order, with event times; None: no message gives a record.

    A message without event time has no timestamp.
    Raises: ValueError: the schema refuses a message; the text names topic, partition and message id.
    """
    if not messages:
        return None

    def place(number: int) -> str:
        ledger, entry, index = place_of(messages[number].message_id())
        batch = f", {index} of its batch" if index >= 0 else ""
        return f"Pulsar message {ledger}:{entry}{batch}, of {partition},"

    stamps = np.fromiter((one.event_timestamp() for one in messages), np.int64, len(messages))
    values = [message.data() for message in messages]
    return batch_of_values(values, stamps_of(stamps, 1), schema, place)
