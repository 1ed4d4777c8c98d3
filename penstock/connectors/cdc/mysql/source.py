"""MySqlSource: tables of MySQL or MariaDB and their changes, exactly once. Needs `penstock[mysql-cdc]`.

Source: Flink CDC's MySqlSource; differs: without Debezium, Rows by default, the snapshot's ranges and the binlog fit without
a second reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Self

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import (
    Batch,
    Boundedness,
    EnumeratorContext,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from penstock.connectors.cdc.database import ChangeStream, ReaderSide
from penstock.connectors.cdc.enumerator import CdcEnumerator
from penstock.connectors.cdc.mysql.binlog import BinlogStream
from penstock.connectors.cdc.mysql.catalog import binlog_end, check_readable, check_server, shape_of
from penstock.connectors.cdc.mysql.changes import ChangeReader
from penstock.connectors.cdc.mysql.connection import MySqlSettings, connect, errors
from penstock.connectors.cdc.mysql.driver import MySqlDriverSide, file_number
from penstock.connectors.cdc.mysql.snapshot import BinlogView, RangeReader
from penstock.connectors.cdc.options import CdcBuilder, ChangelogMode
from penstock.connectors.cdc.reader import CdcReader
from penstock.connectors.cdc.records import (
    DEBEZIUM,
    METADATA_COLUMNS,
    DebeziumMaker,
    RecordMaker,
    RowMaker,
)
from penstock.connectors.cdc.splits import SnapshotSplit, StreamSplit
from penstock.connectors.cdc.tables import TableShape, common_row_type
from penstock.engine.model.errors import ConfigurationError, ExternalError

_NAME: Final = "MySqlSource"
_MOST_ID: Final = (1 << 32) - 1


class MySqlReaderSide(ReaderSide):
    """`reflected`: where the binlog ended when the shapes were read."""

    def __init__(
        self,
        settings: MySqlSettings,
        shapes: Sequence[TableShape],
        maker: RecordMaker,
        reflected: tuple[int, int],
        where: str,
    ) -> None:
        self._settings = settings
        self._shapes = {shape.table: shape for shape in shapes}
        self._maker = maker
        self._reflected = reflected
        self._where = where

    def rows(self, split: SnapshotSplit) -> Iterator[tuple[Batch, SnapshotSplit]]:
        reader = RangeReader(self._settings, self._maker, self._where)
        return reader.rows(split, self._shapes[split.table])

    def changes(self, split: StreamSplit) -> ChangeStream:
        settings = self._settings
        reader = ChangeReader(
            self._shapes,
            split.pieces,
            ignores_truncate=settings.ignores_truncate,
            reflected=self._reflected,
            where=self._where,
        )
        return BinlogStream(settings, reader, self._maker, split.position, self._where)


class Reflected(NamedTuple):
    """The tables as they were at `end` of the binlog: number of the file, position."""

    shapes: tuple[TableShape, ...]
    end: tuple[int, int]


class MySqlSource(Source):
    """Reads tables of MySQL or MariaDB as they are, and then their changes. Not in PyFlink.

    Build it with `MySqlSource.builder()`. Its type is that of the tables' rows. A record's timestamp is the time of the
    change in epoch ms (whole seconds), and for rows of the snapshot when they were read.
    """

    default_parallelism = 1

    def __init__(self, settings: MySqlSettings) -> None:
        """Use the builder."""
        self._settings = settings
        self._found: Reflected | None = None

    def __repr__(self) -> str:
        tables = ", ".join(map(str, self._settings.tables))
        return f"{_NAME}({self._settings}, {tables})"

    @staticmethod
    def builder() -> MySqlSource.Builder:
        """Return a builder."""
        return MySqlSource.Builder()

    class Builder(CdcBuilder):
        """Builds a MySqlSource; the setters return the builder."""

        name = _NAME
        modes: ClassVar = ("initial", "latest", "never", "specific-offset")

        def __init__(self) -> None:
            super().__init__(MySqlSettings())
            self._databases: tuple[str, ...] = ()

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
            is_whole = isinstance(server_id, int) and not isinstance(server_id, bool)
            if not is_whole or not 0 < server_id <= _MOST_ID:
                raise ConfigurationError(
                    f"{_NAME}.server_id: expected 1 to {_MOST_ID}, got {server_id!r}."
                )
            return self._with(server_id=server_id)

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

    # ------------------------------------------------------------------ contract

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        """The type of the records; the driver asks the database for it once."""
        return self._maker().produced_type

    def validate(self) -> None:
        """Check binlog, rights and tables. Raises ConfigurationError."""
        settings, where = self._settings, f"{_NAME} on the driver"
        self._maker()
        try:
            with errors(settings, where, "checking the source"):
                connection = connect(settings, where, is_look=True)
                try:
                    check_server(connection, settings, where)
                    for table in settings.tables:
                        check_readable(connection, table, settings, where)
                finally:
                    connection.close()
        except ExternalError as error:
            raise _unreachable(error) from error

    def create_enumerator(self, context: EnumeratorContext) -> SplitEnumerator:
        settings = self._settings
        where = f"{_NAME} on the driver"

        def open_database() -> MySqlDriverSide:
            return MySqlDriverSide(settings, self._reflected().shapes, where)

        return CdcEnumerator(
            context, settings.tables, open_database, settings.limits.chunk_rows, BinlogView
        )

    def create_reader(self, context: ReaderContext) -> SourceReader:
        where = f"{_NAME}, subtask {context.subtask()}"

        def open_database() -> ReaderSide:
            shapes, end = self._reflected()
            return MySqlReaderSide(self._settings, shapes, self._maker(), end, where)

        return CdcReader(context, open_database)

    # ------------------------------------------------------------------ inside

    def _reflected(self) -> Reflected:
        """The tables. The driver looks once, and the job's tasks get what it found."""
        if self._found is None:
            settings, where = self._settings, f"{_NAME} on the driver"
            try:
                with errors(settings, where, "reading the catalog"):
                    connection = connect(settings, where)
                    try:
                        check_server(connection, settings, where)
                        shapes = tuple(shape_of(connection, one, where) for one in settings.tables)
                        file, position = binlog_end(connection)
                    finally:
                        connection.close()
            except ExternalError as error:
                raise _unreachable(error) from error
            self._found = Reflected(shapes, (file_number(file), position))
        return self._found

    def _maker(self) -> RecordMaker:
        settings, shapes = self._settings, self._reflected().shapes
        if settings.form == DEBEZIUM:
            return DebeziumMaker("mysql", "", {shape.table: shape for shape in shapes})
        more = {name: METADATA_COLUMNS[name] for name in settings.metadata}
        row_type = common_row_type(shapes, more, _NAME)
        keeps_before = settings.mode is ChangelogMode.ALL
        return RowMaker(row_type, settings.metadata, "", keeps_before)


def _unreachable(error: ExternalError) -> ConfigurationError:
    return ConfigurationError(f"{error} The driver and all executors must reach the database.")
