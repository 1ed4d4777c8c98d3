"""From the values of MySQL's rows to changes with values of the stream's types, and to keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.connectors.api.base import RefusedForGood
from penstock.connectors.cdc.mysql.columns import key_part, reader_of
from penstock.connectors.cdc.records import Change, Values
from penstock.connectors.cdc.splits import Key
from penstock.connectors.cdc.tables import TableShape
from penstock.engine.runtime.records.dead_letters import Malformed


class ValueReader:
    """Reads rows of one table, in the order of its columns."""

    def __init__(self, shape: TableShape, where: str) -> None:
        self._shape = shape
        self._where = where
        self._readers = [reader_of(column) for column in shape.columns]
        self._key = [(place, key_part(shape.columns[place]) or repr) for place in shape.key]

    def row(self, raw: Sequence[Any]) -> Values:
        """The values of a row. Raises ValueError: the stream's type cannot hold one."""
        return tuple([
            None if value is None else read(value)
            for read, value in zip(self._readers, raw, strict=True)
        ])

    def key(self, raw: Sequence[Any]) -> Key:
        """The key of a row. Raises: RefusedForGood: it has a date with zeros."""
        try:
            return tuple(
                part(self._readers[place](raw[place])) if part is not int else int(raw[place])
                for place, part in self._key
            )
        except AttributeError as error:  # the value of such a date is None
            names = [
                self._shape.names[place]
                for place, _ in self._key
                if self._readers[place](raw[place]) is None
            ]
            if not names:
                raise
            raise RefusedForGood(
                f"{self._where}: the key column {names[0]!r} of {self._shape.table} has a date "
                "with zeros, such as 0000-00-00, and the binlog does not say which one it is. Give "
                "the row a key that is a date, and begin anew with a snapshot."
            ) from error

    def change(
        self, op: str, before: Sequence[Any] | None, after: Sequence[Any] | None, time_ms: int
    ) -> Change:
        """The change; one that stands for it if a value cannot be read."""
        table, raw = self._shape.table, before or ()
        try:
            old = None if before is None else self.row(before)
            raw = after or ()
            new = None if after is None else self.row(after)
        except (ValueError, TypeError, ArithmeticError) as error:
            return self._bad(raw, error, time_ms)
        return Change(op, table, old, new, time_ms)

    def _bad(self, raw: Sequence[Any], error: Exception, time_ms: int) -> Change:
        name, shown = "", None
        for column, read, value in zip(self._shape.columns, self._readers, raw, strict=True):
            try:
                _ = None if value is None else read(value)
            except (ValueError, TypeError, ArithmeticError):
                name, shown = column.name, value
                break
        failure = ValueError(
            f"{self._where}: the column {name!r} of {self._shape.table} has {shown!s:.100}, "
            f"which the stream's type cannot hold: {error}. To skip such rows, give the source "
            '.on_error("skip").'
        )
        made = Malformed(dict(zip(self._shape.names, raw, strict=True)), error, failure)
        return Change("c", self._shape.table, None, None, time_ms, made)
