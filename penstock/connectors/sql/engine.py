"""SQLAlchemy engines for sinks that write to databases, and transactions that always release their connection.

Does not know any table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from penstock.common.extras import extra
from penstock.connectors.api.builder import SettingsBuilder
from penstock.engine.hosting.os.clock import each_within, progress, within
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.model.time import Duration, millis_of

if TYPE_CHECKING:
    import sqlalchemy as sa

# ---------------------------------------------------------------------- errors
# What a database's error means: whether another try may succeed, and its text in one line. Does not know tables.
#
# Source: the SQLSTATE classes of the SQL standard and of PostgreSQL, the error numbers of MySQL and MariaDB, the result
# codes of SQLite.


# ---------------------------------------------------------------------- limits
# How long a database may take for one answer: the deadline of each call into its driver, whatever
# driver it is.
#
# Some drivers have timeouts of their own for some of their calls, which differ in name and
# meaning, and psycopg has none for reading. So none is relied on. Long work that gets answers on
# its way, such as a commit of many rows, may take any time.


TIMEOUT_S: Final = 120.0
"""More than SQLite's writers wait for each other."""
QUERY_TIMEOUT_S: Final = 600.0
"""Of sources, whose queries may sort a table before the first row comes."""
_MORE: Final = " {} allows more time for one answer."

T = TypeVar("T")


def checked_timeout(setter: str, timeout: object) -> float:
    """Seconds of a Duration or timedelta. Raises: ConfigurationError: it is no time. TypeError: it has no unit."""
    seconds = millis_of(timeout) / 1000
    if seconds <= 0:
        raise ConfigurationError(f"{setter}: expected 1 ms or more, got {timeout!r}.")
    return seconds


def answered(limit_s: float, call: Callable[[], T], what: str, setter: str = "set_timeout") -> T:
    """Returns what the call returns. `what`: who cannot do what. Raises: NoAnswer: an answer takes longer than `limit_s`."""
    return within(limit_s, call, what, _MORE.format(setter))


def each_answered(limit_s: float, values: Generator[T], what: str) -> Generator[T]:
    """Yields what the generator yields, of which each value is one answer. Raises: as `answered`."""
    return each_within(limit_s, values, what, _MORE.format("set_timeout"))


# ---------------------------------------------------------------------- errors


_PASSING_STATES: Final = (
    "08", "40", "53", "55006", "55P03", "55P04", "57", "58", "XX", "25006"
)  # fmt: skip
"""Connection, rollback of a deadlock, resources, locks, operators, system, internal; a standby that becomes primary."""
_PASSING_NUMBERS: Final = frozenset({
    1040, 1041, 1042, 1043, 1053, 1077, 1078, 1079, 1080, 1129, 1152, 1153, 1154, 1155, 1156, 1157,
    1158, 1159, 1160,
    1161, 1180, 1184, 1203, 1205, 1206, 1213, 1290, 1317, 1614, 1637, 1836, 1927, 3024, 4031,
})  # fmt: skip
"""Connections, shutdown, locks, deadlocks, a server that is read only for now."""
_ROLLED_BACK_NUMBERS: Final = frozenset({1205, 1213})
_PASSING_CODES: Final = frozenset({5, 6, 7, 9, 10, 13, 14, 15, 17})
"""BUSY, LOCKED, NOMEM, INTERRUPT, IOERR, FULL, CANTOPEN, PROTOCOL, SCHEMA."""
_REFUSED_CONNECTION: Final = {
    "certificate authentication failed": "The common name of sslcert's certificate has to "
    "be the user",
    "password authentication failed": "Correct user and password",
    "authentication failed": "",
    "no password supplied": "Give the user's password",
    "no pg_hba.conf entry": "Have the server's pg_hba.conf allow it; if it allows connections "
    "with TLS only, set sslmode=require or verify-full",
    "is not permitted to log in": "",
    "permission denied for database": "",
    "certificate verify failed": "Name the authority that has signed the server's certificate with "
    "sslrootcert",
    "does not match host name": "Name the host as its certificate does",
    "root certificate file": "",
    "requires a valid client certificate": "Name it with sslcert, and its key with sslkey",
    "certificate required": "Name the client's with sslcert, and its key with sslkey",
    "alert unknown ca": "The authority that has signed the client's certificate (sslcert) is "
    "not one of the server's",
    "but not private key file": "Name the key of sslcert with sslkey",
    "private key file": "",
    "could not read certificate file": "",
    "does not support SSL": "Set sslmode=disable, or turn TLS on at the server",
    "invalid sslmode value": "",
}
"""libpq says why it got no connection by text only. With what helps, if that is not in the text."""
_PASSING_CLASSES: Final = frozenset({"OperationalError", "InterfaceError", "InternalError"})
REFUSED_BY_DRIVER: Final = (TypeError, ValueError, OverflowError)
"""What a driver raises for a value that it cannot send, without asking the database: a surrogate alone in a text, a dict, an integer
of more than 64 bits. They are no errors of DB-API, and another try gets the same.
"""
_NO_SUCH: Final = ('role "', 'database "')


