"""Turns messages into batches of records, by the deserialization schema. Does not know any client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.common.serialization import DeserializationSchema
from penstock.runtime.elements import NO_TIMESTAMP, Batch, ColumnBatch, Int64s, RowBatch

NO_RECORDS: Final = RowBatch([])
"""The batch of messages that give no record: a reader's position moves past them."""


def batch_of(
    values: Sequence[bytes | None],
    stamps: Int64s | None,
    schema: DeserializationSchema,
    place: Callable[[int], str],
) -> Batch | None:
    """The batch of these messages, in order; None: no message gives a record.

    A message that the schema deserializes to None gives no record. `place(n)`: names the n-th message in errors.

    Raises: ValueError: the schema refuses a message; the text names the message.
    """
    columns = schema.deserialize_columns(values)
    if columns is not None:
        return ColumnBatch(columns, stamps)
    records = _deserialized(values, schema, place)
    kept = [number for number, record in enumerate(records) if record is not None]
    if not kept:
        return None
    if len(kept) < len(records):
        records = [records[number] for number in kept]
        stamps = None if stamps is None else stamps[kept]
    return RowBatch(records, stamps)


def stamps_of(stamps: Int64s, lowest: int) -> Int64s | None:
    """The event times of messages; those below `lowest` are missing. None: no message has one."""
    is_missing = stamps < lowest
    if not is_missing.any():
        return stamps
    if is_missing.all():
        return None
    stamps[is_missing] = NO_TIMESTAMP
    return stamps


def _deserialized(
    values: Sequence[bytes | None], schema: DeserializationSchema, place: Callable[[int], str]
) -> list[Any]:
    deserialize = schema.deserialize
    records: list[Any] = []
    append = records.append
    try:
        for value in values:
            append(deserialize(value))  # type: ignore[arg-type] # a tombstone is the schema's to judge
    except Exception as error:  # the user's schema may raise any error
        number = len(records)
        shown = values[number]
        raise ValueError(
            f"{place(number)} cannot be deserialized by {type(schema).__name__}: "
            f"{type(error).__name__}: {error}. Its value: "
            f"{shown if shown is None else bytes(shown[:200])!r}. To skip such messages, let the "
            "schema return None for them."
        ) from error
    return records
