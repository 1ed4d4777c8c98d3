"""Statements for many rows: compiled once, and given to the driver's own `executemany`. Does not know what they do.

SQLAlchemy makes a dict of each row, and looks at each of its values. Here a column of values is bound at a time, by the same
functions of SQLAlchemy's types.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from penstock.datastream.connectors.sql.pieces import Piece

if TYPE_CHECKING:
    import sqlalchemy as sa

_DRIVERS: Final = frozenset({"pysqlite", "psycopg", "pymysql"})
"""Drivers whose values need nothing else of SQLAlchemy, such as sizes of parameters."""
_ZONE: Final = attrgetter("tzinfo")
_NONE: Final = type(None)


class ManyRows:
    """One statement with a parameter for each of the columns."""

    def __init__(self, statement: Any, columns: Sequence[str], dialect: Any) -> None:
        self._statement = statement
        self._columns = tuple(columns)
        self._is_direct = dialect.driver in _DRIVERS
        compiled = statement.compile(dialect=dialect, column_keys=list(columns))
        self._text = str(compiled)
        self._binders = [_binder(compiled.binds[name].type, dialect) for name in columns]
        order = compiled.positiontup if compiled.positional else None
        self._order = None if order is None else [self._columns.index(name) for name in order]
        escaped = compiled.escaped_bind_names
        self._names = [escaped.get(name, name) for name in columns]

    def execute(self, connection: sa.Connection, piece: Piece) -> None:
        if not self._is_direct:
            rows = [dict(zip(self._columns, row, strict=True)) for row in piece.rows()]
            connection.execute(self._statement, rows)
            return
        bound = [bind(column) for bind, column in zip(self._binders, piece.columns, strict=True)]
        parameters: Any
        if self._order is not None:
            parameters = list(zip(*[bound[place] for place in self._order], strict=True))
        else:
            names = self._names
            rows_of = zip(*bound, strict=True)
            parameters = [dict(zip(names, row, strict=True)) for row in rows_of]
        connection.exec_driver_sql(self._text, parameters)


_Binder = Callable[[Sequence[Any]], Sequence[Any]]


def _binder(kind: Any, dialect: Any) -> _Binder:
    """From values of a column to those that the driver takes."""
    implementation = kind.dialect_impl(dialect)
    process = implementation.bind_processor(dialect)
    if process is None:
        return _as_they_are

    def by_process(values: Sequence[Any]) -> Sequence[Any]:
        return [process(value) for value in values]

    if dialect.name != "sqlite":
        return by_process
    from sqlalchemy.dialects import sqlite

    if type(implementation) is not sqlite.DATETIME:
        return by_process

    def by_isoformat(values: Sequence[Any]) -> Sequence[Any]:
        """A third of the time of SQLAlchemy's own, with the same texts."""
        kinds = set(map(type, values))
        if kinds == {dt.datetime} and set(map(_ZONE, values)) == {None}:
            return [value.isoformat(" ", "microseconds") for value in values]
        return by_process(values)

    return by_isoformat


def _as_they_are(values: Sequence[Any]) -> Sequence[Any]:
    return values
