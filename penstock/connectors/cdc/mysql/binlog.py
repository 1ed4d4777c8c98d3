"""The stream of changes of a MySQL source: the binlog from a position, as a replica gets it, by `mysql-replication`.

The position in checkpoints is the end of the last transaction that was read whole, and within the next one the event
up to which it was read: an event can be understood only behind those that begin its transaction.
Source: MySQL's COM_BINLOG_DUMP and its events; Flink CDC BinlogOffset (file, pos, events to skip).
"""

from __future__ import annotations

import logging
import random
import select
import threading
import time
from typing import Any, Final

from penstock.common.extras import extra
from penstock.connectors.api.base import Batch, RefusedForGood
from penstock.connectors.cdc.database import ChangeStream
from penstock.connectors.cdc.mysql.changes import ChangeReader
from penstock.connectors.cdc.mysql.connection import EXTRA, MySqlSettings, arguments, failure
from penstock.connectors.cdc.mysql.driver import BinlogPosition, file_number
from penstock.connectors.cdc.records import NOTHING, Change, RecordMaker
from penstock.connectors.cdc.splits import StreamSplit

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
    """Behind the first key of a statement's variables: go on behind all of them.

    Nobody here needs them, and the client fails at one that it does not know, as MariaDB 11.8 and MySQL 9.7 write.
    """
    event.packet.advance(event.status_vars_length - 1)


class BinlogStream(ChangeStream):
    """Reads the binlog from a position. It connects when it is polled, and again when the connection breaks."""

    def __init__(
        self,
        settings: MySqlSettings,
        reader: ChangeReader,
        maker: RecordMaker,
        position: BinlogPosition,
        where: str,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._maker = maker
        self._where = where
        self._events = extra("pymysqlreplication.event", EXTRA, where)
        # ruff: ignore[private-member-access] - the client has no other place for it
        self._events.QueryEvent._read_status_vars_value_for_key = _pass_over
        self._row_events = extra("pymysqlreplication.row_event", EXTRA, where)
        self._client: Any = None
        self._connections: list[Any] = []
        self._position = position
        self._told = position
        self._end = 0
        self._is_inside = False
        self._broken_since_s: float | None = None
        self._pause = threading.Event()

    # ------------------------------------------------------------------ contract

    def poll(self) -> tuple[Batch, StreamSplit] | None:
        if self._client is None:
            self._connect()
        changes: list[Change] = []
        try:
            self._read(changes)
            self._broken_since_s = None
        except (_Broken, OSError, extra("pymysql", EXTRA, self._where).MySQLError) as error:
            self._lose(error)
        if self._position == self._told:
            return None
        self._told = self._position
        batch = self._maker.batch(changes) if changes else NOTHING
        return batch, StreamSplit(self._position, self._reader.pieces)

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

        MariaDB 11.8 tells it only of the first and the last event of a transaction, 10.11 of all. Each of those between
        counts as one byte: their order is what matters. It is the same each time, as long as the client is asked for the same
        kinds of events: a checkpoint may have such a position.
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
        told = failure(self._settings, self._where, "streaming its binlog", error)
        is_broken = isinstance(error, _Broken | OSError)
        if isinstance(told, RefusedForGood) and not is_broken:
            raise told from error
        now_s = time.monotonic()
        if self._broken_since_s is None:
            self._broken_since_s = now_s
            # As text: a handler that keeps the record would keep the connection.
            _LOG.warning("%s Connecting again.", str(told))
        elif now_s > self._broken_since_s + _RETRY_S:
            raise told from error

    def _connect(self) -> None:
        if self._broken_since_s is not None:
            age_s = time.monotonic() - self._broken_since_s
            self._pause.wait(min(max(age_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S))
        events, rows = self._events, self._row_events
        stream = extra("pymysqlreplication", EXTRA, self._where).BinLogStreamReader
        self._is_inside = False
        self._client = stream(
            arguments(self._settings),
            # One that another replica has would end that one's connection.
            self._settings.server_id or random.randrange(1 << 30, 1 << 31),
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
