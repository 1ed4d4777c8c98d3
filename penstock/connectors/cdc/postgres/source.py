"""PostgresSource: tables of PostgreSQL and their changes, exactly once. Needs psycopg (`penstock[postgres-cdc]`).

Source: Flink CDC's PostgresSourceBuilder (PostgresIncrementalSource); differs: without Debezium, Rows by default, the
snapshot's ranges and the stream fit without a second reading.
"""

from __future__ import annotations

import logging
import re
import select
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar

from penstock.common.extras import extra
from penstock.connectors.api.base import RefusedForGood
from penstock.connectors.cdc.options import CdcBuilder
from penstock.connectors.cdc.postgres import pgoutput
from penstock.connectors.cdc.postgres.catalog import (
    EXTRA,
    PostgresSettings,
    asked,
    check_publication,
    check_server,
    check_slot,
    check_table,
    connect,
    errors,
    failure,
    find_slot,
    publication_exists,
    shape_of,
)
from penstock.connectors.cdc.postgres.changes import ChangeReader
from penstock.connectors.cdc.postgres.columns import WHOLE
from penstock.connectors.cdc.postgres.snapshot import PostgresRangeReader, TransactionView
from penstock.connectors.cdc.records import Change, TableReading
from penstock.connectors.cdc.source import (
    Begin,
    CdcSource,
    ChangeStream,
    DriverSide,
    Reflected,
)
from penstock.connectors.cdc.tables import TableId
from penstock.engine.hosting.os.clock import NoAnswer, progress
from penstock.engine.model.errors import ConfigurationError, ExternalError

# ---------------------------------------------------------------------- driver
# The driver's side of a PostgreSQL source: it makes publication and slot, says where the stream
# begins, and cuts ranges.


_CREATE_S: Final = 60

T = TypeVar("T")


class LsnPosition(NamedTuple):
    """`lsn`: after the last transaction that was read to its end. `skip`: changes of the next one
    that were read.
    """

    lsn: int
    skip: int = 0


class PostgresDriverSide(DriverSide):
    """Makes publication and slot, says where the stream begins, and cuts ranges."""

    settings: PostgresSettings

    def begin(self) -> Begin:
        return self._asked("looking where the stream begins", self._begin)

    def _begin(self) -> Begin:
        """Make what is missing: first the publication, for a slot cannot read WAL from before it.

        The stream begins with what the WAL gets from now on. A change that is committed earlier is in every snapshot
        once all transactions of now have ended; the horizon is the first that may not have begun.
        """
        settings = self.settings
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
        with errors(self.settings, self._where, does):
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
        slot = self.settings.slot
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
        tables = sql.SQL(", ").join(sql.Identifier(*table) for table in self.settings.tables)
        connection.execute(
            sql.SQL(
                "CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)"
            ).format(sql.Identifier(self.settings.publication), tables)
        )

    def _asked(self, does: str, call: Callable[[], T]) -> T:
        """A connection that has not answered is closed, which ends the call that waits on it."""
        try:
            return asked(self.settings, self._where, does, call)
        except NoAnswer:
            self.close()
            raise

    def _connected(self) -> Any:
        if self._open is not None and self._open.closed:
            self._open = None
        if self._open is None:
            self._open = connect(self.settings, self._where)
        return self._open


# ---------------------------------------------------------------------- replication
# The stream of changes of a PostgreSQL source: START_REPLICATION on a connection of its own, read
# without blocking for long.
#
# The position in checkpoints is the end of the last transaction that was read whole, and how many
# changes of the next one were read: the server always sends whole transactions, in the same
# order. Only what complete checkpoints cover is confirmed to the server, which keeps the WAL
# after it. Source: PostgreSQL's documentation, "Streaming Replication Protocol"; pg_recvlogical
# for what a keepalive confirms.


_LOG: Final = logging.getLogger(__name__)
_CHANGES: Final = 1000
_BYTES: Final = 1 << 20
_WAIT_S: Final = 0.1
_STATUS_EVERY_S: Final = 5.0
_RETRY_S: Final = 60.0
"""How long a server that is away, or a slot that its last reader still holds, is waited for."""
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 2.0
_XLOG_DATA: Final = struct.Struct("!xqqq")
_KEEPALIVE: Final = struct.Struct("!xqqB")
_STATUS: Final = struct.Struct("!cqqqqB")


