"""From row events of a binlog to changes: which tables they are of, and which of them the snapshot has seen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.connectors.api.base import RefusedForGood
from penstock.connectors.cdc.mysql.columns import ValueReader, correct
from penstock.connectors.cdc.records import Change, SeenChanges, TableReading
from penstock.connectors.cdc.tables import Key, Piece, TableId, TableShape

_PART: Final = r"""(?:`[^`]+`|"[^"]+"|[^\s.;`"]+)"""
_TABLE: Final = rf"({_PART}(?:\s*\.\s*{_PART})?)"
_TRUNCATE: Final = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{_TABLE}", re.IGNORECASE)
_PARTITION: Final = re.compile(
    rf"ALTER\s+(?:ONLINE\s+)?(?:IGNORE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?{_TABLE}\s.*?"
    rf"\b(?:TRUNCATE|DROP|EXCHANGE|CONVERT)\s+PARTITION\b(?:.*\bWITH\s+TABLE\s+{_TABLE})?",
    re.IGNORECASE | re.DOTALL,
)
"""Rows go, or come, with a partition. The second table is the one that it is exchanged with."""
_DROP: Final = re.compile(
    rf"(?:DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?|CREATE\s+OR\s+REPLACE\s+TABLE\s+)"
    rf"({_TABLE}(?:\s*,\s*{_TABLE})*)",
    re.IGNORECASE,
)
_DROP_ALL: Final = re.compile(
    rf"DROP\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+EXISTS\s+)?({_PART})", re.IGNORECASE
)
_RENAME: Final = re.compile(
    r"(?:RENAME\s+TABLES?|ALTER\s+(?:ONLINE\s+)?(?:IGNORE\s+)?TABLE)\s+(?:IF\s+EXISTS\s+)?",
    re.IGNORECASE,
)
_RENAMED: Final = re.compile(
    rf"{_TABLE}\s+(?:WAIT\s+\d+\s+|NOWAIT\s+)?(?:RENAME\s+(?:TO|AS|=)|TO)\s*{_TABLE}", re.IGNORECASE
)
_LITERAL: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_WRITES: Final = re.compile(r"(INSERT|UPDATE|DELETE|REPLACE|LOAD)\b", re.IGNORECASE)
_COMMENT: Final = re.compile(r"/\*.*?\*/|--[^\n]*\n|#[^\n]*\n", re.DOTALL)
_FIELD_TYPES: Final = {
    "tinyint": {1},
    "smallint": {2},
    "mediumint": {9},
    "int": {3},
    "bigint": {8},
    "float": {4},
    "double": {5},
    "decimal": {246},
    "date": {10},
    "datetime": {12, 18},
    "timestamp": {7, 17},
    "time": {11, 19},
    "year": {13},
    "bit": {16},
    "json": {245},
    "enum": {247},
    "set": {248},
}
"""The binlog's number of a type; texts and bytes share theirs."""
_EMPTY_SET: Final = "empty set"


@dataclass(frozen=True, slots=True)
class Mapped:
    """A table as the binlog describes it. `names`: of its columns there."""

    shape: TableShape
    names: frozenset[str]
    values: ValueReader

    def raw(self, image: dict[str, Any], sources: dict[str, Any]) -> list[Any]:
        """The row's values in the order of our columns. `sources`: why a value is None."""
        return [
            ""
            if column.kind == "set" and sources.get(column.name) == _EMPTY_SET
            else image.get(column.name)
            for column in self.shape.columns
        ]


