"""Writes rows into the user's table: added, replaced by key, or deleted. Does not know transactions or staged rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from penstock.connectors.sql.copying import TableCopy, Texts
from penstock.connectors.sql.errors import REFUSED_BY_DRIVER
from penstock.connectors.sql.pieces import Piece
from penstock.connectors.sql.statements import ManyRows
from penstock.connectors.sql.values import SqlRow
from penstock.engine.model.row import RowKind

if TYPE_CHECKING:
    import sqlalchemy as sa

NamedPiece: TypeAlias = tuple[tuple[str, ...], Piece]
"""The names of the columns, and their values."""
T = TypeVar("T")
_BESIDE: Final = "penstock_piece"
_CHANGED_TWICE: Final = "21000"
"""PostgreSQL's cardinality_violation."""
_MORE_THAN_REPLACING: Final = (RowKind.DELETE, RowKind.UPDATE_BEFORE)


class RowWriter:
    """Rows of the user's table, of the columns `columns`. `keys`: as in `Target.key_columns`.

    It is made once: its statements are compiled when they are first needed.
    """

    def __init__(
        self, table: sa.Table, columns: Sequence[str], keys: Sequence[str], dialect: Any
    ) -> None:
        self._table = table
        self._columns = columns
        self._keys = keys
        self._dialect = dialect
        self._copy = TableCopy(table, columns, dialect) if TableCopy.is_for(dialect) else None

    def write(self, connection: sa.Connection, pieces: Iterable[Piece]) -> None:
        """Writes the pieces in their order. What yields them must not use the connection."""
        if not self._keys:
            self._add(connection, pieces)
            return
        for piece in pieces:
            self._change(connection, piece)

    def _change(self, connection: sa.Connection, piece: Piece) -> None:
        """Only the last change of a key counts, and some databases refuse to change a row twice in one statement."""
        places = [self._columns.index(name) for name in self._keys]
        if not any(kind in _MORE_THAN_REPLACING for kind in piece.kinds or ()):
            self._replace(connection, _last_of_each_key(piece, places))
            return
        last = {
            tuple([values[place] for place in places]): (kind is RowKind.DELETE, values)
            for kind, values in piece.changes()
            if kind is not RowKind.UPDATE_BEFORE
        }
        for is_delete, group in groupby(sorted(last.items(), key=_kind), key=_kind):
            found = list(group)
            if is_delete:
                self._deleting.execute(connection, Piece.of([key for key, _ in found]))
            else:
                self._replace(connection, Piece.of([row for _, (_, row) in found]))

    def _add(self, connection: sa.Connection, pieces: Iterable[Piece]) -> None:
        """On PostgreSQL, pieces that follow each other are copied in one statement, as far as they can be copied."""
        copy = self._copy
        if copy is None or not copy.may(connection):
            for piece in pieces:
                self._adding.execute(connection, piece)
            return
        both = ((piece, copy.texts(piece)) for piece in pieces)
        for piece, texts in both:
            other = piece
            if texts is not None:
                kept: list[Piece] = []
                copy.copy(connection, chain([texts], _as_long_as_texts(both, kept)))
                if not kept:
                    return
                (other,) = kept
            self._adding.execute(connection, other)

    def _replace(self, connection: sa.Connection, piece: Piece) -> None:
        copy = self._copy
        if copy is not None and copy.may(connection, needs_temporary=True):
            texts = copy.texts(piece)
            if texts is not None and self._replace_by_copy(connection, copy, texts):
                return
        self._replacing.execute(connection, piece)

    def _replace_by_copy(self, connection: sa.Connection, copy: TableCopy, texts: Texts) -> bool:
        """Copies into a table next to the user's, and replaces from there in one statement.

        Returns False, and has changed nothing, if rows have keys that are equal in the database only, as 'a' and 'a '
        in a CHAR(2): one statement cannot change a row twice.
        """
        import sqlalchemy as sql

        make, move, clear = self._by_way_of
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(make)
                copy.copy(connection, [texts], f"pg_temp.{_BESIDE}")
                connection.execute(move)
                connection.exec_driver_sql(clear)
        except sql.exc.DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) == _CHANGED_TWICE:
                return False
            raise
        return True

    @cached_property
    def _adding(self) -> ManyRows:
        # Without inline() SQLAlchemy asks for generated keys.
        return ManyRows(self._table.insert().inline(), self._columns, self._dialect)

    @cached_property
    def _replacing(self) -> ManyRows:
        statement = self._upsert(self._new_insert().inline())
        return ManyRows(statement, self._columns, self._dialect)

    @cached_property
    def _deleting(self) -> ManyRows:
        import sqlalchemy as sql

        # The parameters need other names than the columns, because SQLAlchemy uses those names
        # itself here.
        names = [f"key_{i}" for i in range(len(self._keys))]
        is_row = [
            self._table.c[key] == sql.bindparam(name)
            for key, name in zip(self._keys, names, strict=True)
        ]
        return ManyRows(self._table.delete().where(sql.and_(*is_row)), names, self._dialect)

    @cached_property
    def _by_way_of(self) -> tuple[str, Any, str]:
        """Statements: makes the table next to the user's, moves its rows, empties it."""
        import sqlalchemy as sql

        assert self._copy is not None, "only PostgreSQL copies"
        columns = [sql.Column(name, self._table.c[name].type) for name in self._columns]
        beside = sql.Table(_BESIDE, sql.MetaData(), *columns, schema="pg_temp")
        names, name = self._copy.names, self._copy.name
        empty = f"SELECT {names} FROM {name} WITH NO DATA"  # noqa: S608 - they are quoted
        make = f"CREATE TEMPORARY TABLE IF NOT EXISTS {_BESIDE} ON COMMIT DROP AS {empty}"
        rows = sql.select(*[beside.c[name] for name in self._columns])
        adding = self._new_insert().from_select(list(self._columns), rows)
        return make.replace("%", "%%"), self._upsert(adding), f"TRUNCATE pg_temp.{_BESIDE}"

    def _new_insert(self) -> Any:
        from sqlalchemy.dialects import mysql, postgresql, sqlite

        kinds = {"mysql": mysql, "mariadb": mysql, "postgresql": postgresql, "sqlite": sqlite}
        make: Any = kinds[self._dialect.name].insert
        return make(self._table)

    def _upsert(self, statement: Any) -> Any:
        """The statement, with what it does where a key is there already."""
        others = [name for name in self._columns if name not in self._keys]
        if self._dialect.name in {"mysql", "mariadb"}:
            # If there are only key columns, each is set to its own value.
            changed = {name: statement.inserted[name] for name in others or self._keys}
            return statement.on_duplicate_key_update(**changed)
        if not others:
            return statement.on_conflict_do_nothing(index_elements=list(self._keys))
        changed = {name: statement.excluded[name] for name in others}
        return statement.on_conflict_do_update(index_elements=list(self._keys), set_=changed)