class DriverError(Exception):
    """A driver's error, in the form in which SQLAlchemy would give it."""

    def __init__(self, orig: BaseException) -> None:
        super().__init__(str(orig))
        self.orig = orig


def may_pass(error: BaseException | None) -> bool:
    """Whether the same may succeed later: the database is not reachable, or others hold locks.

    Not after a wrong password, missing rights, a constraint or a value that the column cannot hold.
    """
    if getattr(error, "connection_invalidated", False):
        return True
    cause: Any = getattr(error, "orig", None)
    number = cause.args[0] if cause is not None and cause.args else None
    if isinstance(number, int):  # before the state, which MySQL often leaves at "general error"
        return number in _PASSING_NUMBERS or number < 1000 or 2000 <= number < 3000
    if state := getattr(cause, "sqlstate", None):
        return str(state).startswith(_PASSING_STATES)
    if (code := getattr(cause, "sqlite_errorcode", None)) is not None:
        return code & 0xFF in _PASSING_CODES
    if cause is None:  # an error of SQLAlchemy itself; only one of them is about time
        return type(error).__name__ == "TimeoutError"
    return not _is_refused(str(cause)) and not _PASSING_CLASSES.isdisjoint((
        type(error).__name__,
        type(cause).__name__,
    ))


def was_rolled_back(error: BaseException) -> bool:
    """Whether the database has given the transaction up for the sake of others, and asks for another try: a deadlock, a
    serialization failure, a lock that others held for too long.
    """
    cause: Any = getattr(error, "orig", None)
    number = cause.args[0] if cause is not None and cause.args else None
    state = str(getattr(cause, "sqlstate", None) or "")
    return number in _ROLLED_BACK_NUMBERS or state.startswith("40")


def _is_refused(text: str) -> bool:
    is_absent = "does not exist" in text and any(one in text for one in _NO_SUCH)
    return is_absent or any(one in text for one in _REFUSED_CONNECTION)


def driver_text(error: BaseException) -> str:
    """The database's own words in one line, with the constraint, the table and the column that it names.

    What helps follows where the database has refused the connection.
    """
    cause: Any = getattr(error, "orig", None) or error
    diagnosis: Any = getattr(cause, "diag", None)
    if getattr(diagnosis, "message_primary", None):
        parts = [diagnosis.message_primary, diagnosis.message_detail]
        named = [
            f"{what} {getattr(diagnosis, f'{what}_name')!r}"
            for what in ("constraint", "table", "column")
            if getattr(diagnosis, f"{what}_name")
        ]
        text = ". ".join(part.rstrip(".") for part in parts if part)
        text += f" ({', '.join(named)})" if named else ""
    elif isinstance(cause, UnicodeError):  # its arguments are not meant to be read
        text = str(cause)
    elif len(cause.args) == 2 and isinstance(cause.args[0], int):
        text = f"{cause.args[1]} (error {cause.args[0]})"
    else:
        text = " ".join(map(str, cause.args)) or repr(cause)
    help_ = next((found for part, found in _REFUSED_CONNECTION.items() if part in text), "")
    text = " ".join(text.split()).rstrip(".")
    return f"{type(cause).__name__}: {text}" + (f". {help_}" if help_ else "")


def error_of(text: str, error: BaseException) -> ExternalError:
    """The error to raise for one of the database's, which becomes its cause."""
    made = ExternalError(text) if may_pass(error) else RefusedForGood(text)
    made.__cause__ = error
    return made


def is_transient(error: ExternalError) -> bool:
    """Whether the error of `error_of` may pass. Errors that no database gave do not."""
    return not isinstance(error, RefusedForGood) and may_pass(error.__cause__)


# ---------------------------------------------------------------------- engine


