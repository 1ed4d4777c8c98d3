"""JdbcSink: executes an SQL statement for each record. Needs SQLAlchemy 2 (`penstock[sql]`) and the database's driver.

At least once, as in Flink: records are written when a batch is full or old enough, and before each barrier. To get each
row once, use a statement that replaces by key, or use SqlSink, which is exactly once.
Source: pyflink.datastream.connectors.jdbc, Flink's JdbcBatchingOutputFormat; differs: uses a Python driver instead of a
Java driver.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final, Self

from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.api.base import Sink, SinkWriter, WriterContext
from penstock.connectors.api.builder import SettingsBuilder
from penstock.connectors.api.sending import RowsWriter, subtask_of
from penstock.connectors.sql.engine import (
    REFUSED_BY_DRIVER,
    TIMEOUT_S,
    answered,
    driver_text,
    error_of,
    is_transient,
    look,
    make_engine,
    may_pass,
    shown_url,
    transaction,
)
from penstock.connectors.sql.jdbc_urls import alchemy_url
from penstock.connectors.sql.rows import first_refused
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.setting_checks import check_whole
from penstock.engine.model.texts.bounded_text import bounded_repr

__all__ = ["JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink"]

BATCH_SIZE: Final = 5000
MAX_RETRIES: Final = 3
_TOKEN: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\?|:""")


@dataclass(frozen=True, slots=True)
class JdbcConnectionOptions:
    """Holds the connection to a database. Build it with a `JdbcConnectionOptionsBuilder`.

    `url` is a JDBC URL, such as jdbc:postgresql://host/database, or an SQLAlchemy URL.
    """

    url: str
    driver_name: str = ""
    user_name: str = ""
    password: str = ""
    connection_check_timeout_s: float = TIMEOUT_S

    def get_db_url(self) -> str:
        """Return the URL as it was given, a JDBC URL or one of SQLAlchemy."""
        return self.url

    def get_driver_name(self) -> str:
        """Return the driver's name; empty: it was not set."""
        return self.driver_name

    def get_user_name(self) -> str:
        """Return the user; empty: it was not set."""
        return self.user_name

    def get_password(self) -> str:
        """Return the password; empty: it was not set."""
        return self.password

    class JdbcConnectionOptionsBuilder(SettingsBuilder):
        """Builds JdbcConnectionOptions; the URL is required."""

        def __init__(self) -> None:
            super().__init__(JdbcConnectionOptions(""))

        def with_url(self, url: str) -> Self:
            """Set the URL: a JDBC URL or an SQLAlchemy URL."""
            return self._with(url=url)

        def with_driver_name(self, driver_name: str) -> Self:
            """Accept a Java driver's name, and ignore it: the URL determines the Python driver."""
            return self._with(driver_name=driver_name)

        def with_user_name(self, user_name: str) -> Self:
            return self._with(user_name=user_name)

        def with_password(self, password: str) -> Self:
            return self._with(password=password)

        def with_connection_check_timeout_seconds(self, seconds: int) -> Self:
            """Set how long the database may take for one answer before the job restarts; 120 by default.

            Java's builder has this method, whose timeout is that of a check of the connection.
            """
            setter = "with_connection_check_timeout_seconds"
            seconds = check_whole(setter, seconds, 1, "s")
            return self._with(connection_check_timeout_s=seconds)

        def build(self) -> JdbcConnectionOptions:
            if not self.settings.url:
                raise ConfigurationError(
                    "JdbcConnectionOptions: with_url is missing before build()."
                )
            options: JdbcConnectionOptions = self.settings
            return options