def first_refused(
    connection: sa.Connection, rows: Sequence[T], write: Callable[[Sequence[T]], None]
) -> T | None:
    """Writes the rows, in ever smaller halves where the database refuses. The first row that it refuses alone."""
    import sqlalchemy

    try:
        with connection.begin_nested():
            write(rows)
    except (sqlalchemy.exc.StatementError, *REFUSED_BY_DRIVER):
        if len(rows) == 1:
            return rows[0]
        middle = len(rows) // 2
        first = first_refused(connection, rows[:middle], write)
        return first_refused(connection, rows[middle:], write) if first is None else first
    return None


def refused_row(
    connection: sa.Connection,
    pieces: Iterable[NamedPiece],
    writer_of: Callable[[tuple[str, ...]], RowWriter],
) -> dict[str, Any] | None:
    """The first row that the database refuses alone, by the names of its columns. All that come ahead of it are written."""
    for columns, piece in pieces:
        writer = writer_of(columns)

        def write(rows: Sequence[SqlRow], writer: RowWriter = writer) -> None:
            writer.write(connection, [Piece.of_changes(rows)])

        found = first_refused(connection, piece.changes(), write)
        if found is not None:
            return dict(zip(columns, found[1], strict=True))
    return None


def _as_long_as_texts(
    both: Iterable[tuple[Piece, Texts | None]], other: list[Piece]
) -> Iterator[Texts]:
    """The texts, up to the first piece that has none; that one is put into `other`."""
    for piece, texts in both:
        if texts is None:
            other.append(piece)
            return
        yield texts


def _last_of_each_key(piece: Piece, places: Sequence[int]) -> Piece:
    keys = [piece.columns[place] for place in places]
    last = dict(zip(zip(*keys, strict=True), range(piece.size), strict=True))
    if len(last) == piece.size:
        return piece
    rows = list(piece.rows())
    return Piece.of([rows[number] for number in last.values()])


def _kind(change: tuple[tuple[Any, ...], tuple[bool, tuple[Any, ...]]]) -> bool:
    return change[1][0]