class ReplicationStream(ChangeStream):
    """Reads one slot, from a position. It connects when it is polled, and again when the connection breaks."""

    def __init__(self, reading: TableReading, reader: Any, position: LsnPosition) -> None:
        super().__init__(reading, reader, position)
        self._psycopg = extra("psycopg", EXTRA, self._where)
        self._connection: Any = None
        self._safe = position.lsn
        self._to_skip = 0
        self._is_inside = False
        self._next_status_s = 0.0
        self._heard_s = 0.0
        self._pause = threading.Event()

    # ------------------------------------------------------------------ contract

    def _fill(self, changes: list[Change]) -> None:
        if self._connection is None:
            self._connect()
        try:
            self._read(changes)
            if time.monotonic() >= self._next_status_s:
                self._confirm(wants_reply=True)
            self._check_heard()
        except self._psycopg.Error as error:
            # What was read before it stays: the position is after it already.
            self._lose(error)

    def acknowledge(self, position: LsnPosition) -> None:
        self._safe = max(self._safe, position.lsn)
        if self._connection is not None:
            try:
                self._confirm()
            except self._psycopg.Error as error:
                self._lose(error)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # ------------------------------------------------------------------ reading

    def _read(self, changes: list[Change]) -> None:
        """Adds what is there, up to some rows; waits a moment if there is nothing."""
        wire = self._connection.pgconn
        size = 0
        while len(changes) < _CHANGES and size < _BYTES:
            length, data = wire.get_copy_data(1)
            if length > 0:
                self._heard_s = time.monotonic()
                size += length
                self._take(bytes(data), changes)
            elif length < 0:
                raise self._ended(wire)
            elif self._position != self._reported or changes:
                break
            else:
                is_ready = bool(select.select([wire.socket], [], [], _WAIT_S)[0])
                if not is_ready:
                    break
                wire.consume_input()

    def _take(self, data: bytes, changes: list[Change]) -> None:
        if data[0] == 0x77:  # w: a message of the plugin
            self._take_message(pgoutput.decode(data[_XLOG_DATA.size :]), changes)
        elif data[0] == 0x6B:  # k: a keepalive
            end, _, wants_reply = _KEEPALIVE.unpack_from(data)
            # All that was committed before it has been sent: WAL without changes of ours is let go, too.
            is_between = not self._is_inside and not self._position.skip
            if is_between and end > self._position.lsn:
                self._position = LsnPosition(end)
            if wants_reply:
                self._confirm()

    def _take_message(self, message: pgoutput.Message, changes: list[Change]) -> None:
        if isinstance(message, pgoutput.Insert | pgoutput.Update | pgoutput.Delete):
            if self._is_new():
                changes += self._reader.changes(message)
        elif isinstance(message, pgoutput.Begin):
            self._is_inside = True
            self._reader.begin(message)
        elif isinstance(message, pgoutput.Commit):
            self._is_inside = False
            self._to_skip = 0
            self._position = LsnPosition(message.end_lsn)
        elif isinstance(message, pgoutput.Relation):
            self._reader.relation(message)
        elif isinstance(message, pgoutput.Truncate) and self._is_new():
            changes += self._reader.changes(message)

    def _is_new(self) -> bool:
        """Count a change. Returns whether it comes after those that were read before the connection
        began.
        """
        if self._to_skip:
            self._to_skip -= 1
            return False
        self._position = LsnPosition(self._position.lsn, self._position.skip + 1)
        return True

    def _ended(self, wire: Any) -> Exception:
        """The server has ended the stream."""
        result = wire.get_result()
        text = "" if result is None else result.error_message.decode(errors="replace")
        error: Exception = self._psycopg.OperationalError(text or "the server ended the stream")
        return error

    # ------------------------------------------------------------------ telling

    def _check_heard(self) -> None:
        """A server that lives replies to each status. Raises: psycopg's error: it has been silent for too long."""
        limit_s = self.settings.timeout_s
        if time.monotonic() > self._heard_s + limit_s:
            raise self._psycopg.OperationalError(f"no answer within {limit_s:g} s")

    def _confirm(self, *, wants_reply: bool = False) -> None:
        """Confirm what is safe. What is only read is reported as written, so that the server does
        not end the connection.
        """
        self._next_status_s = time.monotonic() + _STATUS_EVERY_S
        now_us = time.time_ns() // 1000 - pgoutput.EPOCH_US
        read = max(self._position.lsn, self._safe)
        wire = self._connection.pgconn
        wire.put_copy_data(_STATUS.pack(b"r", read, self._safe, self._safe, now_us, wants_reply))
        wire.flush()

    # ------------------------------------------------------------------ connections

    def _lose(self, error: BaseException) -> None:
        """The next poll connects again. Raises: RefusedForGood: another try cannot succeed."""
        self.close()
        refusal = failure(self.settings, self._where, "streaming", error)
        if isinstance(refusal, RefusedForGood):
            raise refusal from error
        _LOG.warning("%s Connecting again.", str(refusal))

    def _connect(self) -> None:
        """Raises: ExternalError: there is no connection, or the slot is in use, for a minute."""
        deadline_s = time.monotonic() + _RETRY_S
        pause_s = _FIRST_PAUSE_S
        while self._connection is None:
            try:
                self._connection = asked(
                    self.settings, self._where, "starting replication", self._start
                )
            except RefusedForGood:
                raise
            except ExternalError:
                if time.monotonic() > deadline_s:
                    raise
                self._pause.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._reader.reconnect()
        self._to_skip = self._position.skip
        self._is_inside = False
        self._next_status_s = 0.0
        self._heard_s = time.monotonic()

    def _start(self) -> Any:
        self._check_slot()
        settings, lsn = self.settings, self._position.lsn
        publication = settings.publication.replace('"', '""').replace("'", "''")
        command = (
            f'START_REPLICATION SLOT "{settings.slot}" LOGICAL {lsn >> 32:X}/{lsn & 0xFFFFFFFF:X} '
            f"(proto_version '1', publication_names '\"{publication}\"')"
        )
        connection = connect(settings, self._where, replicates=True)
        status = self._psycopg.pq.ExecStatus
        with errors(settings, self._where, f"starting replication of the slot {settings.slot!r}"):
            result = connection.pgconn.exec_(command.encode())
            if result.status != status.COPY_BOTH:
                connection.close()
                raise self._psycopg.errors.error_from_result(result)
            connection.pgconn.nonblocking = 1
        return connection

    def _check_slot(self) -> None:
        """Check the slot first: a server starts where the slot is, also if it was asked for an
        earlier position.
        """
        settings = self.settings
        with (
            errors(settings, self._where, "looking at the slot"),
            connect(settings, self._where) as connection,
        ):
            slot = find_slot(connection, settings)
        position = self._position.lsn
        if slot is None or slot.wal_status == "lost":
            what = "is gone" if slot is None else "was invalidated"
            raise RefusedForGood(
                f"{self._where}: the slot {settings.slot!r} {what}, and with it the WAL after "
                f"{shown_lsn(position)}. Begin anew with a snapshot."
            )
        if slot.confirmed > position:
            raise RefusedForGood(
                f"{self._where}: the slot {settings.slot!r} is confirmed up to "
                f"{shown_lsn(slot.confirmed)}, but the job continues at {shown_lsn(position)}, "
                "and the WAL between is gone. Restore a newer checkpoint, or begin anew with a "
                "snapshot."
            )


