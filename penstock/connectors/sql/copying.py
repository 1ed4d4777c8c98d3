"""PostgreSQL's COPY for rows whose stored values it cannot change. Does not know transactions or staged rows.

COPY reads texts, where INSERT casts values: they differ for some pairs of a value's class and a column's type, such as a
time with a zone in a TIMESTAMP. So only pairs are copied for which both store the same; a piece with any other is inserted.
Source: the documentation of PostgreSQL's COPY, its text format.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

import numpy as np

from penstock.connectors.sql.engine import cursor_of
from penstock.connectors.sql.pieces import Piece
from penstock.connectors.sql.values import are_naive
from penstock.engine.hosting.os.clock import progress

if TYPE_CHECKING:
    import sqlalchemy as sa

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
