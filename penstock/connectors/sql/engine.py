"""SQLAlchemy engines for sinks that write to databases, and transactions that always release their connection.

Does not know any table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from penstock.common.extras import extra
from penstock.connectors.sql.errors import was_rolled_back
from penstock.engine.hosting.os.clock import progress
from penstock.engine.model.errors import ConfigurationError, ExternalError

if TYPE_CHECKING:
    import sqlalchemy as sa

SQLITE_WAIT_S: Final = 60
T = TypeVar("T")


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
    """What the call returns in a transaction that takes savepoints, and leaves nothing behind. None: it fails."""
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
