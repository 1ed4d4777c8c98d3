"""JSON messages that name their JSON Schema by its id in a schema registry. Not in PyFlink.

Source: Confluent's KafkaJsonSchemaSerializer: the wire format, and the schema's kind JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.elements import ColumnBatch
from penstock.formats.json import JsonRowDeserializationSchema
from penstock.formats.json_schema import JsonShape, Write, shape_of_schema, writer_of
from penstock.formats.registry.client import (
    MAGIC,
    PREFIX_BYTES,
    RegisteredSchema,
    RegistryClient,
    SchemaRegistry,
    checked_subject,
    parted,
    prefix_of,
)

__all__ = [
    "ConfluentRegistryJsonDeserializationSchema",
    "ConfluentRegistryJsonSerializationSchema",
]


class ConfluentRegistryJsonDeserializationSchema(DeserializationSchema):
    """Turns a JSON message with the id of its writer's schema in front into a Row. It asks no registry: JSON names its fields itself."""

    def __init__(self, schema: JsonRowDeserializationSchema) -> None:
        """Take the schema that reads what follows the id.

        Args:
            schema: built with `type_info`, or with `json_schema`, the text of the reader's JSON Schema.

        Raises ConfigurationError: it is another schema.
        """
        if not isinstance(schema, JsonRowDeserializationSchema):
            raise ConfigurationError(
                f"{type(self).__name__}: expected a JsonRowDeserializationSchema, such as "
                "JsonRowDeserializationSchema.builder().json_schema(text).build(), got "
                f"{bounded_repr(schema, 100)}."
            )
        self._schema = schema

    @property
    def produced_type(self) -> TypeInformation:
        """The ROW type of the schema."""
        return self._schema.produced_type

    def deserialize(self, data: bytes | None) -> Any:
        """Return the Row; None for a message without a value.

        Raises:
            ValueError: the message is not in the wire format, or cannot be read as JSON of the type.
        """
        return None if data is None else self._schema.deserialize(parted(data, "JSON")[1])

    def deserialize_columns(
        self, messages: Sequence[bytes | None]
    ) -> pa.RecordBatch | ColumnBatch | None:
        """Return all messages as columns, as `JsonRowDeserializationSchema` does; else None."""
        if any(one is None or one[:1] != MAGIC or len(one) < PREFIX_BYTES for one in messages):
            return None
        return self._schema.deserialize_columns([one[PREFIX_BYTES:] for one in messages if one])

    def reading(self, names: Sequence[str]) -> ConfluentRegistryJsonDeserializationSchema:
        """Return the schema for programs that read only these fields."""
        return ConfluentRegistryJsonDeserializationSchema(self._schema.reading(names))


class ConfluentRegistryJsonSerializationSchema(SerializationSchema):
    """Turns a Row into a JSON message with the id of its JSON Schema in front. Make it with `for_row`.

    Each task registers the schema when its first record comes. A field that is None is written as null where the schema takes null, and
    left out where it does not. Types and required fields are checked, nothing else that a schema may ask.
    """

    def __init__(self, subject: str, json_schema: str, registry: SchemaRegistry) -> None:
        """Use `for_row`."""
        self._subject = checked_subject(type(self).__name__, subject)
        self._text = json_schema
        self._shape = _object_shape(json_schema)
        self._registry = registry
        self._prefix: bytes | None = None
        self._write: Write | None = None

    @classmethod
    def for_row(
        cls,
        subject: str,
        json_schema: str,
        schema_registry_url: str,
        registry_configs: Mapping[str, Any] | None = None,
    ) -> ConfluentRegistryJsonSerializationSchema:
        """Return a schema for records that are Rows, tuples or dicts.

        Args:
            subject: under which the JSON Schema is registered, by convention `<topic>-value`.
            json_schema: the text of a JSON Schema of an object.
            schema_registry_url: the registry's address, `http://host:port` or `https://...`.
            registry_configs: properties of the registry's client, as `SchemaRegistry` takes them.

        Raises ConfigurationError: the subject, the URL or a property is not known. ValueError, TypeError: a ROW cannot hold what the
        schema describes.
        """
        return cls(subject, json_schema, SchemaRegistry(schema_registry_url, registry_configs))

    def serialize(self, value: Any) -> bytes:
        """Return the message.

        Raises:
            ValueError: the record does not have the schema.
            ExternalError: the registry does not answer, or refuses.
        """
        if self._prefix is None or self._write is None:
            schema = RegisteredSchema(self._text, "JSON")
            self._prefix = prefix_of(RegistryClient(self._registry).id_under(self._subject, schema))
            self._write = writer_of(self._shape)
        try:
            return self._prefix + self._write(value).encode()
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(
                f"a record does not have the JSON Schema of the subject {self._subject!r}, "
                f"{self._shape.type_info}: {error}. Record: {bounded_repr(value, 200)}"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prefix": None, "_write": None}


def _object_shape(text: str) -> JsonShape:
    shape = shape_of_schema(text)
    if not isinstance(shape.type_info, RowTypeInfo):
        raise ConfigurationError(
            f"ConfluentRegistryJsonSerializationSchema: expected the JSON Schema of an object with "
            f"properties, got one of {shape.type_info}."
        )
    return shape
