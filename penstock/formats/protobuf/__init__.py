"""Protobuf: from the descriptor of a message to the type of Rows, and values there and back."""

from penstock.formats.protobuf.schemas import (
    ProtobufDeserializationSchema,
    ProtobufSerializationSchema,
)

__all__ = ["ProtobufDeserializationSchema", "ProtobufSerializationSchema"]