@dataclass(frozen=True, slots=True)
class JdbcExecutionOptions:
    """Sets how rows are written.

    With `batch_interval_ms` 0 only full batches and barriers write.
    """

    batch_interval_ms: int = 0
    batch_size: int = BATCH_SIZE
    max_retries: int = MAX_RETRIES

    def get_batch_interval_ms(self) -> int:
        """Return after how many ms rows that wait are written; 0: only a full batch or a barrier writes them."""
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        """Return how many rows are written together."""
        return self.batch_size

    def get_max_retries(self) -> int:
        """Return how often a batch that could not be written is tried again."""
        return self.max_retries

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        """Return the defaults: batches of 5,000 rows, no interval, 3 retries."""
        return JdbcExecutionOptions()

    @staticmethod
    def builder() -> JdbcExecutionOptions.Builder:
        """Return a builder that starts with the defaults."""
        return JdbcExecutionOptions.Builder()

    class Builder(SettingsBuilder):
        """Builds JdbcExecutionOptions, starting with the defaults."""

        def __init__(self) -> None:
            super().__init__(JdbcExecutionOptions())

        def with_batch_size(self, size: int) -> Self:
            """Set the number of rows in a batch."""
            return self._with(batch_size=check_whole("with_batch_size", size, 1))

        def with_batch_interval_ms(self, interval_ms: int) -> Self:
            """Set the age in ms at which rows are written, checked when others arrive."""
            interval_ms = check_whole("with_batch_interval_ms", interval_ms, 0, "ms")
            return self._with(batch_interval_ms=interval_ms)

        def with_max_retries(self, max_retries: int) -> Self:
            """Set how often a failed batch is written again."""
            retries = check_whole("with_max_retries", max_retries, 0)
            return self._with(max_retries=retries)

        def build(self) -> JdbcExecutionOptions:
            options: JdbcExecutionOptions = self.settings
            return options


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is executed, and where. `fields`: how many parameters the statement has."""

    statement: str
    fields: int
    connection: JdbcConnectionOptions
    execution: JdbcExecutionOptions


class JdbcSink(Sink):
    """Writes rows to a database with an SQL statement. Make it with `JdbcSink.sink`."""

    is_converting = True

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan

    @staticmethod
    def sink(
        sql: str,
        type_info: TypeInformation,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """Return a sink, for `sink_to` or `add_sink`.

        Args:
            sql: a statement with a ? for each field of `type_info`, in their order.
            type_info: the ROW type of the records.
            jdbc_connection_options: the connection.
            jdbc_execution_options: batches and retries; without it the defaults.
        """
        if not isinstance(type_info, RowTypeInfo):
            raise TypeError(f"JdbcSink needs a row type such as Types.ROW([...]), got {type_info}.")
        statement, found = with_names(sql)
        fields = len(type_info.get_field_types())
        if found != fields:
            raise ConfigurationError(
                f"JdbcSink: the statement has {found} parameters (?), but {type_info} has "
                f"{fields} fields: {sql!r}."
            )
        execution = jdbc_execution_options or JdbcExecutionOptions.defaults()
        return JdbcSink(_Plan(statement, fields, jdbc_connection_options, execution))

    def validate(self) -> None:
        """Check that the driver reaches the database. Raises ConfigurationError if not."""
        writer = _StatementWriter(self._plan, "JdbcSink on the driver")
        try:
            writer.write_rows(())
        except ExternalError as error:
            raise ConfigurationError(
                f"{error}. The driver and all executors must reach it."
            ) from error

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _StatementWriter(self._plan, subtask_of("JdbcSink", context))


class _StatementWriter(RowsWriter):
    sink_name = "JdbcSink"

    def __init__(self, plan: _Plan, where: str) -> None:
        self._statement = plan.statement
        self._names = [f"p{number}" for number in range(plan.fields)]
        self._options = plan.execution
        self._where = where
        self._timeout_s = plan.connection.connection_check_timeout_s
        self._engine = make_engine(url_of(plan.connection, where), {}, where)
        self._rows: list[dict[str, Any]] = []
        self._written_s = monotonic()

    def converted(self, values: Sequence[Any]) -> list[dict[str, Any]]:
        return list(map(self._parameters, values))

    def write_converted(self, converted: list[dict[str, Any]], watermark_ms: int) -> None:
        self._rows += converted
        size, interval_ms = self._options.batch_size, self._options.batch_interval_ms
        while len(self._rows) >= size:
            piece, self._rows = self._rows[:size], self._rows[size:]
            self.write_rows(piece)
        if interval_ms and (monotonic() - self._written_s) * 1000 >= interval_ms:
            self._flush()

    def prepare_commit(self) -> Sequence[object]:
        self._flush()
        return ()

    def close(self) -> None:
        self._rows.clear()

    def write_rows(self, rows: Sequence[dict[str, Any]]) -> None:
        """Writes the rows in one transaction. Without rows it only makes a connection. Raises: ExternalError."""
        limit_s, call = self._timeout_s, partial(self._ask_to_write, rows)
        for left in range(self._options.max_retries, -1, -1):
            try:
                answered(limit_s, call, self._failed, "with_connection_check_timeout_seconds")
                break
            except ExternalError as error:
                if not left or not is_transient(error):
                    raise
        self._written_s = monotonic()

    @property
    def _failed(self) -> str:
        return f"{self._where}: cannot write to {shown_url(self._engine)}"

    def _ask_to_write(self, rows: Sequence[dict[str, Any]]) -> None:
        import sqlalchemy as sa

        try:
            with transaction(self._engine) as connection:
                if rows:
                    connection.execute(sa.text(self._statement), list(rows))
        except (sa.exc.SQLAlchemyError, *REFUSED_BY_DRIVER) as error:
            at = "" if may_pass(error) or not rows else self._refused(rows)
            raise error_of(
                f"{self._failed}: {driver_text(error)}.{at} The statement: "
                + self._statement.replace("\\:", ":"),
                error,
            ) from error

    def _refused(self, rows: Sequence[dict[str, Any]]) -> str:
        """The first row that the database refuses. It writes all rows again to find it, and rolls back."""
        import sqlalchemy as sa

        statement = sa.text(self._statement)

        def write(connection: sa.Connection, part: Sequence[dict[str, Any]]) -> None:
            connection.execute(statement, list(part))

        found = look(self._engine, lambda at: first_refused(at, rows, partial(write, at)))
        return "" if found is None else f" The row: {bounded_repr(list(found.values()), 500)}."

    def _flush(self) -> None:
        if self._rows:
            piece, self._rows = self._rows, []
            self.write_rows(piece)

    def _parameters(self, row: Any) -> dict[str, Any]:
        values = list(row)
        if len(values) != len(self._names):
            raise TypeError(
                f"JdbcSink: the record {row!r} has {len(values)} fields, but the statement takes "
                f"{len(self._names)}"
            )
        return dict(zip(self._names, values, strict=True))


def with_names(sql: str) -> tuple[str, int]:
    """The statement with :p0, :p1, ... in place of each ?, as SQLAlchemy needs it, and their number.

    Text in quotes stays as it is.
    """
    count = 0

    def name(found: re.Match[str]) -> str:
        nonlocal count
        text = found[0]
        if text == "?":
            count += 1
            return f":p{count - 1}"
        return text.replace(":", "\\:")

    return _TOKEN.sub(name, sql), count


def url_of(options: JdbcConnectionOptions, where: str) -> str:
    """The URL for SQLAlchemy. Raises: ConfigurationError: a JDBC URL names a database that is not supported."""
    url = options.url
    if url.startswith("jdbc:"):
        url = alchemy_url(url, where)
    if not options.user_name and not options.password:
        return url
    import sqlalchemy as sa

    made = sa.make_url(url).set(
        username=options.user_name or None, password=options.password or None
    )
    return made.render_as_string(hide_password=False)
