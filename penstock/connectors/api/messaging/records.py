"""Turns messages into batches of records, by the deserialization schema. Does not know any client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np

from penstock.common.serialization import DeserializationSchema, Several
from penstock.common.typeinfo import TypeInformation, Types
from penstock.engine.model.row import Row, make_row
from penstock.engine.model.texts.bounded_text import bounded_str
from penstock.engine.runtime.elements import NO_TIMESTAMP, Batch, ColumnBatch, Int64s, RowBatch
from penstock.engine.runtime.records.dead_letters import MarkedRows, decoded

NO_RECORDS: Final = RowBatch([])
"""The batch of messages that give no record: a reader's position moves past them."""


def batch_of(
    values: Sequence[bytes | None],
    stamps: Int64s | None,
    schema: DeserializationSchema,
    place: Callable[[int], str],
) -> Batch | None:
    """The batch of these messages, in order; None: no message gives a record.

    A message that the schema deserializes to None gives no record, and one that it refuses gives a `Malformed`. `place(n)`: names
    the n-th message in errors.
    """
    columns = schema.deserialize_columns(values)
    if isinstance(columns, ColumnBatch):
        columns.timestamps = stamps
        return columns
    if columns is not None:
        return ColumnBatch(columns, stamps)

    # A tombstone is the schema's to judge.
    return rows_of(values, stamps, schema.deserialize, _failure_of(values, schema, place))


def batch_with_names(
    fields: tuple[str, ...],
    names: Sequence[str],
    values: Sequence[bytes],
    stamps: Int64s | None,
    schema: DeserializationSchema,
    place: Callable[[int], str],
) -> Batch | None:
    """As `batch_of`, but records are Rows of the message's name, such as its topic, and of what the schema makes. `fields`: of the Row."""

    def decode(one: tuple[str, bytes]) -> Any:
        name, data = one
        return around(
            schema.deserialize(data),
            lambda value: None if value is None else make_row(fields, (name, value)),
        )

    raw = list(zip(names, values, strict=True))
    return rows_of(raw, stamps, decode, _failure_of(values, schema, place))


@dataclass(frozen=True, slots=True)
class NamedMessages:
    """Makes records of messages that have a name, such as their topic. `name`: the field of a Row with it; None: values alone."""

    schema: DeserializationSchema
    name: str | None

    @property
    def produced_type(self) -> TypeInformation:
        kind = self.schema.produced_type
        if self.name is None:
            return kind
        return Types.ROW_NAMED([self.name, "value"], [Types.STRING(), kind])

    def batch(
        self,
        names: Sequence[str],
        values: Sequence[bytes],
        stamps: Int64s | None,
        place: Callable[[int], str],
    ) -> Batch:
        """The records, in order; `NO_RECORDS`: no message gives one."""
        if self.name is None:
            found = batch_of(values, stamps, self.schema, place)
        else:
            fields = (self.name, "value")
            found = batch_with_names(fields, names, values, stamps, self.schema, place)
        return NO_RECORDS if found is None else found


def around(found: Any, make: Callable[[Any], Row | None]) -> Any:
    """`make(value)` for what a schema found: for each value of `Several`, and of the value's kind, so that a change stays a change."""
    if type(found) is Several:
        return Several(around(one, make) for one in found)
    row = make(found)
    if isinstance(found, Row) and row is not None:
        row.set_row_kind(found.get_row_kind())
    return row


def _failure_of(
    values: Sequence[bytes | None], schema: DeserializationSchema, place: Callable[[int], str]
) -> Callable[[int, Exception], ValueError]:
    def failure(number: int, error: Exception) -> ValueError:
        shown = values[number]
        return ValueError(
            f"{place(number)} cannot be deserialized by {type(schema).__name__}: "
            f"{type(error).__name__}: {bounded_str(error, 2000)}. Its value: "
            f"{shown if shown is None else bytes(shown[:200])!r}. To skip such messages, give the source "
            '.on_error("skip"), or let the schema return None for them.'
        )

    return failure


def rows_of(
    raw: Sequence[Any],
    stamps: Int64s | None,
    decode: Callable[[Any], Any],
    failure: Callable[[int, Exception], Exception],
) -> Batch | None:
    """The rows that `decode` makes, in order; None: it makes none. As `batch_of` else.

    `failure(n, error)`: the error that says where the n-th was.
    """
    records, has_marks = decoded(raw, decode, failure)
    if Several in set(map(type, records)):
        records, stamps = _each(records, stamps)
    kept = [number for number, record in enumerate(records) if record is not None]
    if not kept:
        return None
    if len(kept) < len(records):
        records = [records[number] for number in kept]
        stamps = None if stamps is None else stamps[kept]
    return MarkedRows(records, stamps) if has_marks else RowBatch(records, stamps)


def _each(records: Sequence[Any], stamps: Int64s | None) -> tuple[list[Any], Int64s | None]:
    """The values of all messages, with the event time of their message."""
    several = [found if type(found) is Several else [found] for found in records]
    if stamps is not None:
        stamps = np.repeat(stamps, list(map(len, several)))
    return list(chain.from_iterable(several)), stamps


def stamps_of(stamps: Int64s, lowest: int) -> Int64s | None:
    """The event times of messages; those below `lowest` are missing. None: no message has one."""
    is_missing = stamps < lowest
    if not is_missing.any():
        return stamps
    if is_missing.all():
        return None
    stamps[is_missing] = NO_TIMESTAMP
    return stamps
