"""MySqlSource: tables of MySQL or MariaDB and their changes, exactly once. Needs `penstock[mysql-cdc]`.

Source: Flink CDC's MySqlSource; differs: without Debezium, Rows by default, the snapshot's ranges and the binlog fit without
a second reading.
"""

from __future__ import annotations

import logging
import random
import select
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Self

from penstock.common.extras import extra
from penstock.connectors.api.base import Batch, RefusedForGood
from penstock.connectors.cdc.mysql.catalog import (
    EXTRA,
    MySqlSettings,
    arguments,
    ask,
    binlog_end,
    check_readable,
    check_server,
    connect,
    errors,
    failure,
    is_mariadb,
    quoted,
    shape_of,
)
from penstock.connectors.cdc.mysql.changes import ChangeReader
from penstock.connectors.cdc.mysql.columns import WHOLE, ValueReader, ordered, selected
from penstock.connectors.cdc.options import CdcBuilder
from penstock.connectors.cdc.records import NOTHING, Change, TableReading
from penstock.connectors.cdc.source import (
    Begin,
    CdcSource,
    ChangeStream,
    DriverSide,
    RangeReader,
    Reflected,
)
from penstock.connectors.cdc.tables import SnapshotSplit, TableId, TableShape
from penstock.engine.model.errors import ExternalError

# ---------------------------------------------------------------------- driver
# The driver's side of a MySQL source: it says where the binlog ends now, and cuts ranges.


class BinlogPosition(NamedTuple):
    """`position`: in the file, after the last transaction that was read to its end.

    `event`: the end of the last event of the next transaction that was read; 0: none.
    """

    file: str
    position: int
    event: int = 0


def file_number(file: str) -> int:
    """The number at the end of a binlog's name, which grows."""
    return int(file.rpartition(".")[2])


class MySqlDriverSide(DriverSide):
    """Says where the binlog ends now, and cuts ranges."""

    settings: MySqlSettings

    def begin(self) -> Begin:
        startup = self.settings.startup
        if startup.mode == "specific-offset":
            return Begin(BinlogPosition(startup.file, startup.position), has_snapshot=False)
        with errors(self.settings, self._where, "telling where its binlog is"):
            connection = self._connected()
            if startup.mode == "never":
                first = ask(connection, "SHOW BINARY LOGS")[0][0]
                return Begin(BinlogPosition(str(first), 4), has_snapshot=False)
            position = BinlogPosition(*binlog_end(connection))
        return Begin(position, has_snapshot=startup.mode == "initial")

    def next_bound(self, table: TableId, low: Any, rows: int) -> Any:
        shape = self._shapes[table]
        column = shape.columns[shape.key[0]]
        if column.kind not in WHOLE:
            return None  # read as one range, in an order that does not depend on collations
        name, place = quoted(column.name), quoted(*table)
        condition = "" if low is None else f"WHERE {name} > {int(low)}"
        # ruff: ignore[hardcoded-sql-expression] - names are quoted, the others are numbers
        query = f"SELECT {name} FROM {place} {condition} ORDER BY {name} LIMIT 1 OFFSET {int(rows)}"
        with errors(self.settings, self._where, f"cutting {table} into ranges"):
            found = ask(self._connected(), query)
        return None if not found else int(found[0][0])

    def close(self) -> None:
        connection, self._open = self._open, None
        if connection is not None and connection.open:
            connection.close()

    def _connected(self) -> Any:
        """A server closes connections that idle, and a job may take long to ask for its next range."""
        if self._open is not None:
            try:
                self._open.ping(reconnect=False)
            except Exception:  # whatever it is, a new connection reports it
                self._open = None
        if self._open is None:
            self._open = connect(self.settings, self._where)
        return self._open


