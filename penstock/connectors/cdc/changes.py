"""What readers of a database's changes share: which of them the snapshot has seen, new columns, truncated tables, values of rows."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

from penstock.connectors.api.base import RefusedForGood
from penstock.connectors.cdc.records import Change, Values
from penstock.connectors.cdc.splits import Key, Piece, Seen, TableId
from penstock.connectors.cdc.tables import TableShape
from penstock.engine.runtime.records.dead_letters import Malformed

_LOG: Final = logging.getLogger(__name__)


class SeenChanges:
    """Knows the tables, and what of the changes the snapshot has seen."""

    def __init__(
        self,
        shapes: Mapping[TableId, TableShape],
        pieces: Sequence[Piece],
        *,
        ignores_truncate: bool,
        reflected: Any,
        where: str,
    ) -> None:
        """`reflected`: where the database's log ended when the shapes were read. `pieces`: of the snapshot."""
        self._shapes = shapes
        self._seen: Seen | None = Seen(pieces) if pieces else None
        self._ignores_truncate = ignores_truncate
        self._reflected = reflected
        self._where = where
        self._warned: set[TableId] = set()

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Those that later changes may still be in."""
        return () if self._seen is None else self._seen.pieces

    def _pass(self, mark: Any) -> None:
        if self._seen is not None and self._seen.is_passed(mark):
            self._seen = None

    def _covers(self, table: TableId, key: Key, mark: Any) -> bool:
        return self._seen is not None and self._seen.covers(table, key, mark)

    def _warn_of_new(self, shape: TableShape, names: Collection[str]) -> None:
        """`names`: of the table's columns as they are now."""
        if (new := sorted(set(names) - set(shape.names))) and shape.table not in self._warned:
            self._warned.add(shape.table)
            _LOG.warning(
                "%s: %s has columns that it did not have when the job was submitted: %s. They are "
                "left out until the job is submitted again, from a savepoint.",
                self._where,
                shape.table,
                ", ".join(new),
            )

    def _check_truncated(self, table: TableId, mark: Any, does: str) -> None:
        """Raises: RefusedForGood: the snapshot has not seen it, and the source does not ignore it. `does`: what happened."""
        if self._seen is not None and self._seen.covers_all(table, mark):
            return
        if not self._ignores_truncate:
            raise RefusedForGood(
                f"{self._where}: {table} {does}, which a changelog has no record for. "
                "Begin anew with a snapshot, or go on with .ignore_truncate()."
            )
        _LOG.warning("%s: %s %s; there are no records for it", self._where, table, does)


class RowReader:
    """Reads rows of one table, in the order of its columns.

    `readers`: of the columns, never given None. `refused`: what they raise for a value that the stream's type cannot hold.
    """

    refused: ClassVar[tuple[type[Exception], ...]] = (ValueError, ArithmeticError)

    def __init__(self, shape: TableShape, readers: Sequence[Any], where: str) -> None:
        self._shape = shape
        self._readers = readers
        self._where = where

    def row(self, raw: Sequence[Any]) -> Values:
        """The values of a row. Raises ValueError: the stream's type cannot hold one."""
        return tuple([
            None if value is None else read(value)
            for read, value in zip(self._readers, raw, strict=True)
        ])

    def change(
        self, op: str, before: Sequence[Any] | None, after: Sequence[Any] | None, time_ms: int
    ) -> Change:
        """The change; one that stands for it if a value cannot be read."""
        table, raw = self._shape.table, before or ()
        try:
            old = None if before is None else self.row(before)
            raw = after or ()
            new = None if after is None else self.row(after)
        except self.refused as error:
            return self._bad(raw, error, time_ms)
        return Change(op, table, old, new, time_ms)

    def shown(self, value: Any) -> str:
        return f"{value!r:.100}"

    def _bad(self, raw: Sequence[Any], error: Exception, time_ms: int) -> Change:
        name, found = "", None
        for column, read, value in zip(self._shape.columns, self._readers, raw, strict=True):
            try:
                _ = None if value is None else read(value)
            except self.refused:
                name, found = column.name, value
                break
        failure = ValueError(
            f"{self._where}: the column {name!r} of {self._shape.table} has {self.shown(found)}, "
            f"which the stream's type cannot hold: {error}. To skip such rows, give the source "
            '.on_error("skip").'
        )
        made = Malformed(dict(zip(self._shape.names, raw, strict=True)), error, failure)
        return Change("c", self._shape.table, None, None, time_ms, made)
