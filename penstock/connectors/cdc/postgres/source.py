"""PostgresSource: tables of PostgreSQL and their changes, exactly once. Needs psycopg (`penstock[postgres-cdc]`).

Source: Flink CDC's PostgresSourceBuilder (PostgresIncrementalSource); differs: without Debezium, Rows by default, the
snapshot's ranges and the stream fit without a second reading.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

from penstock.connectors.cdc.database import ChangeStream, ReaderSide
from penstock.connectors.cdc.options import CdcBuilder
from penstock.connectors.cdc.postgres.catalog import (
    check_publication,
    check_server,
    check_slot,
    check_table,
    shape_of,
)
from penstock.connectors.cdc.postgres.changes import ChangeReader
from penstock.connectors.cdc.postgres.connection import PostgresSettings, asked, connect, errors
from penstock.connectors.cdc.postgres.driver import PostgresDriverSide
from penstock.connectors.cdc.postgres.replication import ReplicationStream
from penstock.connectors.cdc.postgres.snapshot import RangeReader, TransactionView
from penstock.connectors.cdc.records import RecordMaker
from penstock.connectors.cdc.source import CdcSource, Reflected
from penstock.connectors.cdc.splits import StreamSplit
from penstock.connectors.cdc.tables import TableShape
from penstock.engine.hosting.os.deadline import progress
from penstock.engine.model.errors import ConfigurationError

_NAME: Final = "PostgresSource"
_SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")
_IN_USE_S: Final = 5.0


class PostgresReaderSide(ReaderSide):
    ranges = RangeReader

    def changes(self, split: StreamSplit) -> ChangeStream:
        settings = self._settings
        reader = ChangeReader(
            self._shapes,
            split.pieces,
            mode=settings.mode,
            ignores_truncate=settings.ignores_truncate,
            reflected=self._reflected,
            where=self._where,
        )
        return ReplicationStream(settings, reader, self._maker, split.position, self._where)


class PostgresSource(CdcSource):
    """Reads tables of PostgreSQL as they are, and then their changes. Not in PyFlink.

    Build it with `PostgresSource.builder()`. Its type is that of the tables' rows. A record's timestamp is the time of
    the commit in epoch ms, and for rows of the snapshot when they were read.
    """

    name = _NAME
    connector = "postgresql"
    view = TransactionView
    _settings: PostgresSettings

    @staticmethod
    def builder() -> PostgresSource.Builder:
        """Return a builder."""
        return PostgresSource.Builder()

    class Builder(CdcBuilder):
        """Builds a PostgresSource; the setters return the builder."""

        name = _NAME
        modes: ClassVar = ("initial", "latest", "never")

        begin = PostgresSettings
        _schemas: tuple[str, ...] = ()

        def database(self, database: str) -> Self:
            """Set the database."""
            return self._with_a(str, "database", database=database)

        def schema_list(self, *schemas: str) -> Self:
            """Set the schema of tables that are named without one; of several, the tables are named with theirs."""
            self._schemas = schemas
            return self

        def table_list(self, *tables: str) -> Self:
            """Set the tables, as "schema.table". They need a primary key."""
            self._names = tables
            return self

        def slot_name(self, name: str) -> Self:
            """Set the replication slot, "penstock" by default. It is created if it is missing, and never dropped.

            A slot is for one job.
            """
            if not isinstance(name, str) or not _SLOT_NAME.fullmatch(name):
                raise ConfigurationError(
                    f"{_NAME}.slot_name: expected 1 to 63 of a-z, 0-9 and _, got {name!r}."
                )
            return self._with(slot=name)

        def publication_name(self, name: str) -> Self:
            """Set the publication, by default the slot's name. It is created if it is missing."""
            return self._with_a(str, "publication_name", publication=name)

        def decoding_plugin_name(self, name: str) -> Self:
            """Accept "pgoutput", which every PostgreSQL has, and refuse others."""
            if name != "pgoutput":
                raise ConfigurationError(
                    f"{_NAME}.decoding_plugin_name: only 'pgoutput' is supported, got {name!r}."
                )
            return self

        def connection_parameters(self, parameters: dict[str, Any]) -> Self:
            """Set more parameters of libpq, such as {"sslmode": "verify-full", "sslrootcert": "/etc/ca.pem"}."""
            return self._with(parameters=dict(parameters))

        def build(self) -> PostgresSource:
            settings = self._complete(
                host='hostname("db-1")',
                database='database("shop")',
                user='username("jobs")',
            )
            schemas = self._schemas
            default = schemas[0] if len(schemas) == 1 else None if schemas else "public"
            self._with(
                tables=self._tables("public.orders", default),
                publication=settings.publication or settings.slot,
            )
            return PostgresSource(self._settings)

    def _check(self, where: str) -> None:
        does = "checking the source"
        asked(self._settings, where, does, lambda: self._ask_to_check(where, does))

    def _ask_to_check(self, where: str, does: str) -> None:
        settings = self._settings
        with (
            errors(settings, where, does),
            connect(settings, where, is_look=True) as connection,
        ):
            check_server(connection, settings, where)
            for table in settings.tables:
                check_table(connection, table, settings.mode, where)
            check_publication(connection, settings, self._reflected().shapes, where)
            self._check_slot_is_free(connection, where)

    def _look(self, where: str) -> Reflected:
        does = "reading the catalog"
        return asked(self._settings, where, does, lambda: self._ask_to_look(where, does))

    def _ask_to_look(self, where: str, does: str) -> Reflected:
        settings = self._settings
        with errors(settings, where, does), connect(settings, where) as connection:
            (lsn,) = connection.execute(
                "SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE "
                "pg_current_wal_insert_lsn() - '0/0'::pg_lsn END"
            ).fetchone()
            shapes = tuple(shape_of(connection, one, where) for one in settings.tables)
        return Reflected(shapes, int(lsn))

    def _driver_side(self, shapes: Sequence[TableShape], where: str) -> PostgresDriverSide:
        return PostgresDriverSide(self._settings, shapes, where)

    def _reader_side(self, found: Reflected, maker: RecordMaker, where: str) -> PostgresReaderSide:
        return PostgresReaderSide(self._settings, found.shapes, maker, found.end, where)

    def _check_slot_is_free(self, connection: Any, where: str) -> None:
        """The reader of a job that has just ended may hold it for a moment."""
        deadline_s = time.monotonic() + _IN_USE_S
        while (slot := check_slot(connection, self._settings, where)) and slot.is_active:
            if time.monotonic() > deadline_s:
                raise ConfigurationError(
                    f"{where}: the slot {self._settings.slot!r} is in use, by the server's process "
                    f"{slot.pid}. Each job needs a slot of its own: set another slot_name, or "
                    "stop the job that has it."
                )
            time.sleep(0.1)
            progress()