# ---------------------------------------------------------------------- binlog
# The stream of changes of a MySQL source: the binlog from a position, as a replica gets it, by
# `mysql-replication`.
#
# The position in checkpoints is the end of the last transaction that was read whole, and within
# the next one the event up to which it was read: an event can be understood only after those
# that begin its transaction. Source: MySQL's COM_BINLOG_DUMP and its events; Flink CDC
# BinlogOffset (file, pos, events to skip).


_LOG: Final = logging.getLogger(__name__)
_CHANGES: Final = 1000
_HEARTBEAT_S: Final = 0.1
_READ_S: Final = 0.1
_RETRY_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_STANDALONE: Final = 1
"""The flag of a MariaDB GTID whose event group is one statement."""
_CONNECTIONS: Final = 2
"""That the client opens: for the binlog, and for questions."""


class _Broken(Exception):
    """The client would connect again by itself, at a place that is not ours."""


def _pass_over(event: Any, _key: int) -> None:
    """Skip all of a statement's variables after the first key.

    Nobody here needs them, and the client fails at one that it does not know, as MariaDB 11.8 and
    MySQL 9.7 write.
    """
    event.packet.advance(event.status_vars_length - 1)


class BinlogStream(ChangeStream):
    """Reads the binlog from a position. It connects when it is polled, and again when the connection breaks."""

    def __init__(self, reading: TableReading, reader: Any, position: BinlogPosition) -> None:
        super().__init__(reading, reader, position)
        where = self._where
        self._events = extra("pymysqlreplication.event", EXTRA, where)
        # ruff: ignore[private-member-access] - the client has no other place for it
        self._events.QueryEvent._read_status_vars_value_for_key = _pass_over
        self._row_events = extra("pymysqlreplication.row_event", EXTRA, where)
        self._client: Any = None
        self._connections: list[Any] = []
        self._end = 0
        self._is_inside = False
        self._broken_since_s: float | None = None
        self._pause = threading.Event()

    # ------------------------------------------------------------------ contract

    def _fill(self, changes: list[Change]) -> None:
        if self._client is None:
            self._connect()
        try:
            self._read(changes)
            self._broken_since_s = None
        except (_Broken, OSError, extra("pymysql", EXTRA, self._where).MySQLError) as error:
            self._lose(error)

    def close(self) -> None:
        """Closes the sockets, not politely: the server sends without end."""
        self._client = None
        connections, self._connections = self._connections, []
        for connection in connections:
            if connection.open:
                connection.close()

    # ------------------------------------------------------------------ reading

    def _read(self, changes: list[Change]) -> None:
        """What is there, up to some rows, and not for long: most events may be of others, or seen already.

        Without anything the server's next heartbeat ends it.
        """
        deadline_s = time.monotonic() + _READ_S
        events, rows = self._events, self._row_events
        ops = {
            rows.WriteRowsEvent: "c",
            rows.UpdateRowsEvent: "u",
            rows.DeleteRowsEvent: "d",
        }
        while len(changes) < _CHANGES and time.monotonic() < deadline_s:
            event = self._client.fetchone()
            if event is None:
                raise _Broken("the server ended the stream")
            kind = type(event)
            if kind is events.HeartbeatLogEvent:
                return
            if kind in ops:
                self._take_rows(ops[kind], event, changes)
            elif self._take(kind, event) and not self._has_more():
                return

    def _take_rows(self, op: str, event: Any, changes: list[Change]) -> None:
        file, start, done = self._position
        end = self._end_of(event)
        if end <= done or not self._reader.is_ours(event.schema, event.table):
            return
        changes += self._reader.changes(op, event, (file_number(file), end))
        self._position = BinlogPosition(file, start, end)

    def _take(self, kind: type, event: Any) -> bool:
        """Any other event. Returns whether it ends a transaction."""
        events = self._events
        if kind is events.RotateEvent:
            if event.next_binlog != self._position.file:
                self._position = BinlogPosition(event.next_binlog, int(event.position))
            return False
        mark = (file_number(self._position.file), self._end_of(event))
        if kind is events.MariadbGtidEvent:
            self._is_inside = not event.flags & _STANDALONE
            return False
        if kind is events.XAPrepareEvent:
            raise RefusedForGood(
                f"{self._where}: the binlog has an XA transaction, whose rows stand before anybody "
                "knows whether it is committed. This source cannot read them."
            )
        if kind is events.QueryEvent:
            text = event.query.strip()
            word = text.rstrip(";").upper()
            if word in {"BEGIN", "START TRANSACTION"}:
                self._is_inside = True
                return False
            if word not in {"COMMIT", "ROLLBACK"}:
                self._reader.query(text, event.schema.decode(), mark)
                if self._is_inside:
                    return False
        self._is_inside = False
        self._position = BinlogPosition(self._position.file, event.packet.log_pos)
        return True

    def _end_of(self, event: Any) -> int:
        """Where an event ends.

        MariaDB 11.8 gives it only for the first and the last event of a transaction, 10.11 for all.
        Each event between counts as one byte, because only their order matters. The end is the same
        each time, as long as the client is asked for the same kinds of events: a checkpoint may
        have such a position.
        """
        self._end = event.packet.log_pos or self._end + 1
        return self._end

    def _has_more(self) -> bool:
        """Whether more has come already, as far as the socket knows."""
        # ruff: ignore[private-member-access] - PyMySQL gives it to nobody
        sock = self._connections[0]._sock
        return bool(select.select([sock], [], [], 0)[0])

    # ------------------------------------------------------------------ connections

    def _lose(self, error: BaseException) -> None:
        """The next poll connects again. Raises: ExternalError: that has failed for a minute, or cannot succeed."""
        self.close()
        refusal = failure(self.settings, self._where, "streaming its binlog", error)
        is_broken = isinstance(error, _Broken | OSError)
        if isinstance(refusal, RefusedForGood) and not is_broken:
            raise refusal from error
        now_s = time.monotonic()
        if self._broken_since_s is None:
            self._broken_since_s = now_s
            # As text: a handler that keeps the record would keep the connection.
            _LOG.warning("%s Connecting again.", str(refusal))
        elif now_s > self._broken_since_s + _RETRY_S:
            raise refusal from error

    def _connect(self) -> None:
        if self._broken_since_s is not None:
            age_s = time.monotonic() - self._broken_since_s
            self._pause.wait(min(max(age_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S))
        events, rows = self._events, self._row_events
        stream = extra("pymysqlreplication", EXTRA, self._where).BinLogStreamReader
        self._is_inside = False
        self._client = stream(
            arguments(self.settings),
            # One that another replica has would end that one's connection.
            self.settings.server_id or random.randrange(1 << 30, 1 << 31),
            resume_stream=True,
            blocking=True,
            log_file=self._position.file,
            log_pos=self._position.position,
            slave_heartbeat=_HEARTBEAT_S,
            enable_logging=False,
            pymysql_wrapper=self._opened,
            only_events=[
                rows.WriteRowsEvent,
                rows.UpdateRowsEvent,
                rows.DeleteRowsEvent,
                events.RotateEvent,
                events.QueryEvent,
                events.XidEvent,
                events.XAPrepareEvent,
                events.MariadbGtidEvent,
                events.HeartbeatLogEvent,
            ],
        )

    def _opened(self, **given: Any) -> Any:
        """Opens a connection for the client, which would also connect again when one breaks."""
        if len(self._connections) == _CONNECTIONS:
            raise _Broken("the connection broke")
        if "db" in given:  # its old name, of which PyMySQL warns
            given["database"] = given.pop("db")
        connection = extra("pymysql", EXTRA, self._where).connect(**given)
        self._connections.append(connection)
        return connection


# ---------------------------------------------------------------------- snapshot
# Reads ranges of MySQL's or MariaDB's tables, each in a transaction whose place in the binlog is
# known exactly.
#
# MariaDB reports the place of a consistent snapshot. MySQL does not: there the table is locked for
# reading while the snapshot is taken, which waits for open transactions that have written to the
# table, and takes a moment. Source: MariaDB's START TRANSACTION WITH CONSISTENT SNAPSHOT and
# binlog_snapshot_position; MySQL's LOCK TABLES.


_ROWS: Final = 1000
_LOCK_S: Final = 60
"""How long LOCK TABLES waits. Until it is given, new writers of the table wait, too."""
_LOCK_WAIT_TIMEOUT: Final = 1205
_BEGIN: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"


@dataclass(frozen=True, slots=True)
class BinlogView:
    """A snapshot that saw what the binlog has up to a position. `end`: number of the file, position."""

    end: tuple[int, int]

    @property
    def plain(self) -> tuple[Any, ...]:
        return (self.end,)

    def covers(self, mark: tuple[int, int]) -> bool:
        """`mark`: the end of the change's event."""
        return mark <= self.end

    def is_passed(self, mark: tuple[int, int]) -> bool:
        return mark > self.end


class MySqlRangeReader(RangeReader):
    """Reads ranges by a cursor that streams."""

    def rows(
        self, split: SnapshotSplit, shape: TableShape
    ) -> Iterator[tuple[Batch, SnapshotSplit]]:
        values = ValueReader(shape, self._where)
        does = f"reading {split.split_id}"
        kind = extra("pymysql.cursors", EXTRA, self._where).SSCursor
        with (
            errors(self.settings, self._where, does),
            closing(connect(self.settings, self._where, is_slow=True)) as connection,
        ):
            split = split.begun(self._view(connection, split.table))
            now_ms = time.time_ns() // 1_000_000
            query, given = _query(split, shape)
            with _streaming(connection, kind) as cursor:
                cursor.execute(query, given)
                while raw := cursor.fetchmany(_ROWS):
                    split = split.read(values.key(raw[-1]))
                    changes = [values.change("r", None, row, now_ms) for row in raw]
                    yield self._maker.batch(changes), split
        yield NOTHING, split.finished()

    def _view(self, connection: Any, table: TableId) -> BinlogView:
        """Begins the transaction."""
        ask(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if is_mariadb(connection) and not self.settings.locks:
            ask(connection, _BEGIN)
            found = dict(ask(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
            file, position = found["Binlog_snapshot_file"], int(found["Binlog_snapshot_position"])
            return BinlogView((file_number(file), position))
        with closing(connect(self.settings, self._where, is_slow=True)) as other:
            self._lock(other, table)
            ask(connection, _BEGIN)
            file, position = binlog_end(other)
            ask(other, "UNLOCK TABLES")
        return BinlogView((file_number(file), position))

    def _lock(self, connection: Any, table: TableId) -> None:
        """Raises: ExternalError: transactions that have written to the table stay open for too long."""
        pymysql = extra("pymysql", EXTRA, self._where)
        ask(connection, f"SET SESSION lock_wait_timeout = {_LOCK_S}")
        try:
            ask(connection, f"LOCK TABLES {quoted(*table)} READ")
        except pymysql.MySQLError as error:
            if error.args[0] != _LOCK_WAIT_TIMEOUT:
                raise
            raise ExternalError(
                f"{self._where}: the lock on {table} for its snapshot was not given within "
                f"{_LOCK_S} s, because transactions that have used the table are still open. Find "
                "them in information_schema.INNODB_TRX (trx_started, trx_mysql_thread_id), and "
                "end them: KILL the thread."
            ) from error


def _query(split: SnapshotSplit, shape: TableShape) -> tuple[str, tuple[Any, ...]]:
    names = ", ".join(selected(column, _escaped(column.name)) for column in shape.columns)
    first = _escaped(shape.columns[shape.key[0]].name)
    keys = ", ".join(
        ordered(shape.columns[place], _escaped(shape.columns[place].name)) for place in shape.key
    )
    terms: list[str] = []
    given: list[Any] = []
    if split.low is not None:
        terms.append(f"{first} >= %s")
        given.append(split.low)
    if split.high is not None:
        terms.append(f"{first} < %s")
        given.append(split.high)
    if split.after is not None:
        if shape.columns[shape.key[0]].kind in WHOLE:
            terms.append(f"{first} >= %s")
            given.append(split.after[0])
        terms.append(f"({keys}) > ({', '.join(['%s'] * len(split.after))})")
        given += split.after
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    # ruff: ignore[hardcoded-sql-expression] - names are quoted, values are bound
    query = f"SELECT {names} FROM {_escaped(*shape.table)}{where} ORDER BY {keys}"
    return query, tuple(given)


def _escaped(*names: str) -> str:
    """A name as SQL in which PyMySQL puts values for %s."""
    return quoted(*names).replace("%", "%%")


@contextmanager
def _streaming(connection: Any, kind: type) -> Generator[Any]:
    """A cursor that reads rows as they are asked for. If it is left before the end, so is the connection."""
    cursor = connection.cursor(kind)
    try:
        yield cursor
    except BaseException:
        # ruff: ignore[private-member-access] - else it reads all rows that are left
        result = cursor._result
        if result is not None:
            result.unbuffered_active = False
        raise
    cursor.close()


# ---------------------------------------------------------------------- source


_NAME: Final = "MySqlSource"
_MOST_ID: Final = (1 << 32) - 1


class MySqlSource(CdcSource):
    """Reads tables of MySQL or MariaDB as they are, and then their changes. Not in PyFlink.

    Build it with `MySqlSource.builder()`. Its type is that of the tables' rows. A record's timestamp is the time of the
    change in epoch ms (whole seconds), and for rows of the snapshot when they were read.
    """

    name = _NAME
    connector = "mysql"
    view = BinlogView
    driver_side = MySqlDriverSide
    range_reader = MySqlRangeReader
    change_reader = ChangeReader
    change_stream = BinlogStream
    settings: MySqlSettings

    @staticmethod
    def builder() -> MySqlSource.Builder:
        """Return a builder."""
        return MySqlSource.Builder()

    class Builder(CdcBuilder):
        """Builds a MySqlSource; the setters return the builder."""

        name = _NAME
        modes: ClassVar = ("initial", "latest", "never", "specific-offset")

        begin = MySqlSettings

        def database_list(self, *databases: str) -> Self:
            """Set the database of tables that are named without one; of several, the tables are named with theirs."""
            self._schemas = databases
            return self

        def server_id(self, server_id: int) -> Self:
            """Set the id of this replica, which no other has; by default a random one above 2^30."""
            return self._with_number("server_id", 1, _MOST_ID, server_id=server_id)

        def lock_tables(self, *, locks: bool = True) -> Self:
            """Have MariaDB's snapshots taken as MySQL's: while the table is locked for reading."""
            return self._with(locks=locks)

        def build(self) -> MySqlSource:
            self._complete(host='hostname("db-1")', user='username("jobs")')
            self._with(tables=self._tables("shop.orders", None))
            return MySqlSource(self.settings)

    def _check(self, where: str) -> None:
        settings = self.settings
        with (
            errors(settings, where, "checking the source"),
            closing(connect(settings, where, is_look=True)) as connection,
        ):
            check_server(connection, settings, where)
            for table in settings.tables:
                check_readable(connection, table, settings, where)

    def _look(self, where: str) -> Reflected:
        settings = self.settings
        with (
            errors(settings, where, "reading the catalog"),
            closing(connect(settings, where)) as connection,
        ):
            check_server(connection, settings, where)
            shapes = tuple(shape_of(connection, one, where) for one in settings.tables)
            file, position = binlog_end(connection)
        return Reflected(shapes, (file_number(file), position))
