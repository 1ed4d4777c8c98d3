"""The wire format of Confluent's serializers: a byte 0, the id of the schema in 4 bytes, most significant first, and the data.

Source: Confluent's documentation of Schema Registry, "Wire format".
"""

from __future__ import annotations

from typing import Final

MAGIC: Final = b"\x00"
PREFIX_BYTES: Final = 5
_SHOWN: Final = 40


def framed(schema_id: int, data: bytes) -> bytes:
    return prefix_of(schema_id) + data


def prefix_of(schema_id: int) -> bytes:
    return MAGIC + schema_id.to_bytes(4, "big")


def parted(message: bytes, format_name: str) -> tuple[int, bytes]:
    """The id and the data of a message. Raises: ValueError: it is not in the wire format. `format_name`: of the data, for the error."""
    if len(message) < PREFIX_BYTES or message[:1] != MAGIC:
        raise ValueError(
            "a message is not in the wire format of schema registries: expected a byte 0, the id "
            f"of its schema in 4 bytes, and {format_name}; got {len(message)} bytes that begin "
            f"with {bytes(message[:_SHOWN])!r}. Read messages of producers without a registry with "
            "the format's schema that takes no registry"
        )
    return int.from_bytes(message[1:PREFIX_BYTES], "big"), message[PREFIX_BYTES:]
