"""The driver's side of a MySQL source: it says where the binlog ends now, and cuts ranges."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.connectors.cdc.database import Begin, DriverSide
from penstock.connectors.cdc.mysql.catalog import binlog_end
from penstock.connectors.cdc.mysql.columns import WHOLE
from penstock.connectors.cdc.mysql.connection import MySqlSettings, ask, connect, errors, quoted
from penstock.connectors.cdc.splits import TableId


class BinlogPosition(NamedTuple):
    """`position`: in the file, behind the last transaction that was read to its end.

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

    _settings: MySqlSettings

    def begin(self) -> Begin:
        startup = self._settings.startup
        if startup.mode == "specific-offset":
            return Begin(BinlogPosition(startup.file, startup.position), has_snapshot=False)
        with errors(self._settings, self._where, "telling where its binlog is"):
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
        behind = "" if low is None else f"WHERE {name} > {int(low)}"
        # ruff: ignore[hardcoded-sql-expression] - names are quoted, the others are numbers
        query = f"SELECT {name} FROM {place} {behind} ORDER BY {name} LIMIT 1 OFFSET {int(rows)}"
        with errors(self._settings, self._where, f"cutting {table} into ranges"):
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
            except Exception:  # whatever it is, a new connection tells it
                self._open = None
        if self._open is None:
            self._open = connect(self._settings, self._where)
        return self._open
