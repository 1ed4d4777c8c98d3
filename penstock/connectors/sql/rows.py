"""Writes rows into the user's table: added, replaced by key, or deleted. Does not know transactions or staged rows."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cached_property, partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from uuid import UUID

import numpy as np

from penstock.connectors.sql.engine import REFUSED_BY_DRIVER, cursor_of
from penstock.connectors.sql.staged import Piece
from penstock.connectors.sql.values import (
    SqlRow,
    are_naive,
    drops_zones,
    in_utc,
    with_session_in_utc,
)
from penstock.engine.hosting.os.clock import progress
from penstock.engine.model.row import RowKind

if TYPE_CHECKING:
    import sqlalchemy as sa

# ---------------------------------------------------------------------- copying
# PostgreSQL's COPY for rows whose stored values it cannot change. Does not know transactions or
# staged rows.
#
# COPY reads texts, where INSERT casts values: they differ for some pairs of a value's class and a
# column's type, such as a time with a zone in a TIMESTAMP. So only pairs are copied for which
# both store the same; a piece with any other is inserted. Source: the documentation of
# PostgreSQL's COPY, its text format.


ROWS_AT_ONCE: Final = 1000
"""Rows in one message: the server reads one while the next one is made."""
_NULL: Final = "\\N"
_ESCAPED: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_NONE: Final = type(None)
_JSON: Final = "json"
_MAY_COPY: Final = """\
SELECT c.relkind IN ('r', 'p') AND NOT c.relhasrules AND NOT row_security_active(c.oid)
  AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attidentity = 'a'
  ),
  has_database_privilege(current_database(), 'TEMPORARY')
