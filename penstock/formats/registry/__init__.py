"""Schema registries of Confluent's kind: schemas by their ids, the wire format, and formats whose messages name their schema."""

from penstock.formats.registry.avro import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)
from penstock.formats.registry.client import SchemaRegistry
from penstock.formats.registry.json import (
    ConfluentRegistryJsonDeserializationSchema,
    ConfluentRegistryJsonSerializationSchema,
)

__all__ = [
    "ConfluentRegistryAvroDeserializationSchema",
    "ConfluentRegistryAvroSerializationSchema",
    "ConfluentRegistryJsonDeserializationSchema",
    "ConfluentRegistryJsonSerializationSchema",
    "SchemaRegistry",
]