class ChangeReader(SeenChanges):
    """Reads the rows of events, in order."""

    def __init__(self, reading: TableReading, pieces: Sequence[Piece]) -> None:
        """As of `SeenChanges`."""
        super().__init__(reading, pieces)
        self._mapped: dict[TableId, tuple[Any, Mapped]] = {}

    def is_ours(self, schema: str, table: str) -> bool:
        """Whether the source reads this table."""
        return TableId(schema, table) in self._shapes

    def changes(self, op: str, event: Any, mark: tuple[int, int]) -> list[Change]:
        """The changes of an event that the snapshot has not seen. `op`: c, u or d."""
        self._pass(mark)
        mapped = self._map(event, mark)
        rows, time_ms = event.rows, event.timestamp * 1000
        if op == "u":
            return [one for row in rows for one in self._update(mapped, row, mark, time_ms)]
        found = []
        for row in rows:
            raw = mapped.raw(row["values"], row["none_sources"])
            if not self._has_seen(mapped, mapped.values.key(raw), mark):
                before, after = (raw, None) if op == "d" else (None, raw)
                found.append(mapped.values.change(op, before, after, time_ms))
        return found

    def query(self, text: str, database: str, mark: tuple[int, int]) -> None:
        """Look at a statement of the binlog. Raises: RefusedForGood: it changes rows of ours without saying which."""
        text = _COMMENT.sub(" ", text).strip()
        if found := _TRUNCATE.match(text):
            self._truncate(_named(found[1], database), mark, "was truncated")
        elif found := _PARTITION.match(_LITERAL.sub("''", text)):
            for name in filter(None, found.groups()):
                does = f"has lost or got rows with a partition, by {text!r:.200}"
                self._truncate(_named(name, database), mark, does)
        elif gone := list(_gone(text, database, self._shapes)):
            for table, does in gone:
                self._truncate(table, mark, f"{does}, by {text!r:.200}")
        elif _WRITES.match(text):
            for table in self._shapes:
                if re.search(rf"\b{re.escape(table.name)}\b", text):
                    raise RefusedForGood(
                        f"{self._where}: the binlog has the statement {text!r:.200}, and not the "
                        f"rows of {table} that it changed: a session has set binlog_format to "
                        "STATEMENT. Begin anew with a snapshot."
                    )

    def _update(
        self, mapped: Mapped, row: dict[str, Any], mark: tuple[int, int], time_ms: int
    ) -> Iterator[Change]:
        """An update, and of a key that changes a deletion and an insertion."""
        old = mapped.raw(row["before_values"], row["before_none_sources"])
        new = mapped.raw(row["after_values"], row["after_none_sources"])
        old_key, new_key = mapped.values.key(old), mapped.values.key(new)
        if old_key == new_key:
            if not self._has_seen(mapped, new_key, mark):
                yield mapped.values.change("u", old, new, time_ms)
            return
        if not self._has_seen(mapped, old_key, mark):
            yield mapped.values.change("d", old, None, time_ms)
        if not self._has_seen(mapped, new_key, mark):
            yield mapped.values.change("c", None, new, time_ms)

    def _has_seen(self, mapped: Mapped, key: Key, mark: tuple[int, int]) -> bool:
        return self._covers(mapped.shape.table, key, mark)

    def _map(self, event: Any, mark: tuple[int, int]) -> Mapped:
        table = TableId(event.schema, event.table)
        known = self._mapped.get(table)
        if known is not None and known[0] is event.columns:
            return known[1]
        shape = self._shapes[table]
        types = {column.name: column.type for column in event.columns}
        if None in types:
            raise RefusedForGood(
                f"{self._where}: the binlog has no names of the columns of {table}. SET GLOBAL "
                "binlog_row_metadata = 'FULL', and begin anew with a snapshot: sessions that were "
                "open before keep what they had."
            )
        if mark > self._reflected:
            self._check_columns(shape, types)
        self._warn_of_new(shape, types)
        correct(event.columns, shape, self._where)
        made = Mapped(shape, frozenset(types), ValueReader(shape, self._where))
        self._mapped[table] = (event.columns, made)
        return made

    def _check_columns(self, shape: TableShape, types: dict[str, int]) -> None:
        for column in shape.columns:
            if column.name not in types:
                what = "was dropped or renamed"
            elif types[column.name] in _FIELD_TYPES.get(column.kind, {types[column.name]}):
                continue
            else:
                what = "has another type now"
            raise RefusedForGood(
                f"{self._where}: the column {column.name!r} of {shape.table} {what}. Stop the job "
                "with a savepoint, and submit it again from there."
            )

    def _truncate(self, table: TableId, mark: tuple[int, int], does: str) -> None:
        if table in self._shapes:
            self._check_truncated(table, mark, does)


def _gone(text: str, database: str, tables: Iterable[TableId]) -> Iterator[tuple[TableId, str]]:
    """The tables that a statement takes away, and how. `tables`: ours, for a statement that names none."""
    if found := _DROP.match(text):
        for name in re.findall(_TABLE, found[1]):
            yield _named(name, database), "was dropped"
    elif found := _DROP_ALL.match(text):
        name = found[1].strip('`"')
        yield from ((table, "was dropped") for table in tables if table.schema == name)
    elif found := _RENAME.match(text):
        for table in _renamed_away(_LITERAL.sub("''", text[found.end() :]), database):
            yield table, "was renamed"


def _renamed_away(pairs: str, database: str) -> set[TableId]:
    """The tables that another name has taken, but not those that another table has become: tools that change a table in the background
    put a copy of it in its place.
    """
    found = [(_named(old, database), _named(new, database)) for old, new in _RENAMED.findall(pairs)]
    return {old for old, _ in found} - {new for _, new in found}


def _named(name: str, database: str) -> TableId:
    """The table of a name as a statement has it."""
    parts = [part.strip().strip('`"') for part in name.split(".")]
    return TableId(*([database, *parts][-2:]))
