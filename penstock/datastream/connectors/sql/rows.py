"""Writes rows into the user's table: added, replaced by key, or deleted. Does not know transactions or staged rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.datastream.connectors.sql.values import SqlRow
from penstock.model.row import RowKind

if TYPE_CHECKING:
    import sqlalchemy as sa

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Rows of the user's table. `keys`: as in `Target.key_columns`. `dialect`: SQLAlchemy's name of the database."""

    table: sa.Table
    keys: Sequence[str]
    dialect: str

    def write(
        self, connection: sa.Connection, columns: Sequence[str], rows: Sequence[SqlRow]
    ) -> None:
        if not self.keys:
            self._insert(connection, columns, rows)
            return
        # Only the last change of a key counts, and some databases refuse to change a row twice in
        # one statement.
        places = [columns.index(name) for name in self.keys]
        last = {
            tuple([values[place] for place in places]): (kind is RowKind.DELETE, values)
            for kind, values in rows
            if kind is not RowKind.UPDATE_BEFORE
        }
        for is_delete, group in groupby(sorted(last.items(), key=_kind), key=_kind):
            found = list(group)
            if is_delete:
                self._delete(connection, [key for key, _ in found])
            else:
                values = [dict(zip(columns, row, strict=True)) for _, (_, row) in found]
                connection.execute(self._upsert(columns), values)

    def _insert(
        self, connection: sa.Connection, columns: Sequence[str], rows: Sequence[SqlRow]
    ) -> None:
        values = [dict(zip(columns, row, strict=True)) for _, row in rows]
        if values:
            connection.execute(self.table.insert(), values)

    def _delete(self, connection: sa.Connection, keys: Sequence[tuple[Any, ...]]) -> None:
        import sqlalchemy as sql

        # The parameters need other names than the columns, because SQLAlchemy uses those names
        # itself here.
        is_row = [
            self.table.c[name] == sql.bindparam(f"key_{i}") for i, name in enumerate(self.keys)
        ]
        values = [{f"key_{i}": value for i, value in enumerate(key)} for key in keys]
        connection.execute(self.table.delete().where(sql.and_(*is_row)), values)

    def _upsert(self, columns: Sequence[str]) -> Any:
        others = [name for name in columns if name not in self.keys]
        if self.dialect in {"mysql", "mariadb"}:
            from sqlalchemy.dialects import mysql

            insert = mysql.insert(self.table)
            # If there are only key columns, each is set to its own value.
            changed = {name: insert.inserted[name] for name in others or self.keys}
            return insert.on_duplicate_key_update(**changed)
        from sqlalchemy.dialects import postgresql, sqlite

        make: Any = postgresql.insert if self.dialect == "postgresql" else sqlite.insert
        statement = make(self.table)
        if not others:
            return statement.on_conflict_do_nothing(index_elements=list(self.keys))
        changed = {name: statement.excluded[name] for name in others}
        return statement.on_conflict_do_update(index_elements=list(self.keys), set_=changed)


def first_refused(
    connection: sa.Connection, rows: Sequence[T], write: Callable[[Sequence[T]], None]
) -> T | None:
    """Writes the rows, in ever smaller halves where the database refuses. The first row that it refuses alone."""
    import sqlalchemy

    try:
        with connection.begin_nested():
            write(rows)
    except sqlalchemy.exc.DBAPIError:
        if len(rows) == 1:
            return rows[0]
        middle = len(rows) // 2
        first = first_refused(connection, rows[:middle], write)
        return first_refused(connection, rows[middle:], write) if first is None else first
    return None


def _kind(change: tuple[tuple[Any, ...], tuple[bool, tuple[Any, ...]]]) -> bool:
    return change[1][0]
