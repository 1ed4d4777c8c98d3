"""What a change source knows of tables: columns with types, and the key. Does not know databases."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.engine.model.errors import ConfigurationError

# ---------------------------------------------------------------------- splits
# Splits of change sources: ranges of a table's key, and the one stream of changes; and which changes a range has seen.
#
# A range is read in the order of its key. What of the table's history the reading saw is its `View`. If it is stopped, the
# rest of the range is read with another view, so a range leaves one or more `Piece`s. The stream goes over changes that a
# piece has seen. So no row comes twice and none is missing, and neither the table nor its writers ever wait.
# Does not know databases. Source: Flink CDC's incremental snapshot (SnapshotSplit, StreamSplit, FinishedSnapshotSplitInfo);
# differs: the view of a range is exact, so that no changes are read a second time to complete it.


Key: TypeAlias = tuple[Any, ...]
"""A row's key, as integers, texts, bytes and floats, whose order is the one in which the database reads the range."""
STREAM: Final = "stream"


class TableId(NamedTuple):
    """A table. `schema`: that of PostgreSQL; MySQL's database."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


class View(Protocol):
    """What of a table's history a reading saw. `plain`: its constructor's arguments, as plain data."""

    @property
    def plain(self) -> tuple[Any, ...]: ...

    def covers(self, mark: Any) -> bool:
        """Whether it saw the change with this mark."""
        ...

    def is_passed(self, mark: Any) -> bool:
        """Whether it saw neither this change nor any later one."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that were read with one view: low <= first part of the key < high, and after < key <= upto. None: no bound."""

    table: TableId
    low: Any
    high: Any
    after: Key | None
    upto: Key | None
    view: View

    def has(self, key: Key) -> bool:
        """Whether the key is in the piece, which is in the right range."""
        return (self.after is None or self.after < key) and (self.upto is None or key <= self.upto)


@dataclass(frozen=True, slots=True)
class SnapshotSplit:
    """A range of a table. `number`: among the table's. `horizon`: what the database's reader needs
    to know.

    `after`: the key that was read last. `view`: of the reading that began after `since`.
    """

    table: TableId
    number: int
    low: Any = None
    high: Any = None
    horizon: Any = None
    after: Key | None = None
    since: Key | None = None
    view: View | None = None
    pieces: tuple[Piece, ...] = ()
    is_finished: bool = False

    @property
    def split_id(self) -> str:
        return f"{self.table}:{self.number}"

    def begun(self, view: View) -> SnapshotSplit:
        """Return the split as a new reading continues it, after what former ones have read."""
        pieces = self.pieces
        if self.view is not None and self.after != self.since:
            pieces = (*pieces, self._piece(self.view, self.after))
        return replace(self, since=self.after, view=view, pieces=pieces)

    def read(self, key: Key) -> SnapshotSplit:
        """Return the split after the row with this key."""
        return replace(self, after=key)

    def finished(self) -> SnapshotSplit:
        """The split as its last reading leaves it."""
        assert self.view is not None, "it was begun"
        pieces = (*self.pieces, self._piece(self.view, None))
        return replace(self, pieces=pieces, view=None, is_finished=True)

    def _piece(self, view: View, upto: Key | None) -> Piece:
        return Piece(self.table, self.low, self.high, self.since, upto, view)


@dataclass(frozen=True, slots=True)
class StreamSplit:
    """The changes after a position. `pieces`: what the snapshot has read, as long as changes may be
    in it.
    """

    position: Any
    pieces: tuple[Piece, ...] = ()

    @property
    def split_id(self) -> str:
        return STREAM


class Seen:
    """Which changes the pieces of a snapshot contain."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self.pieces: tuple[Piece, ...] = tuple(pieces)
        ranges: dict[TableId, dict[Any, list[Piece]]] = {}
        for piece in self.pieces:
            ranges.setdefault(piece.table, {}).setdefault(piece.low, []).append(piece)
        self._tables = {table: _Ranges(found) for table, found in ranges.items()}

    def covers(self, table: TableId, key: Key, mark: Any) -> bool:
        """Whether the snapshot has this key's row as it is after the change with this mark."""
        ranges = self._tables.get(table)
        return ranges is not None and any(
            piece.view.covers(mark) for piece in ranges.of(key[0]) if piece.has(key)
        )

    def covers_all(self, table: TableId, mark: Any) -> bool:
        """Whether every piece of the table saw the change."""
        mine = [piece for piece in self.pieces if piece.table == table]
        return bool(mine) and all(piece.view.covers(mark) for piece in mine)

    def is_passed(self, mark: Any) -> bool:
        """Whether no piece has seen this change or a later one, so that nothing needs to be asked any more."""
        return all(piece.view.is_passed(mark) for piece in self.pieces)


class _Ranges:
    """The pieces of a table by the lower bounds of their ranges, of which the first has none."""

    def __init__(self, pieces: dict[Any, list[Piece]]) -> None:
        self._first: Sequence[Piece] = pieces.get(None, ())
        self._lows = sorted(low for low in pieces if low is not None)
        self._pieces = [pieces[low] for low in self._lows]

    def of(self, value: Any) -> Sequence[Piece]:
        place = bisect_right(self._lows, value) if self._lows else 0
        return self._pieces[place - 1] if place else self._first


# ---------------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True)
class Column:
    """`kind`: the type's name in the database, in its short form. `declared`: as it is written in DDL. `oid`: of PostgreSQL's type.

    `charset`: MySQL's name of the character set of a text.
    """

    name: str
    kind: str
    declared: str
    type_info: TypeInformation
    oid: int = 0
    charset: str | None = None


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table as it was when the job was submitted. `key`: places of the primary key's columns."""

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def common_row_type(
    shapes: Sequence[TableShape], more: Mapping[str, TypeInformation], where: str
) -> RowTypeInfo:
    """The ROW type of the tables' rows. `more`: further fields.

    Raises: ConfigurationError: tables differ, or a further field has a column's name.
    """
    first = shapes[0]
    for other in shapes[1:]:
        if [(one.name, one.type_info) for one in other.columns] != [
            (one.name, one.type_info) for one in first.columns
        ]:
            raise ConfigurationError(
                f"{where}: the tables {first.table} and {other.table} have different columns: "
                f"{shown_columns(first)}, and {shown_columns(other)}. Rows of one stream have one "
                "type. Use a source for each, or "
                ".deserializer(JsonDebeziumDeserializationSchema()), whose records are texts."
            )
    if taken := [name for name in more if name in first.names]:
        raise ConfigurationError(
            f"{where}: the table {first.table} has a column {taken[0]!r}, and metadata_columns "
            "adds a field of that name. Leave that one out."
        )
    types = [*(column.type_info for column in first.columns), *more.values()]
    return RowTypeInfo(types, [*first.names, *more])


def shown_columns(shape: TableShape) -> str:
    """The columns as text."""
    return ", ".join(f"{one.name} {one.declared}" for one in shape.columns)
