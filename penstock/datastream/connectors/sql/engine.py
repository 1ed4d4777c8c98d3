"""Engines of SQLAlchemy for sinks that write to databases: made, used for one transaction at a time, and let go of cleanly.

Knows no table.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.common.extras import extra
from penstock.model.errors import ConfigurationError, ExternalError

if TYPE_CHECKING:
    import sqlalchemy as sa

SQLITE_WAIT_S: Final = 60


def import_sqlalchemy(where: str) -> Any:
    """The module. Raises: ConfigurationError naming what to install where."""
    sqlalchemy = extra("sqlalchemy", "sql", where)
    if int(sqlalchemy.__version__.split(".", maxsplit=1)[0]) < 2:
        raise ConfigurationError(
            f"{where} needs SQLAlchemy 2.0 or newer, {sys.executable} has {sqlalchemy.__version__}."
        )
    return sqlalchemy


def make_engine(url: str, engine_options: Mapping[str, Any], where: str) -> sa.Engine:
    """Whose connections are never pooled. `where`: for errors. Raises: ConfigurationError: what is needed is not installed, or
    the URL is none.
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
            # Writers take turns: the usual 5 s are short where a commit has many rows.
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
            f"{where}: cannot make a connection of this URL: {error}. Expected one of SQLAlchemy's, such as "
            "postgresql+psycopg://user:password@host/database or sqlite:////directory/file.db."
        ) from error
    for event in ("invalidate", "close"):
        sql.event.listen(engine, event, _let_go)
    sql.event.listen(engine, "before_cursor_execute", _remember_cursor)
    return engine


def _remember_cursor(connection: Any, cursor: Any, *_: object) -> None:
    connection.info["cursor"] = cursor


def _let_go(dbapi_connection: Any, record: Any, *_: object) -> None:
    """Before it is closed: a closed SQLite connection keeps its locks as long as somebody, the traceback of what a cancel
    has interrupted say, has a cursor of it.
    """
    cursor = record.info.pop("cursor", None)
    for let_go in (() if cursor is None else (cursor.close,)) + (dbapi_connection.rollback,):
        with suppress(Exception):  # what cannot be rolled back is broken, and closed next
            let_go()


@contextmanager
def transaction(engine: sa.Engine) -> Generator[sa.Connection]:
    """Committed at the end. A cancel may interrupt anything here: a connection that stayed open would keep its locks."""
    connection = engine.connect()
    raw = connection.connection.dbapi_connection
    try:
        with connection.begin():
            yield connection
        connection.close()
    except BaseException:  # whatever came in between
        if raw is not None:
            raw.close()
        raise


def _check_sqlite(path: str | None, where: str) -> None:
    if not path or path == ":memory:" or path.startswith("file:"):
        raise ConfigurationError(
            f"{where}: a SQLite database in memory belongs to one process, and a job has several. Give a file that all "
            "of them see: sqlite:////directory/file.db."
        )


def is_transient(error: ExternalError) -> bool:
    """Whether it may work a moment later: the database is not there, or others are in the way."""
    import sqlalchemy

    return isinstance(
        error.__cause__, sqlalchemy.exc.OperationalError | sqlalchemy.exc.InterfaceError
    )
