"""Turns values into Kafka records: topic, key and value.

Source: pyflink.datastream.connectors.kafka, Flink's KafkaRecordSerializationSchemaBuilder; differs: works on whole
batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeAlias

from penstock.common.serialization import SerializationSchema
from penstock.connectors.api.builder import checked_schema
from penstock.connectors.api.messaging.staging import ProducedRecords
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.elements import Int64s


class KafkaTopicSelector(ABC):
    """Chooses the topic of a value."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """Return the topic's name."""


Select: TypeAlias = "Callable[[Any], str]"
HeaderProvider: TypeAlias = (
    "Callable[[Any], Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]]"
)
"""Returns the headers of a value's record: pairs of name and value, or a mapping."""


class KafkaRecordSerializationSchema(SerializationSchema):
    """Turns values into Kafka records. Build it with `builder()`."""

    def __init__(
        self,
        topic: str | Select,
        value_schema: SerializationSchema,
        key_schema: SerializationSchema | None = None,
        header_provider: HeaderProvider | None = None,
    ) -> None:
        self._header_provider = header_provider
        self._topic = topic
        self._value_schema = value_schema
        self._key_schema = key_schema

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Return a builder."""
        return KafkaRecordSerializationSchemaBuilder()

    @property
    def topic(self) -> str | None:
        """The topic of all values; None: the selector chooses it."""
        return self._topic if isinstance(self._topic, str) else None

    @property
    def takes_columns(self) -> bool:
        """Whether records need not be made where the fields' values are there: nothing but the value's schema looks at them."""
        schema = type(self._value_schema)
        is_alone = self._key_schema is None and self._header_provider is None
        makes_them = schema.serialize_columns is not SerializationSchema.serialize_columns
        return isinstance(self._topic, str) and is_alone and makes_them

    def serialize(self, value: Any) -> bytes:
        """The record's value alone."""
        return self._value_schema.serialize(value)

    def records_of_columns(
        self, columns: Sequence[Sequence[Any]], count: int, timestamps: Int64s | None
    ) -> ProducedRecords | None:
        """One record for each Row whose fields have these values; None: the Rows must be made. Only if `takes_columns`."""
        values = self._value_schema.serialize_columns(columns, count)
        if values is None:
            return None
        assert isinstance(self._topic, str), "a selector needs records"
        return ProducedRecords([self._topic] * count, None, values, timestamps)

    def records(self, values: Sequence[Any], timestamps: Int64s | None) -> ProducedRecords:
        """One record for each value.

        Raises: TypeError: a topic is not text; any error of the schemas and the selector.
        """
        select, key_schema = self._topic, self._key_schema
        if isinstance(select, str):
            topics = [select] * len(values)
        else:
            topics = [_checked_topic(select(value), value) for value in values]
        keys = None if key_schema is None else key_schema.serialize_values(values)
        serialized = self._value_schema.serialize_values(values)
        provider = self._header_provider
        headers = None if provider is None else [_headers(provider(one), one) for one in values]
        return ProducedRecords(topics, keys, serialized, timestamps, headers)


class KafkaRecordSerializationSchemaBuilder:
    """Builds the schema; a topic or a selector, and the serializer of values, are required."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {}

    def build(self) -> KafkaRecordSerializationSchema:
        """Return the schema. Raises ConfigurationError if something required is missing."""
        for part, missing in _REQUIRED.items():
            if part not in self._parts:
                raise ConfigurationError(f"KafkaRecordSerializationSchema: {missing}.")
        return KafkaRecordSerializationSchema(**self._parts)

    def set_topic(self, topic: str) -> Self:
        """Write all values to one topic."""
        if not isinstance(topic, str) or not topic:
            raise ConfigurationError(f"set_topic: expected the name of a topic, got {topic!r}.")
        return self._set("set_topic", "topic", topic)

    def set_topic_selector(self, topic_selector: Select | KafkaTopicSelector) -> Self:
        """Write each value to the topic that a function or KafkaTopicSelector returns."""
        if isinstance(topic_selector, KafkaTopicSelector):
            topic_selector = topic_selector.apply
        if not callable(topic_selector):
            raise TypeError(
                f"set_topic_selector: expected a function or a KafkaTopicSelector, got "
                f"{topic_selector!r}."
            )
        return self._set("set_topic_selector", "topic", topic_selector)

    def set_key_serialization_schema(self, key_serialization_schema: SerializationSchema) -> Self:
        """Set what serializes a record's key.

        It gets the whole value; RowFieldExtractorSchema one field.
        """
        return self._set_schema("key", key_serialization_schema)

    def set_header_provider(self, header_provider: HeaderProvider) -> Self:
        """Set a function that returns the headers of a value's record: pairs of name and bytes, or a mapping. Not in PyFlink.

        A header's value may be None, and a name may come several times.
        """
        if not callable(header_provider):
            raise TypeError(f"set_header_provider: expected a function, got {header_provider!r}.")
        return self._set("set_header_provider", "header_provider", header_provider)

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> Self:
        """Set what serializes a record's value."""
        return self._set_schema("value", value_serialization_schema)

    def _set_schema(self, of: str, schema: object) -> Self:
        setter = f"set_{of}_serialization_schema"
        checked_schema(setter, schema, SerializationSchema)
        return self._set(setter, f"{of}_schema", schema)

    def _set(self, setter: str, part: str, value: object) -> Self:
        if part in self._parts:
            raise ConfigurationError(
                f"{setter}: the {part.replace('_', ' ')} is set already: "
                f"{self._parts[part]!r}. Set it once."
            )
        self._parts[part] = value
        return self


_REQUIRED: Final = {
    "topic": "no topic is set: call set_topic('name') or set_topic_selector(function)",
    "value_schema": "no serializer of values is set: call "
    "set_value_serialization_schema(SimpleStringSchema()), or with another SerializationSchema",
}


def _checked_topic(topic: object, value: object) -> str:
    if not isinstance(topic, str) or not topic:
        raise TypeError(
            f"the topic selector returned {topic!r} for {value!r}; expected a topic's name"
        )
    return topic


def _headers(found: Any, value: object) -> list[tuple[str, bytes | None]]:
    pairs = list(found.items() if isinstance(found, Mapping) else found or ())
    for pair in pairs:
        if not (
            isinstance(pair, tuple)
            and len(pair) == 2
            and isinstance(pair[0], str)
            and isinstance(pair[1], bytes | None)
        ):
            raise TypeError(
                f"the header provider returned {pair!r:.200} for {value!r:.200}; expected pairs of "
                "a name and bytes or None"
            )
    return pairs
