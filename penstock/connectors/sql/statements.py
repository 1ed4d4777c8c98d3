"""Statements for many rows: compiled once, and given to the driver's own `executemany`. Does not know what they do.

SQLAlchemy makes a dict of each row, and looks at each of its values. Here a column of values is bound at a time, by the same
functions of SQLAlchemy's types.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.connectors.sql.engine import cursor_of
from penstock.connectors.sql.pieces import Piece
from penstock.connectors.sql.values import are_naive
from penstock.connectors.sql.zones import drops_zones, in_utc, with_session_in_utc

if TYPE_CHECKING:
    import sqlalchemy as sa

_DRIVERS: Final = frozenset({"pysqlite", "psycopg", "pymysql"})
"""Drivers whose values need nothing else of SQLAlchemy, such as sizes of parameters."""
_NONE: Final = type(None)


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
