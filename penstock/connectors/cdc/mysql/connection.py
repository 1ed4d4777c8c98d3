"""Connections to MySQL and MariaDB by PyMySQL, and their errors in one line."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from penstock.common.extras import extra
from penstock.connectors.cdc.options import CdcSettings
from penstock.connectors.sql.errors import DriverError, may_pass, told
from penstock.engine.model.errors import ExternalError, RefusedForGood

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
    quick_s = min(READ_S, settings.limits.timeout_s)
    return {
        "host": settings.host,
        "port": settings.port,
        "user": settings.user,
        "password": settings.password,
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": LOOK_S if is_look else CONNECT_S,
        "read_timeout": settings.limits.timeout_s if is_slow else quick_s,
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
    """Tells errors of the server in one line.

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
    text = f"{where}: the server {settings}{what} fails: {told(error)}."
    if _TIMED_OUT in str(error):
        long_s = settings.limits.timeout_s
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
