"""Options of change sources: where to begin, what an update gives; and what their builders share.

Source: Flink CDC StartupOptions, PostgresSourceBuilder, MySqlSourceBuilder, DebeziumChangelogMode.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final, Self

from penstock.connectors.api.builder import SettingsBuilder, checked_kind
from penstock.connectors.cdc.records import (
    DEBEZIUM,
    METADATA_COLUMNS,
    ROWS,
    JsonDebeziumDeserializationSchema,
)
from penstock.connectors.cdc.tables import TableId
from penstock.connectors.sql.engine import QUERY_TIMEOUT_S, checked_timeout
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.time import Duration

CHUNK_ROWS: Final = 8096
_NAME: Final = re.compile(r"[^\s.\"'`]+(?: [^\s.\"'`]+)*")

_BINLOG: Final = re.compile(r".+\.[0-9]+")


class ChangelogMode(Enum):
    """What an update gives: the row before and the row after it (ALL), or only the row after it (UPSERT)."""

    ALL = "all"
    UPSERT = "upsert"


@dataclass(frozen=True, slots=True)
class StartupOptions:
    """Where a new job begins. A checkpoint wins. Make it with one of the static methods."""

    mode: str
    file: str = ""
    position: int = 0

    @staticmethod
    def initial() -> StartupOptions:
        """Read the tables as they are, then their changes. The default."""
        return StartupOptions("initial")

    @staticmethod
    def latest() -> StartupOptions:
        """Read the changes that come after the start of the job."""
        return StartupOptions("latest")

    @staticmethod
    def never() -> StartupOptions:
        """Take no snapshot: read all changes that the database has kept for this source.

        PostgreSQL: those after the slot's confirmed position. MySQL and MariaDB: those of all
        binlog files.
        """
        return StartupOptions("never")

    @staticmethod
    def specific_offset(file: str, position: int) -> StartupOptions:
        """Read the changes after a position in the binlog of MySQL or MariaDB, such as
        ("binlog.000003", 4).
        """
        is_file = isinstance(file, str) and _BINLOG.fullmatch(file)
        if not is_file or not isinstance(position, int) or position < 4:
            raise ConfigurationError(
                "StartupOptions.specific_offset: expected a file and a position of 4 or more, such "
                f'as ("binlog.000003", 4), got {file!r} and {position!r}. SHOW BINARY LOGS lists '
                "the files."
            )
        return StartupOptions("specific-offset", file, position)


@dataclass(frozen=True, slots=True)
class CdcSettings:
    """What the builder collected. `chunk_rows`: about how many rows of a table one reader takes at once. `timeout_s`: how long the server
    may take for one answer. `parameters`: more of the database's client, such as sslmode. `database`: PostgreSQL's."""

    host: str = ""
    port: int = 0
    database: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    tables: tuple[TableId, ...] = ()
    startup: StartupOptions = field(default_factory=StartupOptions.initial)
    mode: ChangelogMode = ChangelogMode.ALL
    metadata: tuple[str, ...] = ()
    form: str = ROWS
    chunk_rows: int = CHUNK_ROWS
    timeout_s: float = QUERY_TIMEOUT_S
    ignores_truncate: bool = False
    parameters: dict[str, Any] = field(default_factory=dict, repr=False)


class CdcBuilder(SettingsBuilder):
    """What the builders share. `settings` has a field for each setter."""

    modes: ClassVar[tuple[str, ...]]
    _names: tuple[str, ...] = ()
    _schemas: tuple[str, ...] = ()

    def hostname(self, hostname: str) -> Self:
        """Set the host of the database; for PostgreSQL also the directory of its Unix socket."""
        return self._with_a(str, "hostname", host=hostname)

    def port(self, port: int) -> Self:
        """Set the port."""
        return self._with_number("port", 1, 65535, port=port)

    def username(self, username: str) -> Self:
        """Set the user, who may read the tables and replicate."""
        return self._with_a(str, "username", user=username)

    def password(self, password: str) -> Self:
        """Set the password; the executors get it with the job."""
        if not isinstance(password, str):  # an error shows no password
            raise ConfigurationError(f"{self._call('password')}: expected a text.")
        return self._with(password=password)

    def table_list(self, *tables: str) -> Self:
        """Set the tables, as "schema.table"; of MySQL "database.table". They need a primary key, and in MySQL InnoDB."""
        self._names = tables
        return self

    def connection_parameters(self, parameters: dict[str, Any]) -> Self:
        """Set more parameters of the client, libpq or PyMySQL's connect, such as {"sslmode": "verify-full"} or {"ssl_ca": path}."""
        return self._with(parameters=dict(parameters))

    def startup_options(self, options: StartupOptions) -> Self:
        """Set where a new job begins; by default with a snapshot of the tables."""
        checked_kind(self._call("startup_options"), options, StartupOptions)
        if options.mode not in self.modes:
            raise ConfigurationError(
                f"{self._call('startup_options')}: {options.mode!r} is not for this database; "
                f"expected one of {', '.join(self.modes)}."
            )
        return self._with(startup=options)

    def changelog_mode(self, mode: ChangelogMode) -> Self:
        """Set what an update gives; by default the row before and the row after it."""
        return self._with_a(ChangelogMode, "changelog_mode", mode=mode)

    def metadata_columns(self, *names: str) -> Self:
        """Add fields to each Row: database_name, schema_name, table_name, op_ts.

        op_ts: when the change was committed, in epoch ms; 0: the row is of the snapshot.
        """
        if unknown := [name for name in names if name not in METADATA_COLUMNS]:
            raise ConfigurationError(
                f"{self._call('metadata_columns')}: {unknown[0]!r} is none of "
                f"{', '.join(METADATA_COLUMNS)}."
            )
        return self._with(metadata=names)

    def deserializer(self, schema: JsonDebeziumDeserializationSchema) -> Self:
        """Have records be Debezium's JSON, instead of Rows. Then tables need not have the same columns."""
        checked_kind(self._call("deserializer"), schema, JsonDebeziumDeserializationSchema)
        return self._with(form=DEBEZIUM)

    def timeout(self, timeout: Duration) -> Self:
        """Set how long the database may take for one answer before the job restarts; 10 minutes by default.

        A query that sorts a large table gives no answer before it is done. Not in Flink CDC.
        """
        timeout_s = checked_timeout(self._call("timeout"), timeout)
        return self._with(timeout_s=timeout_s)

    def split_size(self, rows: int) -> Self:
        """Set about how many rows of a table one reader takes at once; 8,096 by default."""
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise ConfigurationError(
                f"{self._call('split_size')}: expected 1 or more rows, got {rows!r}."
            )
        return self._with(chunk_rows=rows)

    def ignore_truncate(self, *, ignores: bool = True) -> Self:
        """Continue after a TRUNCATE. By default it ends the job: a changelog has no
        record for it.
        """
        return self._with(ignores_truncate=ignores)

    @abstractmethod
    def build(self) -> Any:
        """Return the source. Raises ConfigurationError: something is missing."""

    def _tables(self, example: str, default: str | None) -> tuple[TableId, ...]:
        """The tables, each once. `default`: the schema of names without one, if none is set; None: they need one.

        Raises: ConfigurationError.
        """
        if not self._names:
            raise ConfigurationError(
                f'{self.name}: table_list("{example}") is missing before build().'
            )
        if self._schemas:
            default = self._schemas[0] if len(self._schemas) == 1 else None
        where, made = self._call("table_list"), []
        for name in self._names:
            parts = name.split(".") if isinstance(name, str) else []
            if len(parts) == 1 and default is not None:
                parts = [default, *parts]
            if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts):
                raise ConfigurationError(
                    f'{where}: got {name!r}, expected names such as "{example}": schema (or '
                    "database) and table, as the database keeps them, without quotes."
                )
            made.append(TableId(*parts))
        if len(set(made)) < len(made):
            tables = ", ".join(map(str, made))
            raise ConfigurationError(f"{where}: a table is there twice: {tables}.")
        return tuple(made)
