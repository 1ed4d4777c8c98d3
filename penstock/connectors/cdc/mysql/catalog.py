"""What MySQL's or MariaDB's variables and catalog say; everything that would fail later is refused here.

Source: MySQL's manual, "Binary Logging Options and Variables"; MariaDB's knowledge base.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from penstock.common.extras import extra
from penstock.connectors.cdc.mysql.columns import encoding_of, key_part, type_of
from penstock.connectors.cdc.options import CdcSettings
from penstock.connectors.cdc.tables import Column, TableId, TableShape
from penstock.connectors.sql.engine import DriverError, driver_text, may_pass
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood

# ---------------------------------------------------------------------- connection
# Connections to MySQL and MariaDB by PyMySQL, and their errors in one line.


CONNECT_S: Final = 10
LOOK_S: Final = 5
READ_S: Final = 60
"""For one answer, where none needs long."""
EXTRA: Final = "mysql-cdc"
_TIMED_OUT: Final = "timed out"
_GONE: Final = 1236
"""ER_MASTER_FATAL_ERROR_READING_BINLOG: the file was purged, or the position is none."""


@dataclass(frozen=True, slots=True)
class MySqlSettings(CdcSettings):
    """What the builder collected. `parameters`: more of PyMySQL's, such as ssl_ca. `server_id`: 0: a random one."""

    port: int = 3306
    server_id: int = 0
    locks: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def arguments(
    settings: MySqlSettings, *, is_look: bool = False, is_slow: bool = False
) -> dict[str, Any]:
    """What `pymysql.connect` takes. `is_look`: it gives up soon. `is_slow`: for queries that may sort a whole table, or
    wait for a lock: nothing comes before they are done.
    """
    quick_s = min(READ_S, settings.timeout_s)
    return {
        "host": settings.host,
        "port": settings.port,
        "user": settings.user,
        "password": settings.password,
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": LOOK_S if is_look else CONNECT_S,
        "read_timeout": settings.timeout_s if is_slow else quick_s,
        "write_timeout": quick_s,
        **settings.parameters,
    }


def connect(
    settings: MySqlSettings, where: str, *, is_look: bool = False, is_slow: bool = False
) -> Any:
    """A connection in autocommit mode, whose times are in UTC. `is_look`, `is_slow`: as `arguments` has them.

    Raises: ConfigurationError: PyMySQL is missing. ExternalError: the server is not reached. RefusedForGood: it refuses.
    """
    pymysql = extra("pymysql", EXTRA, where)
    with errors(settings, where):
        connection = pymysql.connect(**arguments(settings, is_look=is_look, is_slow=is_slow))
        try:
            ask(connection, "SET SESSION time_zone = '+00:00', net_write_timeout = 3600")
        except BaseException:
            connection.close()
            raise
        return connection


