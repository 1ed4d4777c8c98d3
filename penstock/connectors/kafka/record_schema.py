"""Turns whole Kafka records into values: key, headers, topic, partition, offset and timestamp as
well as the value.

Source: Flink's KafkaRecordDeserializationSchema, and the metadata columns of its Kafka table
(`topic`, `partition`, `headers`, `leader-epoch`, `offset`, `timestamp`, `timestamp-type`). Not in
PyFlink.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np

from penstock.common.serialization import DeserializationSchema
from penstock.common.typeinfo import TypeInformation, Types
from penstock.connectors.api.messaging.records import around, rows_of, stamps_of
from penstock.connectors.api.messaging.records import batch_of as batch_of_values
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.row import Row
from penstock.engine.model.texts.bounded_text import bounded_str
from penstock.engine.runtime.elements import Batch

# ---------------------------------------------------------------------- record schema


Header = tuple[str, bytes | None]
_BYTES: Final = Types.PRIMITIVE_ARRAY(Types.BYTE())
_KINDS_OF_TIMES: Final = {1: "CreateTime", 2: "LogAppendTime"}


class KafkaRecord(NamedTuple):
    """A record as the broker has it.

    Attributes:
        topic: its topic.
        partition: its partition, from 0.
        offset: its offset in the partition.
        timestamp: in milliseconds since 1970; None: it has none.
        timestamp_type: what the timestamp is: "CreateTime" (its producer's), "LogAppendTime" (the broker's), or None.
        leader_epoch: of the partition when it was written; None: the broker has not said.
        headers: pairs of name and value, in order; a name may come several times.
        key: its key; None: it has none.
        value: its value; None: it deletes its key in a compacted topic.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    timestamp_type: str | None
    leader_epoch: int | None
    headers: tuple[Header, ...]
    key: bytes | None
    value: bytes | None

    @classmethod
    def of(cls, message: Any) -> KafkaRecord:
        """Return the record of a message of confluent-kafka."""
        kind, stamp = message.timestamp()
        return cls(
            message.topic(),
            message.partition(),
            message.offset(),
            stamp if kind in _KINDS_OF_TIMES else None,
            _KINDS_OF_TIMES.get(kind),
            message.leader_epoch(),
            tuple(message.headers() or ()),
            message.key(),
            message.value(),
        )


METADATA: Final[Mapping[str, tuple[TypeInformation, Callable[[KafkaRecord], Any]]]] = {
    "topic": (Types.STRING(), lambda record: record.topic),
    "partition": (Types.INT(), lambda record: record.partition),
    "headers": (
        Types.LIST(Types.TUPLE([Types.STRING(), _BYTES])),
        lambda record: list(record.headers),
    ),
    "leader-epoch": (Types.INT(), lambda record: record.leader_epoch),
    "offset": (Types.LONG(), lambda record: record.offset),
    "timestamp": (Types.LONG(), lambda record: record.timestamp),
    "timestamp-type": (Types.STRING(), lambda record: record.timestamp_type),
}
"""The metadata columns by Flink's names: type, and the value of a record."""


class KafkaRecordDeserializationSchema(ABC):
    """Turns a Kafka record into one value of type `produced_type`, or into `Several`. It is pickled."""

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> Any:
        """Return the value; None: there is no value. `Several`: each of its values is a record."""

    @property
    def produced_type(self) -> TypeInformation:
        """The type of the values; by default they are pickled."""
        return Types.PICKLED_BYTE_ARRAY()

    def reading(self, names: Sequence[str]) -> Self:
        """Return the schema itself: it makes whole values, whatever a program reads."""
        return self

    @staticmethod
    def of(
        function: Callable[[KafkaRecord], Any], produced_type: TypeInformation | None = None
    ) -> KafkaRecordDeserializationSchema:
        """Return a schema that calls `function` for each record; `produced_type` None: its values "
        "are pickled."""
        if not callable(function):
            raise TypeError(
                f"KafkaRecordDeserializationSchema.of: expected a function, got {function!r}."
            )
        return _ByFunction(function, produced_type)

    @staticmethod
    def row(
        value: DeserializationSchema,
        *metadata: str,
        key: DeserializationSchema | None = None,
    ) -> KafkaRecordDeserializationSchema:
        """Return a schema of Rows: the fields `key`, if it has a schema, `value`, and then the metadata.

        Args:
            value: deserializes the value. The field is None for a tombstone, and where it gives None. `Several` values are several Rows,
                each of the kind of its value.
            metadata: names of metadata columns, in the order of the fields: topic, partition, headers (a list of pairs of name and
                bytes), leader-epoch, offset, timestamp (milliseconds since 1970), timestamp-type.
            key: deserializes the key. The field is None where a record has no key.

        Raises ConfigurationError: a column is not known, or named twice. TypeError: something is no schema.
        """
        return _ByFields(value, metadata, key)


class _ByFunction(KafkaRecordDeserializationSchema):
    def __init__(
        self, function: Callable[[KafkaRecord], Any], produced_type: TypeInformation | None
    ) -> None:
        self._function = function
        self._type = produced_type

    def deserialize(self, record: KafkaRecord) -> Any:
        return self._function(record)

    @property
    def produced_type(self) -> TypeInformation:
        return super().produced_type if self._type is None else self._type


class _ByFields(KafkaRecordDeserializationSchema):
    def __init__(
        self,
        value: DeserializationSchema,
        metadata: Sequence[str],
        key: DeserializationSchema | None,
    ) -> None:
        self._value = _checked_schema("value", value)
        self._key = None if key is None else _checked_schema("key", key)
        self._metadata = _checked_metadata(metadata)

    def deserialize(self, record: KafkaRecord) -> Any:
        columns = METADATA
        fields = [columns[name][1](record) for name in self._metadata]
        # A tombstone has no value, and most schemas cannot read what is not there.
        value = None if record.value is None else self._value.deserialize(record.value)
        keys = []
        if self._key is not None:
            keys = [None if record.key is None else self._key.deserialize(record.key)]
        return around(value, lambda one: Row(*keys, one, *fields))

    @property
    def produced_type(self) -> TypeInformation:
        names = ["value", *self._metadata]
        types = [self._value.produced_type, *(METADATA[name][0] for name in self._metadata)]
        if self._key is not None:
            names, types = ["key", *names], [self._key.produced_type, *types]
        return Types.ROW_NAMED(names, types)


def _checked_schema(of: str, schema: object) -> DeserializationSchema:
    if not isinstance(schema, DeserializationSchema):
        raise TypeError(
            f"KafkaRecordDeserializationSchema.row: expected a DeserializationSchema for the {of}, "
            f"got {schema!r}."
        )
    return schema


def _checked_metadata(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in METADATA:
            raise ConfigurationError(
                f"KafkaRecordDeserializationSchema.row: a Kafka record has no metadata {name!r}. "
                f"It has {', '.join(METADATA)}."
            )
        if names.count(name) > 1:
            raise ConfigurationError(
                f"KafkaRecordDeserializationSchema.row: the metadata {name!r} is named twice. Name "
                "it once."
            )
    return tuple(names)


# ---------------------------------------------------------------------- records
# Turns Kafka's messages into batches of records: values by the deserialization schema, with Kafka's timestamps.
#
# Does not know any client: a message is an object with value(), timestamp(), topic(), partition(), offset(), and what
# `KafkaRecord.of` asks for besides.


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
