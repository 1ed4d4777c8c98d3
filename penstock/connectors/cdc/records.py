"""From changes to records: Rows with kinds, or Debezium's JSON. Does not know databases.

Source: Flink CDC RowDataDebeziumDeserializeSchema, JsonDebeziumDeserializationSchema; Debezium's event envelope.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np

from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.connectors.api.base import Batch, RefusedForGood, RowBatch
from penstock.connectors.cdc.tables import Key, Piece, Seen, TableId, TableShape
from penstock.engine.model.row import RowKind, make_rows
from penstock.engine.runtime.records.dead_letters import Malformed, MarkedRows

# ---------------------------------------------------------------------- records


METADATA_COLUMNS: Final = {
    "database_name": Types.STRING(),
    "schema_name": Types.STRING(),
    "table_name": Types.STRING(),
    "op_ts": Types.LONG(),
}
ROWS: Final = "rows"
DEBEZIUM: Final = "debezium-json"
Values: TypeAlias = tuple[Any, ...]


class Change(NamedTuple):
    """`op`: c, u or d as Debezium has it, r of the snapshot. `time_ms`: of the commit; of a snapshot, when it was read.

    `before` and `after`: None: there is none, or it is not wanted. `bad`: stands for a change that cannot be read.
    """

    op: str
    table: TableId
    before: Values | None
    after: Values | None
    time_ms: int
    bad: Malformed | None = None


class JsonDebeziumDeserializationSchema:
    """Records are JSON texts, as Debezium writes them: op, before, after, source, ts_ms."""


class RecordMaker(ABC):
    """Makes batches of changes."""

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation: ...

    @abstractmethod
    def batch(self, changes: Sequence[Change]) -> RowBatch:
        """Return the records of the changes, in order."""


@dataclass(frozen=True, slots=True)
class RowMaker(RecordMaker):
    """Rows of one shape. `keeps_before`: an update gives also the row before it."""

    row_type: RowTypeInfo
    metadata: tuple[str, ...]
    database: str
    keeps_before: bool

    @property
    def produced_type(self) -> TypeInformation:
        return self.row_type

    def batch(self, changes: Sequence[Change]) -> RowBatch:
        values: list[Values] = []
        kinds: list[RowKind] = []
        times: list[int] = []
        marks: list[tuple[int, Malformed]] = []
        for change in changes:
            op, table, before, after, time_ms, bad = change
            more = self._more(table, 0 if op == "r" else time_ms) if self.metadata else ()
            if bad is not None:
                marks.append((len(values), bad))
                values.append(())
                kinds.append(RowKind.INSERT)
            elif op == "u" and after is not None:
                if self.keeps_before and before is not None:
                    values.append(before + more)
                    kinds.append(RowKind.UPDATE_BEFORE)
                    times.append(time_ms)
                values.append(after + more)
                kinds.append(RowKind.UPDATE_AFTER)
            elif after is not None:
                values.append(after + more)
                kinds.append(RowKind.INSERT)
            elif before is not None:
                values.append(before + more)
                kinds.append(RowKind.DELETE)
            times.append(time_ms)
        names = tuple(self.row_type.get_field_names())
        rows: list[Any] = list(make_rows(names, values, len(values), kinds))
        return _marked(rows, times, marks)

    def _more(self, table: TableId, time_ms: int) -> Values:
        known = {
            "database_name": self.database or table.schema,
            "schema_name": table.schema,
            "table_name": table.name,
            "op_ts": time_ms,
        }
        return tuple(known[name] for name in self.metadata)


@dataclass(frozen=True, slots=True)
class DebeziumMaker(RecordMaker):
    """JSON texts. `connector`: its name in `source`. `shapes`: of the tables."""

    connector: str
    database: str
    shapes: dict[TableId, TableShape]

    @property
    def produced_type(self) -> TypeInformation:
        return Types.STRING()

    def batch(self, changes: Sequence[Change]) -> RowBatch:
        texts: list[Any] = []
        marks: list[tuple[int, Malformed]] = []
        for number, change in enumerate(changes):
            if change.bad is not None:
                marks.append((number, change.bad))
            texts.append(self._text(change))
        return _marked(texts, [change.time_ms for change in changes], marks)

    def _text(self, change: Change) -> str:
        names = self.shapes[change.table].names
        before, after = (
            None if image is None else dict(zip(names, image, strict=True))
            for image in (change.before, change.after)
        )
        is_snapshot = change.op == "r"
        source = {
            "connector": self.connector,
            "ts_ms": 0 if is_snapshot else change.time_ms,
            "snapshot": "true" if is_snapshot else "false",
            "db": self.database or change.table.schema,
            "schema": change.table.schema,
            "table": change.table.name,
        }
        envelope = {
            "before": before,
            "after": after,
            "source": source,
            "op": change.op,
            "ts_ms": change.time_ms,
        }
        try:
            return json.dumps(envelope, default=_plain, ensure_ascii=False, allow_nan=False)
        except ValueError:
            for image in filter(None, (before, after)):
                image.update({name: _number(value) for name, value in image.items()})
            return json.dumps(envelope, default=_plain, ensure_ascii=False, allow_nan=False)


def _number(value: Any) -> Any:
    """A float that is no number as a text: JSON has no form for it. Source: Kafka's JsonConverter (Jackson)."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"no form in JSON for {value!r:.100}")


def _marked(
    records: list[Any], times: Sequence[int], marks: Sequence[tuple[int, Malformed]]
) -> RowBatch:
    stamps = np.array(times, np.int64)
    for place, bad in marks:
        records[place] = bad
    return MarkedRows(records, stamps) if marks else RowBatch(records, stamps)


NOTHING: Final[Batch] = RowBatch([])
"""The batch of changes that give no record: the position moves past them."""


# ---------------------------------------------------------------------- changes
# What readers of a database's changes share: which of them the snapshot has seen, new columns,
# truncated tables, values of rows.


_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableReading:
    """What a subtask reads. `reflected`: where the database's log ended when the shapes of the tables were read. `where`: begins errors."""

    settings: Any
    shapes: Mapping[TableId, TableShape]
    maker: RecordMaker
    reflected: Any
    where: str


class SeenChanges:
    """Knows the tables, and what of the changes the snapshot has seen."""

    def __init__(self, reading: TableReading, pieces: Sequence[Piece]) -> None:
        """`pieces`: of the snapshot."""
        self._shapes = reading.shapes
        self._seen: Seen | None = Seen(pieces) if pieces else None
        self.settings = reading.settings
        self._reflected = reading.reflected
        self._where = reading.where
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
        if not self.settings.ignores_truncate:
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
