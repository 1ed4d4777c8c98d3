"""Whether the user of a SqlSink may write where it writes, asked at submit by statements that change no row. Does not know sinks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.connectors.sql.engine import shown_url, transaction
from penstock.connectors.sql.errors import may_pass, told
from penstock.engine.model.errors import ConfigurationError

if TYPE_CHECKING:
    import sqlalchemy as sa

_DIALECTS: Final = ("postgresql", "mysql", "mariadb")
"""With users and rights. These look at rights before they look for rows."""


def check_use(
    engine: sa.Engine,
    own: Sequence[sa.Table],
    table: sa.Table,
    columns: Sequence[str],
    keys: Sequence[str],
    where: str,
) -> None:
    """Raises: ConfigurationError: the user may not write these columns, or not the sink's own tables. What may pass is no answer.

    `own`: the sink's own tables. `columns` and `keys`: of the user's table, as in `RowWriter`. `where`: names the sink.
    """
    wrong = _refused_use(engine, own, table, columns, keys)
    if wrong is not None:
        names = " and ".join(repr(one.name) for one in own)
        raise ConfigurationError(
            f"{where}: in {shown_url(engine)} it cannot write {wrong}. The user of the URL needs "
            f"INSERT on {table.fullname!r}, with key columns also SELECT, UPDATE and, for rows of "
            f"kind -D, DELETE; and all four on {names}: grant them, or name other tables with "
            "set_own_tables."
        )


def _refused_use(
    engine: sa.Engine,
    own: Sequence[sa.Table],
    table: sa.Table,
    columns: Sequence[str],
    keys: Sequence[str],
) -> str | None:
    """Return the name of a table that cannot be written and why, or None."""
    import sqlalchemy as sql

    if engine.dialect.name not in _DIALECTS:
        return None
    try:
        with transaction(engine) as connection:
            for asked, statement in _statements(own, table, columns, keys):
                try:
                    connection.execute(statement)
                except sql.exc.SQLAlchemyError as error:
                    return None if may_pass(error) else f"{asked.fullname!r}: {told(error)}"
            connection.rollback()
    except sql.exc.SQLAlchemyError:  # After an answer the transaction cannot be committed.
        return None
    return None


def _statements(
    own: Sequence[sa.Table], table: sa.Table, columns: Sequence[str], keys: Sequence[str]
) -> Iterator[tuple[sa.Table, Any]]:
    import sqlalchemy as sql

    for one in own:
        first = next(iter(one.columns))
        yield one, sql.select(one).limit(0)
        yield one, _insert(one, [column.name for column in one.columns])
        yield one, one.update().where(sql.false()).values({first: first})
        yield one, one.delete().where(sql.false())
    yield table, _insert(table, columns)
    if keys:
        yield table, sql.select(*[table.columns[name] for name in keys]).limit(0)
        changed = {name: table.columns[name] for name in columns if name not in keys}
        if changed:
            yield table, table.update().where(sql.false()).values(changed)


def _insert(table: sa.Table, columns: Sequence[str]) -> Any:
    import sqlalchemy as sql

    nothing = sql.select(*[sql.null().label(f"c{n}") for n, _ in enumerate(columns)]).limit(0)
    return table.insert().from_select(list(columns), nothing).inline()