SQLITE_WAIT_S: Final = 60


def import_sqlalchemy(where: str) -> Any:
    """The module sqlalchemy. Raises: ConfigurationError naming what to install where."""
    sqlalchemy = extra("sqlalchemy", "sql", where)
    if int(sqlalchemy.__version__.split(".", maxsplit=1)[0]) < 2:
        raise ConfigurationError(
            f"{where} needs SQLAlchemy 2.0 or newer, but {sys.executable} has "
            f"{sqlalchemy.__version__}. Upgrade it."
        )
    return sqlalchemy


def make_engine(url: str, engine_options: Mapping[str, Any], where: str) -> sa.Engine:
    """Makes an engine that does not pool connections. `where`: names the sink in errors.

    Raises: ConfigurationError: the driver is not installed, or the URL is not one.
    """
    sql = import_sqlalchemy(where)
    options: dict[str, Any] = {
        "poolclass": sql.pool.NullPool,
        **engine_options,
    }
    try:
        parsed = sql.make_url(url)
        if parsed.get_backend_name() == "sqlite":
            _check_sqlite(parsed.database, where)
            # Writers take turns. The default of 5 s is too short if a commit has many rows.
            options["connect_args"] = {
                "timeout": SQLITE_WAIT_S,
                **options.get("connect_args", {}),
            }
        engine = cast("sa.Engine", sql.create_engine(parsed, **options))
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{where}: the database driver {error.name!r} is not installed in {sys.executable}. Install it on "
            "the driver and on every executor."
        ) from error
    except (sql.exc.ArgumentError, sql.exc.NoSuchModuleError) as error:
        raise ConfigurationError(
            f"{where}: cannot make a connection from this URL: {error}. Expected an SQLAlchemy URL "
            "such as postgresql+psycopg://user:password@host/database or "
            "sqlite:////directory/file.db."
        ) from error
    for event in ("invalidate", "close"):
        sql.event.listen(engine, event, _let_go)
    sql.event.listen(engine, "before_cursor_execute", _remember_cursor)
    for event in ("connect", "after_cursor_execute", "commit"):  # the last one comes before it
        sql.event.listen(engine, event, _note_progress)
    return engine


def reflected(engine: sa.Engine, table: str, schema: str | None) -> sa.Table:
    """The table, with the column types that the database reports. Raises: SQLAlchemyError."""
    import sqlalchemy

    return sqlalchemy.Table(table, sqlalchemy.MetaData(), schema=schema, autoload_with=engine)


def shown_url(engine: sa.Engine) -> str:
    """The URL without passwords: also not that of the key of a certificate."""
    url = engine.url
    hidden = dict.fromkeys({"sslpassword", "password"} & url.query.keys(), "***")
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def _note_progress(*_: object) -> None:
    progress()


def _remember_cursor(connection: Any, cursor: Any, *_: object) -> None:
    progress()
    connection.info["cursor"] = cursor


def _let_go(dbapi_connection: Any, record: Any, *_: object) -> None:
    """Rolls back before the connection is closed.

    A closed SQLite connection keeps its locks as long as one of its cursors is alive, for example in the traceback of
    an interrupted task.
    """
    cursor = record.info.pop("cursor", None)
    for let_go in (() if cursor is None else (cursor.close,)) + (dbapi_connection.rollback,):
        with suppress(Exception):  # the connection is closed next anyway
            let_go()


@contextmanager
def transaction(engine: sa.Engine) -> Generator[sa.Connection]:
    """A connection with a transaction, which is committed at the end.

    A cancel may interrupt anything here, and a connection that stays open would keep its locks.
    """
    connection = engine.connect()
    raw = connection.connection.dbapi_connection
    try:
        with connection.begin():
            yield connection
        connection.close()
    except BaseException:  # any error, an interrupt too
        with suppress(Exception):
            # Else the pool would roll back a connection that is closed, and log that it cannot.
            connection.invalidate()
        with suppress(Exception):  # closed already
            if raw is not None:
                raw.close()
        raise


def again_if_rolled_back(
    engine: sa.Engine, call: Callable[[sa.Connection], None], retries: int
) -> None:
    """Call in a transaction, and again in another one if the database has rolled it back for the sake of others."""
    import sqlalchemy

    for left in reversed(range(retries + 1)):
        try:
            with transaction(engine) as connection:
                call(connection)
        except sqlalchemy.exc.StatementError as error:
            if not left or not was_rolled_back(error):
                raise
        else:
            return


