"""What a schema makes of records, as sinks of messages send it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.common.serialization import SerializationSchema


def bodies_of(schema: SerializationSchema, values: Sequence[Any]) -> list[bytes]:
    """The bytes of each value. Raises: TypeError: the schema gave something else; what the schema raises."""
    bodies = schema.serialize_values(values)
    for body, value in zip(bodies, values, strict=True):
        if not isinstance(body, bytes):
            raise TypeError(
                f"{type(schema).__name__} gave {type(body).__name__} for {value!r:.200}; expected "
                "bytes"
            )
    return bodies
