"""From the texts of PostgreSQL's rows to changes with values of the stream's types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.connectors.cdc.postgres.columns import reader_of
from penstock.connectors.cdc.records import Change, Values
from penstock.connectors.cdc.tables import TableShape
from penstock.engine.runtime.records.dead_letters import Malformed


class ValueReader:
    """Reads rows of one table, in the order of its columns."""

    def __init__(self, shape: TableShape, where: str) -> None:
        self._shape = shape
        self._where = where
        self._readers = [reader_of(one.kind, one.type_info) for one in shape.columns]

    def row(self, texts: Sequence[Any]) -> Values:
        """The values of a row. Raises ValueError: the stream's type cannot hold one."""
        return tuple([
            None if text is None else read(text)
            for read, text in zip(self._readers, texts, strict=True)
        ])

    def snapshot(self, rows: Sequence[Sequence[Any]], time_ms: int) -> list[Change]:
        """The rows of a snapshot."""
        table = self._shape.table
        try:
            return [Change("r", table, None, self.row(texts), time_ms) for texts in rows]
        except (ValueError, ArithmeticError):
            return [self._one(texts, time_ms) for texts in rows]

    def bad(self, texts: Sequence[Any], error: Exception, time_ms: int) -> Change:
        """Stands for a row that cannot be read."""
        name, text = self._culprit(texts)
        failure = ValueError(
            f"{self._where}: the column {name!r} of {self._shape.table} has {text!r:.100}, which "
            f"the stream's type cannot hold: {error}. To skip such rows, give the source "
            '.on_error("skip").'
        )
        shown = dict(zip(self._shape.names, texts, strict=True))
        made = Malformed(shown, error, failure)
        return Change("c", self._shape.table, None, None, time_ms, made)

    def _one(self, texts: Sequence[Any], time_ms: int) -> Change:
        try:
            return Change("r", self._shape.table, None, self.row(texts), time_ms)
        except (ValueError, ArithmeticError) as error:
            return self.bad(texts, error, time_ms)

    def _culprit(self, texts: Sequence[Any]) -> tuple[str, Any]:
        for column, read, text in zip(self._shape.columns, self._readers, texts, strict=True):
            try:
                _ = None if text is None else read(text)
            except (ValueError, ArithmeticError):
                return column.name, text
        return "", None
