"""The driver's side of a PostgreSQL source: it makes publication and slot, says where the stream begins, and cuts ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from penstock.common.extras import extra
from penstock.connectors.cdc.database import Begin, DriverSide
from penstock.connectors.cdc.postgres.catalog import find_slot, publication_exists
from penstock.connectors.cdc.postgres.columns import WHOLE
from penstock.connectors.cdc.postgres.connection import (
    EXTRA,
    PostgresSettings,
    asked,
    connect,
    errors,
)
from penstock.connectors.cdc.splits import TableId
from penstock.engine.hosting.os.deadline import NoAnswer
from penstock.engine.model.errors import ExternalError

_CREATE_S: Final = 60

T = TypeVar("T")


class LsnPosition(NamedTuple):
    """`lsn`: behind the last transaction that was read to its end. `skip`: changes of the next one that were read."""

    lsn: int
    skip: int = 0


class PostgresDriverSide(DriverSide):
    """Makes publication and slot, says where the stream begins, and cuts ranges."""

    _settings: PostgresSettings

    def begin(self) -> Begin:
        return self._asked("looking where the stream begins", self._begin)

    def _begin(self) -> Begin:
        """Make what is missing: first the publication, for a slot cannot read WAL from before it.

        The stream begins with what the WAL gets from now on. A change that is committed earlier is in every snapshot
        once all transactions of now have ended; the horizon is the first that may not have begun.
        """
        settings = self._settings
        with errors(settings, self._where):
            connection = self._connected()
            if not publication_exists(connection, settings):
                self._publish(connection)
            slot = find_slot(connection, settings)
            if slot is None:
                self._create_slot(connection)
                slot = find_slot(connection, settings)
            assert slot is not None, "it was created"
            if settings.startup.mode == "never":
                return Begin(LsnPosition(slot.confirmed), has_snapshot=False)
            (lsn,) = connection.execute(
                "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
            ).fetchone()
            position = LsnPosition(max(int(lsn), slot.confirmed))
            if settings.startup.mode == "latest":
                return Begin(position, has_snapshot=False)
            (horizon,) = connection.execute(
                "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
            ).fetchone()
            return Begin(position, has_snapshot=True, horizon=horizon)

    def next_bound(self, table: TableId, low: Any, rows: int) -> Any:
        does = f"cutting {table} into ranges"
        return self._asked(does, lambda: self._next_bound(table, low, rows, does))

    def _next_bound(self, table: TableId, low: Any, rows: int, does: str) -> Any:
        shape = self._shapes[table]
        column = shape.columns[shape.key[0]]
        if column.kind not in WHOLE:
            return None  # read as one range, in the order of the key as text
        sql = extra("psycopg.sql", EXTRA, self._where)
        name, place = sql.Identifier(column.name), sql.Identifier(*table)
        query = sql.SQL("SELECT {0} FROM {1} WHERE {0} > {2} ORDER BY {0} OFFSET {3} LIMIT 1")
        if low is None:
            query = sql.SQL("SELECT {0} FROM {1} ORDER BY {0} OFFSET {3} LIMIT 1")
        with errors(self._settings, self._where, does):
            found = (
                self
                ._connected()
                .execute(query.format(name, place, sql.Literal(low), sql.Literal(rows)))
                .fetchone()
            )
        # Many rows may have the first value, and then the range that ends with it would be empty.
        return None if found is None else found[0]

    def close(self) -> None:
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    def _create_slot(self, connection: Any) -> None:
        """Raises: ExternalError: transactions that have written stay open for too long, which it waits for."""
        psycopg = extra("psycopg", EXTRA, self._where)
        slot = self._settings.slot
        connection.execute(f"SET statement_timeout = '{_CREATE_S}s'")
        try:
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        except psycopg.errors.QueryCanceled as error:
            raise ExternalError(
                f"{self._where}: the slot {slot!r} was not created within {_CREATE_S} s, because "
                "transactions that have written are still open. Find them in pg_stat_activity "
                "(backend_xid), and end them."
            ) from error
        connection.execute("RESET statement_timeout")

    def _publish(self, connection: Any) -> None:
        sql = extra("psycopg.sql", EXTRA, self._where)
        tables = sql.SQL(", ").join(sql.Identifier(*table) for table in self._settings.tables)
        connection.execute(
            sql.SQL(
                "CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)"
            ).format(sql.Identifier(self._settings.publication), tables)
        )

    def _asked(self, does: str, call: Callable[[], T]) -> T:
        """A connection that has not answered is closed, which ends the call that waits on it."""
        try:
            return asked(self._settings, self._where, does, call)
        except NoAnswer:
            self.close()
            raise

    def _connected(self) -> Any:
        if self._open is not None and self._open.closed:
            self._open = None
        if self._open is None:
            self._open = connect(self._settings, self._where)
        return self._open