def shown_lsn(lsn: int) -> str:
    """As PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


# ---------------------------------------------------------------------- source


_NAME: Final = "PostgresSource"
_SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")
_IN_USE_S: Final = 5.0


class PostgresSource(CdcSource):
    """Reads tables of PostgreSQL as they are, and then their changes. Not in PyFlink.

    Build it with `PostgresSource.builder()`. Its type is that of the tables' rows. A record's timestamp is the time of
    the commit in epoch ms, and for rows of the snapshot when they were read.
    """

    name = _NAME
    connector = "postgresql"
    view = TransactionView
    driver_side = PostgresDriverSide
    range_reader = PostgresRangeReader
    change_reader = ChangeReader
    change_stream = ReplicationStream
    settings: PostgresSettings

    @staticmethod
    def builder() -> PostgresSource.Builder:
        """Return a builder."""
        return PostgresSource.Builder()

    class Builder(CdcBuilder):
        """Builds a PostgresSource; the setters return the builder."""

        name = _NAME
        modes: ClassVar = ("initial", "latest", "never")

        begin = PostgresSettings

        def database(self, database: str) -> Self:
            """Set the database."""
            return self._with_a(str, "database", database=database)

        def schema_list(self, *schemas: str) -> Self:
            """Set the schema of tables that are named without one; of several, the tables are named with theirs."""
            self._schemas = schemas
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

        def build(self) -> PostgresSource:
            settings = self._complete(
                host='hostname("db-1")',
                database='database("shop")',
                user='username("jobs")',
            )
            self._with(
                tables=self._tables("public.orders", "public"),
                publication=settings.publication or settings.slot,
            )
            return PostgresSource(self.settings)

    def _check(self, where: str) -> None:
        does = "checking the source"
        asked(self.settings, where, does, lambda: self._ask_to_check(where, does))

    def _ask_to_check(self, where: str, does: str) -> None:
        settings = self.settings
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
        return asked(self.settings, where, does, lambda: self._ask_to_look(where, does))

    def _ask_to_look(self, where: str, does: str) -> Reflected:
        settings = self.settings
        with errors(settings, where, does), connect(settings, where) as connection:
            (lsn,) = connection.execute(
                "SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE "
                "pg_current_wal_insert_lsn() - '0/0'::pg_lsn END"
            ).fetchone()
            shapes = tuple(shape_of(connection, one, where) for one in settings.tables)
        return Reflected(shapes, int(lsn))

    def _check_slot_is_free(self, connection: Any, where: str) -> None:
        """The reader of a job that has just ended may hold it for a moment."""
        deadline_s = time.monotonic() + _IN_USE_S
        while (slot := check_slot(connection, self.settings, where)) and slot.is_active:
            if time.monotonic() > deadline_s:
                raise ConfigurationError(
                    f"{where}: the slot {self.settings.slot!r} is in use, by the server's process "
                    f"{slot.pid}. Each job needs a slot of its own: set another slot_name, or "
                    "stop the job that has it."
                )
            time.sleep(0.1)
            progress()
