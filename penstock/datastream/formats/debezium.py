"""The names of `penstock.formats.debezium`, where PyFlink's programs import them."""

from penstock.formats.debezium import (
    DebeziumJsonDeserializationSchema,
    DebeziumJsonSerializationSchema,
)

__all__ = ["DebeziumJsonDeserializationSchema", "DebeziumJsonSerializationSchema"]
