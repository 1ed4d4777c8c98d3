"""Values of SQL rows: from records to tuples, and to the bytes that are staged. Does not know any database.

Others may be able to write to the table of staged bytes. So reading the bytes creates only the plain kinds of values
that databases have.
"""

from __future__ import annotations

import datetime as dt
import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo

from penstock.engine.model.row import Row, RowKind
from penstock.engine.model.types import RowTypeInfo, UtcTimestampTypeInfo
from penstock.engine.runtime.elements import classes_of

if TYPE_CHECKING:
    import sqlalchemy as sa

# ---------------------------------------------------------------------- zones
# Instants in databases whose drivers drop the zone of a time: MySQL, MariaDB and SQLite. Does not know tables.
#
# There an instant is written and read as what a clock in UTC shows. A `TIMESTAMP` of MySQL is an instant that the server shows in the zone
# of the session, so that zone is UTC meanwhile.


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


# ---------------------------------------------------------------------- values


SqlRow: TypeAlias = tuple[RowKind, tuple[Any, ...]]
"""The change of a row, and its values in the order of the sink's columns."""


_CLASSES: Final = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone, Decimal, UUID, ZoneInfo)
}
_ALLOWED: Final = frozenset(_CLASSES.values())
_FIELDS: Final = attrgetter("_fields")
_VALUES: Final = attrgetter("_values")
_ROW_KIND: Final = attrgetter("_row_kind")
_ZONE: Final = attrgetter("tzinfo")


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows, as tuples in the order of the sink's columns. `kinds`: of each row; None: all are INSERT."""

    rows: Sequence[tuple[Any, ...]]
    kinds: Sequence[RowKind] | None = None


class _Pickler(pickle.Pickler):
    """Pickles plain values, and refuses values that `_SqlUnpickler` would refuse."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, ZoneInfo) and value.key is not None:
            return ZoneInfo, (value.key,)
        if isinstance(value, UUID):
            return UUID, (value.hex,)
        if type(value) in _ALLOWED or (isinstance(value, type) and value in _ALLOWED):
            return NotImplemented
        raise TypeError(
            f"SqlSink: a column got {value!r} of type {type(value).__name__}. Columns take None, bool, int, float, "
            "str, bytes, Decimal, UUID, the kinds of datetime, and lists and dicts of these: convert it in a map() "
            "before the sink."
        )


class _SqlUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _CLASSES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"SqlSink: the staged rows contain {module}.{name}, which no SqlSink writes. Check "
                "who else writes to the table of staged rows."
            ) from None


def are_naive(times: Sequence[dt.datetime]) -> bool:
    """Whether none of these times has a zone. Looks at all of them in C."""
    return set(map(_ZONE, times)) <= {None}


def dumps_plain(value: Any) -> bytes:
    """The value as bytes. Raises: TypeError: it has parts that are not of the plain kinds."""
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def loads_plain(data: bytes) -> Any:
    """What was given to `dumps_plain`. Raises: pickle.UnpicklingError: the bytes contain anything else."""
    return _SqlUnpickler(io.BytesIO(data)).load()


def changes_maker(columns: Sequence[str]) -> Callable[[Sequence[Any]], Changes]:
    """A function that makes rows of a batch of records, as that of `row_maker` does one by one.

    Most batches have records of one kind, and then no Python runs for each of them.
    """
    names, make = tuple(columns), row_maker(columns)

    def make_changes(records: Sequence[Any]) -> Changes:
        kinds = classes_of(records)
        values: Any = None
        if kinds == {Row}:
            values = _values_of_rows(records, names)
        elif kinds == {tuple}:
            values = list(records)
        sizes = None if values is None else list(map(len, values))
        if sizes is None or sizes.count(len(names)) != len(sizes):
            made = list(map(make, records))
            row_kinds = [kind for kind, _ in made]
            values = [one for _, one in made]
        elif kinds == {Row}:
            row_kinds = list(map(_ROW_KIND, records))
        else:
            return Changes(values)
        is_insert = row_kinds.count(RowKind.INSERT) == len(row_kinds)
        return Changes(values, None if is_insert else row_kinds)

    return make_changes


def _values_of_rows(rows: Sequence[Row], names: tuple[str, ...]) -> Sequence[Any] | None:
    """Values in the order of the names. None: the Rows do not all have the same names, or lack one."""
    fields = list(map(_FIELDS, rows))
    found = fields[0]
    if fields.count(found) != len(fields):
        return None
    if found is None or found == names:
        return list(map(_VALUES, rows))
    if len(names) < 2 or not set(names) <= set(found):
        return None
    if set(map(len, map(_VALUES, rows))) != {len(found)}:
        return None
    return list(map(itemgetter(*map(found.index, names)), map(_VALUES, rows)))


def row_maker(columns: Sequence[str]) -> Callable[[Any], SqlRow]:
    """A function that makes a row from a record.

    It takes a Row or dict by names, another Row, a tuple or a list by position, and any other record as the only
    column. It raises TypeError when a record does not have these columns.
    """
    names = tuple(columns)

    def by_name(record: dict[str, Any]) -> tuple[Any, ...]:
        try:
            return tuple([record[name] for name in names])
        except KeyError:
            raise TypeError(
                f"SqlSink: the record {record!r} lacks a field for one of the columns {list(names)}"
            ) from None

    def by_position(record: Sequence[Any]) -> tuple[Any, ...]:
        if len(record) != len(names):
            raise TypeError(
                f"SqlSink: the record {record!r} has {len(record)} fields, expected {len(names)}: "
                f"{list(names)}"
            )
        return tuple(record)

    def make(record: Any) -> SqlRow:
        if isinstance(record, Row):
            has_names = record._fields is not None and record._fields != names
            values = by_name(record.as_dict()) if has_names else by_position(list(record))
            return record.get_row_kind(), values
        if isinstance(record, dict):
            return RowKind.INSERT, by_name(record)
        if isinstance(record, tuple | list):
            return RowKind.INSERT, by_position(record)
        return RowKind.INSERT, by_position((record,))

    return make
