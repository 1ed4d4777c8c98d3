"""MySqlSource: tables of MySQL or MariaDB and their changes, exactly once. Needs `penstock[mysql-cdc]`.

Source: Flink CDC's MySqlSource; differs: without Debezium, Rows by default, the snapshot's ranges and the binlog fit without
a second reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, ClassVar, Final, Self

from penstock.connectors.cdc.database import ChangeStream, ReaderSide
from penstock.connectors.cdc.mysql.binlog import BinlogStream
from penstock.connectors.cdc.mysql.catalog import binlog_end, check_readable, check_server, shape_of
from penstock.connectors.cdc.mysql.changes import ChangeReader
from penstock.connectors.cdc.mysql.connection import MySqlSettings, connect, errors
from penstock.connectors.cdc.mysql.driver import MySqlDriverSide, file_number
from penstock.connectors.cdc.mysql.snapshot import BinlogView, RangeReader
from penstock.connectors.cdc.options import CdcBuilder
from penstock.connectors.cdc.records import RecordMaker
from penstock.connectors.cdc.source import CdcSource, Reflected
from penstock.connectors.cdc.splits import StreamSplit
from penstock.connectors.cdc.tables import TableShape

_NAME: Final = "MySqlSource"
_MOST_ID: Final = (1 << 32) - 1


class MySqlReaderSide(ReaderSide):
    ranges = RangeReader

    def changes(self, split: StreamSplit) -> ChangeStream:
        reader = ChangeReader(
            self._shapes,
            split.pieces,
            ignores_truncate=self._settings.ignores_truncate,
            reflected=self._reflected,
            where=self._where,
        )
        return BinlogStream(self._settings, reader, self._maker, split.position, self._where)


class MySqlSource(CdcSource):
    """Reads tables of MySQL or MariaDB as they are, and then their changes. Not in PyFlink.

    Build it with `MySqlSource.builder()`. Its type is that of the tables' rows. A record's timestamp is the time of the
    change in epoch ms (whole seconds), and for rows of the snapshot when they were read.
    """

    name = _NAME
    connector = "mysql"
    view = BinlogView
    _settings: MySqlSettings

    @staticmethod
    def builder() -> MySqlSource.Builder:
        """Return a builder."""
        return MySqlSource.Builder()

    class Builder(CdcBuilder):
        """Builds a MySqlSource; the setters return the builder."""

        name = _NAME
        modes: ClassVar = ("initial", "latest", "never", "specific-offset")

        begin = MySqlSettings
        _databases: tuple[str, ...] = ()

        def database_list(self, *databases: str) -> Self:
            """Set the database of tables that are named without one; of several, the tables are named with theirs."""
            self._databases = databases
            return self

        def table_list(self, *tables: str) -> Self:
            """Set the tables, as "database.table". They need a primary key, and InnoDB."""
            self._names = tables
            return self

        def server_id(self, server_id: int) -> Self:
            """Set the id of this replica, which no other has; by default a random one above 2^30."""
            return self._with_number("server_id", 1, _MOST_ID, server_id=server_id)

        def lock_tables(self, *, locks: bool = True) -> Self:
            """Have MariaDB's snapshots taken as MySQL's: while the table is locked for reading."""
            return self._with(locks=locks)

        def connection_parameters(self, parameters: dict[str, Any]) -> Self:
            """Set more arguments of PyMySQL's connect, such as {"ssl_ca": "/etc/ca.pem"} or {"unix_socket": path}."""
            return self._with(parameters=dict(parameters))

        def build(self) -> MySqlSource:
            self._complete(host='hostname("db-1")', user='username("jobs")')
            default = self._databases[0] if len(self._databases) == 1 else None
            self._with(tables=self._tables("shop.orders", default))
            return MySqlSource(self._settings)

    def _check(self, where: str) -> None:
        settings = self._settings
        with (
            errors(settings, where, "checking the source"),
            closing(connect(settings, where, is_look=True)) as connection,
        ):
            check_server(connection, settings, where)
            for table in settings.tables:
                check_readable(connection, table, settings, where)

    def _look(self, where: str) -> Reflected:
        settings = self._settings
        with (
            errors(settings, where, "reading the catalog"),
            closing(connect(settings, where)) as connection,
        ):
            check_server(connection, settings, where)
            shapes = tuple(shape_of(connection, one, where) for one in settings.tables)
            file, position = binlog_end(connection)
        return Reflected(shapes, (file_number(file), position))

    def _driver_side(self, shapes: Sequence[TableShape], where: str) -> MySqlDriverSide:
        return MySqlDriverSide(self._settings, shapes, where)

    def _reader_side(self, found: Reflected, maker: RecordMaker, where: str) -> MySqlReaderSide:
        return MySqlReaderSide(self._settings, found.shapes, maker, found.end, where)