FROM pg_catalog.pg_class c WHERE c.oid = CAST(%(name)s AS regclass)"""
_LEAST_VERSION: Final = (10,)

Texts: TypeAlias = "Sequence[list[str]]"
"""A piece, column by column."""
_Texts = Callable[[Sequence[Any]], "list[str] | None"]
"""From values, none of which is None, to texts; None: the driver has to judge them."""


class TableCopy:
    """Copies pieces into one table. `columns`: what the pieces have."""

    def __init__(self, table: sa.Table, columns: Sequence[str], dialect: Any) -> None:
        self._dialect = dialect
        prepare = dialect.identifier_preparer
        # SQLAlchemy doubles per cent signs for statements with parameters; COPY has none.
        self.name = prepare.format_table(table).replace("%%", "%")
        self.names = ", ".join(prepare.quote(name).replace("%%", "%") for name in columns)
        self._kinds = [_column_kind(table.columns[name].type) for name in columns]
        if dialect._json_serializer is not None:  # noqa: SLF001 - the driver calls it
            self._kinds = [None if kind == _JSON else kind for kind in self._kinds]

    @staticmethod
    def is_for(dialect: Any) -> bool:
        """Whether this database and driver have it."""
        version = dialect.server_version_info or ()
        return dialect.driver == "psycopg" and version >= _LEAST_VERSION

    def may(self, connection: sa.Connection, needs_temporary: bool = False) -> bool:
        """Whether COPY does what INSERT does: not with row security, rules, or identities that are always generated.

        `needs_temporary`: whether a table next to it is to be made.
        """
        found = connection.info.get("may_copy")
        if found is None:
            row = connection.exec_driver_sql(_MAY_COPY, {"name": self.name}).one_or_none()
            found = connection.info["may_copy"] = (False, False) if row is None else tuple(row)
        return bool(found[0] and (found[1] or not needs_temporary))

    def texts(self, piece: Piece) -> Texts | None:
        """The columns as texts. None: INSERT may store other values."""
        found = []
        for kind, column in zip(self._kinds, piece.columns, strict=True):
            texts = None if kind is None else _texts(kind, column)
            if texts is None:
                return None
            found.append(texts)
        return found

    def copy(
        self, connection: sa.Connection, pieces: Iterable[Texts], into: str | None = None
    ) -> None:
        """Copies what `texts` returned, in one statement. `into`: another table with these columns, quoted.

        What `pieces` yields while it is copied must not come over the same connection.
        """
        statement = f"COPY {into or self.name} ({self.names}) FROM STDIN"
        with cursor_of(connection, statement) as cursor, cursor.copy(statement) as copy:
            for columns in pieces:
                for lines in _lines(columns):
                    copy.write(lines)
                    progress()


def _lines(columns: Texts) -> Iterator[str]:
    for begin in range(0, len(columns[0]), ROWS_AT_ONCE):
        some = [column[begin : begin + ROWS_AT_ONCE] for column in columns]
        yield "\n".join(map("\t".join, zip(*some, strict=True))) + "\n"


def _column_kind(kind: Any) -> str | None:
    """What `_TEXTS` calls the type that the database has reported. None: a type that is only inserted."""
    from sqlalchemy.dialects import postgresql as pg

    if type(kind) in {pg.TIMESTAMP, pg.TIME}:
        name = "timestamp" if type(kind) is pg.TIMESTAMP else "time"
        return f"{name}tz" if kind.timezone else name
    return {
        pg.SMALLINT: "integer",
        pg.INTEGER: "integer",
        pg.BIGINT: "integer",
        pg.REAL: "real",
        pg.DOUBLE_PRECISION: "double",
        pg.NUMERIC: "numeric",
        pg.TEXT: "text",
        pg.VARCHAR: "text",
        pg.CHAR: "text",
        pg.BOOLEAN: "boolean",
        pg.DATE: "date",
        pg.UUID: "uuid",
        pg.BYTEA: "bytea",
        pg.JSON: _JSON,
        pg.JSONB: _JSON,
    }.get(type(kind))


def _texts(kind: str, column: Sequence[Any]) -> list[str] | None:
    if kind == _JSON:  # None is JSON's null there, as SQLAlchemy has it
        return _of_texts(list(map(json.dumps, column)))
    classes = set(map(type, column))
    has_none = _NONE in classes
    classes.discard(_NONE)
    if not classes:
        return [_NULL] * len(column)
    make = _TEXTS.get((kind, classes.pop()))
    if make is None or classes:
        return None
    if not has_none:
        return make(column)
    texts = make([value for value in column if value is not None])
    if texts is None:
        return None
    ahead = iter(texts)
    return [_NULL if value is None else next(ahead) for value in column]


def _of_texts(values: Sequence[str]) -> list[str]:
    joined = "".join(values)
    for character, escaped in _ESCAPED.items():
        if character in joined:
            values = [value.replace(character, escaped) for value in values]
    return list(values)


def _of_decimals(values: Sequence[Decimal]) -> list[str] | None:
    texts = list(map(str, values))
    is_strange = "NaN" in "".join(texts) and any("NaN" in one and one != "NaN" for one in texts)
    return None if is_strange else texts


def _of_rounded(values: Sequence[float]) -> list[str]:
    """As PostgreSQL casts a double to a NUMERIC: by its first 15 digits."""
    return [format(value, ".15g") for value in values]


def _of_singles(values: Sequence[float]) -> list[str] | None:
    """Rounded to single precision from the double itself, not from its decimal digits."""
    doubles = np.array(values, "f8")
    with np.errstate(over="ignore", under="ignore"):
        singles = doubles.astype("f4")
    is_out = (np.isinf(singles) != np.isinf(doubles)) | ((singles == 0) != (doubles == 0))
    return None if is_out.any() else list(map(repr, singles.astype("f8").tolist()))


def _of_times(values: Sequence[dt.datetime]) -> list[str]:
    return [value.isoformat(" ") for value in values]


def _of_naive_times(values: Sequence[Any]) -> list[str] | None:
    if not are_naive(values):
        return None
    return list(map(str, values))


def _by(make: Callable[[Any], str]) -> _Texts:
    def texts(values: Sequence[Any]) -> list[str]:
        return list(map(make, values))

    return texts


_TEXTS: Final[dict[tuple[str, type], _Texts]] = {
    ("integer", int): _by(str),
    ("double", float): _by(repr),
    ("double", int): _by(str),
    ("real", float): _of_singles,
    ("numeric", Decimal): _of_decimals,
    ("numeric", int): _by(str),
    ("numeric", float): _of_rounded,
    ("text", str): _of_texts,
    ("boolean", bool): _by({True: "t", False: "f"}.__getitem__),
    ("date", dt.date): _by(dt.date.isoformat),
    ("time", dt.time): _of_naive_times,
    ("timestamp", dt.datetime): _of_naive_times,
    ("timestamptz", dt.datetime): _of_times,
    ("uuid", UUID): _by(str),
    ("bytea", bytes): _by(lambda value: f"\\\\x{value.hex()}"),
}


# ---------------------------------------------------------------------- statements
# Statements for many rows: compiled once, and given to the driver's own `executemany`. Does not
# know what they do.
#
# SQLAlchemy makes a dict of each row, and looks at each of its values. Here a column of values is
# bound at a time, by the same functions of SQLAlchemy's types.


_DRIVERS: Final = frozenset({"pysqlite", "psycopg", "pymysql"})
"""Drivers whose values need nothing else of SQLAlchemy, such as sizes of parameters."""


class ManyRows:
    """One statement with a parameter for each of the columns."""

    def __init__(self, statement: Any, columns: Sequence[str], dialect: Any) -> None:
        self._statement = statement
        self._columns = tuple(columns)
        self._is_direct = dialect.driver in _DRIVERS
        # A zip fills the same tuple again and again, if nobody keeps it.
        self._takes_iterators = dialect.driver == "pysqlite"
        compiled = statement.compile(dialect=dialect, column_keys=list(columns))
        self._text = str(compiled)
        kinds = [compiled.binds[name].type for name in columns]
        self._binders = [_binder(kind, dialect) for kind in kinds]
        self._without_zones = [p for p, kind in enumerate(kinds) if drops_zones(dialect, kind)]
        order = compiled.positiontup if compiled.positional else None
        self._order = None if order is None else [self._columns.index(name) for name in order]
        escaped = compiled.escaped_bind_names
        self._names = [escaped.get(name, name) for name in columns]

    def execute(self, connection: sa.Connection, piece: Piece) -> None:
        columns = list(piece.columns)
        zoned = [(place, in_utc(columns[place])) for place in self._without_zones]
        instants = {place: values for place, values in zoned if values is not None}
        if not instants:
            self._execute(connection, columns)
            return
        for place, values in instants.items():
            columns[place] = values
        with_session_in_utc(connection, partial(self._execute, connection, columns))

    def _execute(self, connection: sa.Connection, columns: Sequence[Sequence[Any]]) -> None:
        if not self._is_direct:
            rows = zip(*columns, strict=True)
            named = [dict(zip(self._columns, row, strict=True)) for row in rows]
            connection.execute(self._statement, named)
            return
        bound = [bind(column) for bind, column in zip(self._binders, columns, strict=True)]
        if self._order is not None:
            rows = zip(*[bound[place] for place in self._order], strict=True)
            with cursor_of(connection, self._text) as cursor:
                cursor.executemany(self._text, rows if self._takes_iterators else list(rows))
            return
        named = [dict(zip(self._names, row, strict=True)) for row in zip(*bound, strict=True)]
        connection.exec_driver_sql(self._text, named)


_Binder = Callable[[Sequence[Any]], Sequence[Any]]


def _binder(kind: Any, dialect: Any) -> _Binder:
    """From values of a column to those that the driver takes."""
    process = kind.dialect_impl(dialect).bind_processor(dialect)
    if process is None:
        return _as_they_are
    shortcuts = _shortcuts(process) if dialect.driver == "pysqlite" else {}

    def bind(values: Sequence[Any]) -> Sequence[Any]:
        classes = set(map(type, values))
        has_none = _NONE in classes
        classes.discard(_NONE)
        short = shortcuts.get(classes.pop()) if len(classes) == 1 else None
        bound = None if short is None else short(values, has_none)
        return [process(value) for value in values] if bound is None else bound

    return bind


def _as_they_are(values: Sequence[Any]) -> Sequence[Any]:
    return values


def _texts_of_times(values: Sequence[Any], has_none: bool) -> Sequence[Any] | None:
    if not has_none:
        return [_as_text(value) for value in values] if are_naive(values) else None
    texts = _texts_of_times([value for value in values if value is not None], False)
    ahead = iter(texts or ())
    return texts and [None if value is None else next(ahead) for value in values]


def _texts_of_days(values: Sequence[Any], has_none: bool) -> Sequence[Any]:
    if not has_none:
        return [value.isoformat() for value in values]
    return [None if value is None else value.isoformat() for value in values]


def _numbers(values: Sequence[Any], _has_none: bool) -> Sequence[Any]:
    return values


def _as_text(value: dt.datetime) -> str:
    return value.isoformat(" ", "microseconds")


_Short = Callable[[Sequence[Any], bool], "Sequence[Any] | None"]
_SHORTCUTS: Final[dict[Any, _Short]] = {
    dt.datetime.fromisoformat("0001-02-03T04:05:06.000007"): _texts_of_times,
    dt.date(1, 2, 3): _texts_of_days,
    0.5: _numbers,
}


def _shortcuts(process: Callable[[Any], Any]) -> dict[type, _Short]:
    """By class, what does the same as SQLAlchemy's function in a fraction of its time. It does if it does for an example."""
    found: dict[type, _Short] = {}
    for example, short in _SHORTCUTS.items():
        with suppress(Exception):  # the function is for other classes
            if [process(example), process(None)] == list(short([example, None], True) or ()):
                found[type(example)] = short
    return found


# ---------------------------------------------------------------------- rows


NamedPiece: TypeAlias = tuple[tuple[str, ...], Piece]
"""The names of the columns, and their values."""
T = TypeVar("T")
_PIECE_TABLE: Final = "penstock_piece"
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
                copy.copy(connection, [texts], f"pg_temp.{_PIECE_TABLE}")
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
        holding = sql.Table(_PIECE_TABLE, sql.MetaData(), *columns, schema="pg_temp")
        names, name = self._copy.names, self._copy.name
        empty = f"SELECT {names} FROM {name} WITH NO DATA"  # noqa: S608 - they are quoted
        make = f"CREATE TEMPORARY TABLE IF NOT EXISTS {_PIECE_TABLE} ON COMMIT DROP AS {empty}"
        rows = sql.select(*[holding.c[name] for name in self._columns])
        adding = self._new_insert().from_select(list(self._columns), rows)
        return make.replace("%", "%%"), self._upsert(adding), f"TRUNCATE pg_temp.{_PIECE_TABLE}"

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