def ask(connection: Any, query: str, values: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
    """The rows that a statement gives."""
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        found: tuple[Any, ...] = cursor.fetchall()
    return found


@contextmanager
def errors(settings: MySqlSettings, where: str, does: str = "") -> Generator[None]:
    """Raise errors of the server with one line of text.

    Raises: RefusedForGood: what another try cannot change. ExternalError: all else.
    """
    pymysql = extra("pymysql", EXTRA, where)
    try:
        yield
    except pymysql.MySQLError as error:
        raise failure(settings, where, does, error) from error


def failure(settings: MySqlSettings, where: str, does: str, error: BaseException) -> ExternalError:
    """The error to raise for one of PyMySQL's."""
    what = f" {does}" if does else ""
    text = f"{where}: the server {settings}{what} fails: {driver_text(error)}."
    if _TIMED_OUT in str(error):
        long_s = settings.timeout_s
        text += (
            f" It has {min(READ_S, long_s):g} s for one answer, and {long_s:g} s where a table is "
            "read: timeout(...) of the builder allows more."
        )
    if error.args and error.args[0] == _GONE:
        return RefusedForGood(
            f"{text} The binlog does not have the job's position any more. Keep it for longer "
            "(binlog_expire_logs_seconds), and begin anew with a snapshot."
        )
    return ExternalError(text) if may_pass(DriverError(error)) else RefusedForGood(text)


def quoted(*names: str) -> str:
    """A name, or schema and name, as SQL."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


# ---------------------------------------------------------------------- catalog


_EXPECTED: Final = {
    "log_bin": (("ON",), "start the server with --log-bin, and a server_id"),
    "binlog_format": (("ROW",), "SET GLOBAL binlog_format = 'ROW'"),
    "binlog_row_image": (("FULL",), "SET GLOBAL binlog_row_image = 'FULL'"),
    "binlog_row_metadata": (("FULL",), "SET GLOBAL binlog_row_metadata = 'FULL'"),
    "log_bin_compress": (("OFF", None), "SET GLOBAL log_bin_compress = OFF"),
    "binlog_transaction_compression": (
        ("OFF", None),
        "SET GLOBAL binlog_transaction_compression = OFF",
    ),
    "binlog_row_value_options": (("", None), "SET GLOBAL binlog_row_value_options = ''"),
}
_COLUMNS: Final = """
SELECT c.COLUMN_NAME, c.DATA_TYPE, c.COLUMN_TYPE, k.ORDINAL_POSITION,
  c.CHARACTER_SET_NAME
FROM information_schema.COLUMNS c
LEFT JOIN information_schema.KEY_COLUMN_USAGE k ON k.TABLE_SCHEMA = c.TABLE_SCHEMA
  AND k.TABLE_NAME = c.TABLE_NAME AND k.COLUMN_NAME = c.COLUMN_NAME
  AND k.CONSTRAINT_NAME = 'PRIMARY'
WHERE c.TABLE_SCHEMA = %s AND c.TABLE_NAME = %s ORDER BY c.ORDINAL_POSITION"""
_PARSE_ERROR: Final = 1064


def is_mariadb(connection: Any) -> bool:
    """Whether the server is MariaDB."""
    return "mariadb" in str(ask(connection, "SELECT VERSION()")[0][0]).lower()


def binlog_end(connection: Any) -> tuple[str, int]:
    """File and position of the binlog's end. Raises: PyMySQL's errors."""
    pymysql = extra("pymysql", EXTRA, "MySqlSource")
    try:
        found = ask(connection, "SHOW BINARY LOG STATUS")
    except pymysql.MySQLError as error:  # before MySQL 8.2
        if error.args[0] != _PARSE_ERROR:
            raise
        found = ask(connection, "SHOW MASTER STATUS")
    return str(found[0][0]), int(found[0][1])


def check_server(connection: Any, settings: MySqlSettings, where: str) -> None:
    """Raises: ConfigurationError: the server's binlog lacks something, or the user may not read it."""
    places = ", ".join(["%s"] * len(_EXPECTED))
    query = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({places})"
    variables = dict(ask(connection, query, tuple(_EXPECTED)))
    for name, (expected, remedy) in _EXPECTED.items():
        found = variables.get(name)
        if found not in expected:
            raise ConfigurationError(
                f"{where}: {name} of {settings} is {found!r}, expected {expected[0]!r}: {remedy}. "
                "Sessions that are open keep what they have."
            )
    grants = " ".join(grant for (grant,) in ask(connection, "SHOW GRANTS"))
    if "REPLICATION SLAVE" not in grants and "ALL PRIVILEGES ON *.*" not in grants:
        raise ConfigurationError(
            f"{where}: the user {settings.user!r} may not replicate. GRANT REPLICATION SLAVE, "
            "REPLICATION CLIENT ON *.* TO the user."
        )
    try:
        with errors(settings, where, "telling the end of its binlog"):
            binlog_end(connection)
    except RefusedForGood as error:
        raise ConfigurationError(
            f"{error} GRANT REPLICATION CLIENT ON *.* to the user {settings.user!r}; on MariaDB "
            "BINLOG MONITOR."
        ) from error


def shape_of(connection: Any, table: TableId, where: str) -> TableShape:
    """The table's columns and key. Raises: ConfigurationError: there is no such table, it has no primary key, or a type is not known."""
    found = ask(
        connection,
        "SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND "
        "TABLE_NAME = %s",
        tuple(table),
    )
    if not found or found[0][0] != "BASE TABLE":
        what = "is a view" if found else "does not exist, or the user may not see it"
        raise ConfigurationError(f"{where}: {table} {what}. Correct table_list, or GRANT SELECT.")
    if found[0][1] != "InnoDB":
        raise ConfigurationError(
            f"{where}: {table} is stored by {found[0][1]}, which has no consistent snapshots; "
            "expected InnoDB."
        )
    columns: list[Column] = []
    places: dict[int, int] = {}
    for name, kind, declared, place, charset in ask(connection, _COLUMNS, tuple(table)):
        type_info = type_of(kind.lower(), declared.lower(), is_key=place is not None)
        if type_info is None:
            raise ConfigurationError(
                f"{where}: the column {name!r} of {table} is {declared}, which this source cannot "
                "read from the binlog."
            )
        if charset and encoding_of(charset) is None:
            raise ConfigurationError(
                f"{where}: the column {name!r} of {table} has the character set {charset}, which "
                "this source cannot read from the binlog. ALTER TABLE ... MODIFY ... CHARACTER SET "
                "utf8mb4, or leave the table out."
            )
        if place is not None:
            places[place] = len(columns)
        columns.append(Column(name, kind.lower(), declared, type_info, charset=charset))
    key = tuple(places[place] for place in sorted(places))
    if not key:
        raise ConfigurationError(
            f"{where}: the table {table} has no primary key to distinguish its rows. Add one: "
            "ALTER TABLE ... ADD PRIMARY KEY (...)."
        )
    for place in key:
        if key_part(columns[place]) is None:
            raise ConfigurationError(
                f"{where}: the key column {columns[place].name!r} of {table} is "
                f"{columns[place].declared}, by whose order this source cannot read."
            )
    return TableShape(table, tuple(columns), key)


def check_readable(connection: Any, table: TableId, settings: MySqlSettings, where: str) -> None:
    """Raises: ConfigurationError: the user may not read the table."""
    try:
        with errors(settings, where, f"reading {table}"):
            # ruff: ignore[hardcoded-sql-expression] - the name is quoted
            ask(connection, f"SELECT 1 FROM {quoted(*table)} LIMIT 0")
    except ExternalError as error:
        raise ConfigurationError(f"{error} GRANT SELECT on it.") from error
