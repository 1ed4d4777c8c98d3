"""Instants in databases whose drivers drop the zone of a time: MySQL, MariaDB and SQLite. Does not know tables.

There an instant is written and read as what a clock in UTC shows. A `TIMESTAMP` of MySQL is an instant that the server shows in the zone
of the session, so that zone is UTC meanwhile.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.connectors.sql.values import are_naive
from penstock.engine.model.types import RowTypeInfo, UtcTimestampTypeInfo
from penstock.engine.runtime.elements import classes_of

if TYPE_CHECKING:
    import sqlalchemy as sa

_WITH_SESSIONS: Final = frozenset({"mysql", "mariadb"})
_WITHOUT_ZONES: Final = _WITH_SESSIONS | {"sqlite"}
_UTC: Final = "SET time_zone = '+00:00'"


def drops_zones(dialect: Any, kind: Any) -> bool:
    """Whether a column of this type gets times, and the driver would drop their zone."""
    import sqlalchemy as sql

    return dialect.name in _WITHOUT_ZONES and isinstance(kind, sql.DateTime)


def in_utc(values: Sequence[Any]) -> Sequence[Any] | None:
    """The values, with instants as a clock in UTC shows them. None: there is no instant among them."""
    times = values
    if classes_of(values) != {dt.datetime}:
        times = [value for value in values if isinstance(value, dt.datetime)]
    if are_naive(times):
        return None
    return [
        value.astimezone(dt.UTC).replace(tzinfo=None)
        if isinstance(value, dt.datetime) and value.tzinfo is not None
        else value
        for value in values
    ]


def with_session_in_utc(connection: sa.Connection, call: Callable[[], None]) -> None:
    """Call while the session's zone is UTC, where it has one. An error leaves it so: the connection is closed then."""
    if connection.dialect.name not in _WITH_SESSIONS:
        call()
        return
    zone = connection.exec_driver_sql("SELECT @@session.time_zone").scalar_one()
    connection.exec_driver_sql(_UTC)
    call()
    connection.exec_driver_sql("SET time_zone = %s", (zone,))


Instants = Callable[[tuple[Any, ...]], tuple[Any, ...]]
"""From a row as the driver gives it to one whose instants have a zone."""


def instants_of(engine: sa.Engine, row_type: RowTypeInfo) -> Instants | None:
    """What makes instants of those fields that are declared so. From now on the engine's sessions are in UTC. None: nothing is to do."""
    import sqlalchemy as sql

    kinds = row_type.get_field_types()
    places = [p for p, kind in enumerate(kinds) if isinstance(kind, UtcTimestampTypeInfo)]
    if not places or engine.dialect.name not in _WITHOUT_ZONES:
        return None
    if engine.dialect.name in _WITH_SESSIONS:
        sql.event.listen(engine, "connect", _set_utc)

    def instants(row: tuple[Any, ...]) -> tuple[Any, ...]:
        values = list(row)
        for place in places:
            if isinstance(values[place], dt.datetime) and values[place].tzinfo is None:
                values[place] = values[place].replace(tzinfo=dt.UTC)
        return tuple(values)

    return instants


def _set_utc(connection: Any, _record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_UTC)