@contextmanager
def cursor_of(connection: sa.Connection, statement: str) -> Generator[Any]:
    """The driver's own cursor, for what SQLAlchemy cannot pass on. Errors come as it wraps them, with the statement."""
    import sqlalchemy

    raw: Any = connection.connection.dbapi_connection
    dialect: Any = connection.dialect
    cursor = raw.cursor()
    _remember_cursor(connection, cursor)
    try:
        yield cursor
    except dialect.loaded_dbapi.Error as error:
        raise sqlalchemy.exc.DBAPIError.instance(
            statement,
            None,
            error,
            dialect.loaded_dbapi.Error,
            hide_parameters=True,
            connection_invalidated=dialect.is_disconnect(error, raw, cursor),
            dialect=dialect,
        ) from error
    finally:
        cursor.close()


def look(engine: sa.Engine, call: Callable[[sa.Connection], T]) -> T | None:
    """Return what the call returns in a transaction that takes savepoints and is rolled back. None:
    it fails.
    """
    import sqlalchemy

    with suppress(sqlalchemy.exc.SQLAlchemyError, ExternalError), transaction(engine) as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")  # its driver begins none before a savepoint
        try:
            return call(connection)
        finally:
            connection.rollback()
    return None


def _check_sqlite(path: str | None, where: str) -> None:
    if not path or path == ":memory:" or path.startswith("file:"):
        raise ConfigurationError(
            f"{where}: an SQLite database in memory belongs to one process, but a job has several. "
            "Use a file that all of them can reach: sqlite:////directory/file.db."
        )


# ---------------------------------------------------------------------- access


@dataclass(frozen=True, slots=True)
class SqlTarget:
    """A table, and how its database is reached. As text it is the table's name."""

    url: str = field(default="", repr=False)
    table: str = ""
    schema: str | None = None
    engine_options: dict[str, Any] = field(default_factory=dict)
    timeout_s: float = TIMEOUT_S

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table


class SqlBuilder(SettingsBuilder):
    """What the builders of sources, sinks and lookups share. `begin`: a class of `SqlTarget`."""

    def set_table(self, table: str, schema: str | None = None) -> Self:
        """Set the table. It must exist."""
        return self._with(table=table, schema=schema)

    def set_engine_options(self, options: dict[str, Any]) -> Self:
        """Set further arguments of SQLAlchemy's create_engine."""
        return self._with(engine_options=dict(options))

    def set_timeout(self, timeout: Duration | timedelta) -> Self:
        """Set how long the database may take for one answer: 2 minutes by default, for a source 10 minutes. Then the task fails."""
        return self._with(timeout_s=checked_timeout(self._call("set_timeout"), timeout))


class SqlAccess:
    """A database, as a source, sink or lookup asks it. `where`: begins errors."""

    def __init__(self, target: Any, where: str, **options: Any) -> None:
        """`target`: an `SqlTarget`. `options`: of the engine, which those of the target replace.

        Raises: ConfigurationError: the driver is not installed, or the URL is not one.
        """
        self._sa = import_sqlalchemy(where)
        self.target = target
        self.where = where
        self.engine = make_engine(target.url, {**options, **target.engine_options}, where)
        self._table: sa.Table | None = None

    @property
    def shown_url(self) -> str:
        return shown_url(self.engine)

    @property
    def table(self) -> sa.Table:
        """The table as the database has it; it is asked once. Raises: SQLAlchemyError."""
        if self._table is None:
            self._table = reflected(self.engine, self.target.table, self.target.schema)
        return self._table

    def failed(self, what: str) -> str:
        return f"{self.where}: {what} {str(self.target)!r} in {self.shown_url}"

    @contextmanager
    def errors(self, what: str) -> Generator[None]:
        """Turns the library's errors into ExternalError or RefusedForGood."""
        try:
            yield
        except self._sa.exc.SQLAlchemyError as error:
            text = driver_text(error)
            raise error_of(f"{self.failed(what)}: {text}{self.advice(text)}", error) from error

    def advice(self, text: str) -> str:
        """What ends an error with this text."""
        return ""

    def answered(self, what: str, call: Callable[[], T]) -> T:
        """What the call returns. Raises: NoAnswer: an answer takes longer than the timeout of the target."""
        return answered(self.target.timeout_s, call, self.failed(what))
