"""What PostgreSQL's catalog says of tables, rights, slot and publication; everything that would fail later is refused here.

Source: PostgreSQL's documentation, "Logical Replication" (publications, replica identities, security), and "System Views".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from penstock.common.extras import extra
from penstock.connectors.cdc.options import CdcSettings, ChangelogMode
from penstock.connectors.cdc.postgres.columns import SETTINGS, WHOLE, type_of
from penstock.connectors.cdc.tables import Column, TableId, TableShape
from penstock.connectors.sql.engine import DriverError, driver_text, may_pass
from penstock.engine.hosting.os.clock import each_within, within
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood

# ---------------------------------------------------------------------- connection
# Connections to PostgreSQL by psycopg, and its errors in one line.


CONNECT_S: Final = 10
LOOK_S: Final = 5
EXTRA: Final = "postgres-cdc"
_MORE: Final = " timeout(...) of the builder allows more time for one answer."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PostgresSettings(CdcSettings):
    """What the builder collected. `parameters`: more of libpq's, such as sslmode."""

    port: int = 5432
    slot: str = "penstock"
    publication: str = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"


def connect(
    settings: PostgresSettings, where: str, *, replicates: bool = False, is_look: bool = False
) -> Any:
    """A connection in autocommit mode. `replicates`: it speaks the replication protocol. `is_look`: it gives up soon.

    Raises: ConfigurationError: psycopg is missing. ExternalError: the server is not reached. RefusedForGood: it refuses.
    """
    psycopg = extra("psycopg", EXTRA, where)
    more = {"replication": "database"} if replicates else {}
    with errors(settings, where):
        return psycopg.connect(
            autocommit=True,
            **{
                "host": settings.host,
                "port": settings.port,
                "dbname": settings.database,
                "user": settings.user,
                "connect_timeout": LOOK_S if is_look else CONNECT_S,
                "application_name": f"penstock:{settings.slot}",
                "options": " ".join(f"-c {name}={value}" for name, value in SETTINGS.items()),
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 4,
                **({"password": settings.password} if settings.password else {}),
                **settings.parameters,
                **more,
            },
        )


def asked(settings: PostgresSettings, where: str, does: str, call: Callable[[], T]) -> T:
    """What the call returns, which asks the server. Raises: NoAnswer: psycopg has no timeout for reading."""
    return within(settings.timeout_s, call, _unanswered(settings, where, does), _MORE)


def each_asked(
    settings: PostgresSettings, where: str, does: str, values: Generator[T]
) -> Generator[T]:
    """What the generator yields, of which each value is asked for as `asked` does."""
    return each_within(settings.timeout_s, values, _unanswered(settings, where, does), _MORE)


def _unanswered(settings: PostgresSettings, where: str, does: str) -> str:
    return f"{where}: PostgreSQL at {settings}, {does}"


@contextmanager
def errors(settings: PostgresSettings, where: str, does: str = "") -> Generator[None]:
    """Raise errors of the server with one line of text.

    Raises: RefusedForGood: what another try cannot change. ExternalError: all else.
    """
    psycopg = extra("psycopg", EXTRA, where)
    try:
        yield
    except psycopg.Error as error:
        raise failure(settings, where, does, error) from error


def failure(
    settings: PostgresSettings, where: str, does: str, error: BaseException
) -> ExternalError:
    """The error to raise for one of psycopg's."""
    what = f" {does}" if does else ""
    text = f"{where}: PostgreSQL at {settings}{what} fails: {driver_text(error)}."
    return ExternalError(text) if may_pass(DriverError(error)) else RefusedForGood(text)


# ---------------------------------------------------------------------- catalog


_TABLE: Final = """
SELECT c.oid, c.relkind, c.relreplident, c.relpersistence,
  has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s"""
_COLUMNS: Final = """
SELECT a.attname, b.typname,
  format_type(b.oid, CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END),
  a.atttypid::bigint, k.place
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN (
  SELECT u.attnum, u.place FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS u(attnum, place)
  WHERE i.indrelid = %s AND i.indisprimary
) k ON k.attnum = a.attnum
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum"""
_LEAST_VERSION: Final = 130_000


def shape_of(connection: Any, table: TableId, where: str) -> TableShape:
    """The table's columns and key. Raises: ConfigurationError: there is no such table, or it has no primary key."""
    oid = _look_up(connection, table, where)[0]
    columns: list[Column] = []
    places: dict[int, int] = {}
    for name, kind, declared, type_oid, place in connection.execute(_COLUMNS, (oid, oid)):
        if place is not None:
            places[place] = len(columns)
        columns.append(Column(name, kind, declared, type_of(kind, declared), type_oid))
    key = tuple(places[place] for place in sorted(places))
    if not key:
        raise ConfigurationError(
            f"{where}: the table {table} has no primary key to distinguish its rows. Add one: "
            "ALTER TABLE ... ADD PRIMARY KEY (...)."
        )
    shape = TableShape(table, tuple(columns), key)
    _check_key(connection, shape, where)
    return shape


def _look_up(connection: Any, table: TableId, where: str) -> Any:
    found = connection.execute(_TABLE, tuple(table)).fetchone()
    if found is None or found[1] not in {"r", "p"}:
        what = "is no table" if found else "does not exist"
        like = connection.execute(
            "SELECT schemaname || '.' || tablename FROM pg_tables "
            "WHERE lower(tablename) = lower(%s) LIMIT 3",
            (table.name,),
        ).fetchall()
        hint = f" There is {', '.join(one for (one,) in like)}." if like else ""
        raise ConfigurationError(
            f"{where}: {table} {what} in this database.{hint} Correct table_list."
        )
    return found


def _check_key(connection: Any, shape: TableShape, where: str) -> None:
    """Keys that are ordered as text are compared here as the server does it."""
    texts = [shape.columns[place] for place in shape.key if shape.columns[place].kind not in WHOLE]
    encoding = connection.execute("SHOW server_encoding").fetchone()[0]
    if texts and encoding != "UTF8":
        raise ConfigurationError(
            f"{where}: the key column {texts[0].name!r} of {shape.table} is {texts[0].declared}, "
            f"and the database's encoding is {encoding}. Keys that are no integers need UTF8."
        )


def check_server(connection: Any, settings: PostgresSettings, where: str) -> None:
    """Raises: ConfigurationError: the server or the user cannot replicate."""
    if connection.info.server_version < _LEAST_VERSION:
        raise ConfigurationError(
            f"{where}: {settings} is PostgreSQL {connection.info.server_version // 10_000}; "
            "expected 13 or newer."
        )
    level, is_standby = connection.execute(
        "SELECT current_setting('wal_level'), pg_is_in_recovery()"
    ).fetchone()
    if is_standby:
        raise ConfigurationError(
            f"{where}: {settings} is a standby. Use the primary, which alone can create slots."
        )
    if level != "logical":
        raise ConfigurationError(
            f"{where}: wal_level of {settings} is {level!r}, expected 'logical'. Set it: ALTER "
            "SYSTEM SET wal_level = logical, and restart the server."
        )
    may_replicate = connection.execute(
        "SELECT rolsuper OR rolreplication OR EXISTS (SELECT FROM pg_roles g WHERE g.rolname IN "
        "('rds_replication') AND pg_has_role(r.oid, g.oid, 'MEMBER')) "
        "FROM pg_roles r WHERE rolname = current_user"
    ).fetchone()[0]
    if not may_replicate:
        raise ConfigurationError(
            f"{where}: the user {settings.user!r} may not replicate. Allow it: ALTER ROLE "
            f'"{settings.user}" REPLICATION.'
        )


def check_table(connection: Any, table: TableId, mode: ChangelogMode, where: str) -> None:
    """Raises: ConfigurationError: the table cannot be read, or its changes would lack what the mode needs."""
    _, _, identity, persistence, may_read = _look_up(connection, table, where)
    if not may_read:
        raise ConfigurationError(
            f"{where}: the user may not read {table}. Grant SELECT on it, and USAGE on its schema."
        )
    if persistence != "p":
        raise ConfigurationError(
            f"{where}: {table} is unlogged or temporary, so its changes are not in the WAL. ALTER "
            "TABLE ... SET LOGGED."
        )
    if mode is ChangelogMode.ALL and identity != "f":
        raise ConfigurationError(
            f"{where}: the replica identity of {table} is not FULL, so the WAL does not have the "
            "rows before an update. ALTER TABLE ... REPLICA IDENTITY FULL, or take only the rows "
            "after it: .changelog_mode(ChangelogMode.UPSERT)."
        )
    if identity not in {"d", "f"}:
        raise ConfigurationError(
            f"{where}: the replica identity of {table} is NOTHING or an index, so the WAL does not "
            "have the primary key of changed rows. ALTER TABLE ... REPLICA IDENTITY DEFAULT, or "
            "FULL."
        )


def publication_exists(connection: Any, settings: PostgresSettings) -> bool:
    """Whether there is a publication of the name."""
    found = connection.execute(
        "SELECT FROM pg_publication WHERE pubname = %s", (settings.publication,)
    )
    return found.fetchone() is not None


def check_publication(
    connection: Any, settings: PostgresSettings, shapes: Sequence[TableShape], where: str
) -> None:
    """Raises: ConfigurationError: the publication would leave out changes, or cannot be made."""
    name = settings.publication
    if not publication_exists(connection, settings):
        _check_may_publish(connection, settings, where)
        return
    kinds = connection.execute(
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication "
        "WHERE pubname = %s",
        (name,),
    ).fetchone()
    if not all(kinds[:3]):
        raise ConfigurationError(
            f"{where}: the publication {name!r} leaves out some of insert, update, delete. ALTER "
            f"PUBLICATION \"{name}\" SET (publish = 'insert, update, delete, truncate')."
        )
    if not kinds[3] and not settings.ignores_truncate:
        raise ConfigurationError(
            f"{where}: the publication {name!r} leaves out truncate, so a TRUNCATE could not end "
            f'the job. ALTER PUBLICATION "{name}" SET (publish = \'insert, update, delete, '
            "truncate'), or skip each TRUNCATE with .ignore_truncate()."
        )
    has_lists = connection.info.server_version >= 150_000
    more = "attnames, rowfilter" if has_lists else "NULL, NULL"
    # ruff: ignore[hardcoded-sql-expression] - it is one of the two above
    query = f"SELECT schemaname, tablename, {more} FROM pg_publication_tables WHERE pubname = %s"
    published = {
        TableId(schema, table): (columns, rows)
        for schema, table, columns, rows in connection.execute(query, (name,))
    }
    for shape in shapes:
        _check_published(name, shape, published, where)


def _check_published(
    name: str, shape: TableShape, published: dict[TableId, tuple[Any, Any]], where: str
) -> None:
    if shape.table not in published:
        raise ConfigurationError(
            f"{where}: the publication {name!r} does not have the table {shape.table}. ALTER "
            f'PUBLICATION "{name}" ADD TABLE "{shape.table.schema}"."{shape.table.name}"; of a '
            "partitioned table with "
            "publish_via_partition_root = true."
        )
    columns, rows = published[shape.table]
    if rows is not None:
        raise ConfigurationError(
            f"{where}: the publication {name!r} filters the rows of {shape.table} ({rows}), but a "
            "snapshot has all rows. Use a publication without WHERE."
        )
    if columns is not None and (missing := sorted(set(shape.names) - set(columns))):
        raise ConfigurationError(
            f"{where}: the publication {name!r} leaves out the columns {missing} of "
            f"{shape.table}. Publish the table without a list of columns."
        )


def _check_may_publish(connection: Any, settings: PostgresSettings, where: str) -> None:
    may = connection.execute(
        "SELECT rolsuper OR has_database_privilege(current_database(), 'CREATE') "
        "FROM pg_roles WHERE rolname = current_user"
    ).fetchone()[0]
    owned = [
        connection.execute(
            "SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
            tuple(table),
        ).fetchone()[0]
        for table in settings.tables
    ]
    if not may or not all(owned):
        names = ", ".join(map(str, settings.tables))
        raise ConfigurationError(
            f"{where}: there is no publication {settings.publication!r}, and the user "
            f"{settings.user!r} may not create it. Have the tables' owner do it: CREATE "
            f'PUBLICATION "{settings.publication}" FOR TABLE {names} WITH '
            "(publish_via_partition_root = true)."
        )


class Slot(NamedTuple):
    """A replication slot. `is_here`: of this database. `confirmed`: up to where it was confirmed, as a number."""

    plugin: str
    is_here: bool
    is_active: bool
    pid: int | None
    wal_status: str | None
    confirmed: int


def find_slot(connection: Any, settings: PostgresSettings) -> Slot | None:
    """The slot of the source; None: there is none."""
    found = connection.execute(
        "SELECT plugin, database = current_database(), active, active_pid, wal_status, "
        "(confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots "
        "WHERE slot_name = %s",
        (settings.slot,),
    ).fetchone()
    return None if found is None else Slot(*found)


def check_slot(connection: Any, settings: PostgresSettings, where: str) -> Slot | None:
    """The slot, which may be active. Raises: ConfigurationError: it is another one's, lost, or there is no room for one."""
    slot, name = find_slot(connection, settings), settings.slot
    if slot is None:
        used, most = connection.execute(
            "SELECT count(*), current_setting('max_replication_slots')::int "
            "FROM pg_replication_slots"
        ).fetchone()
        if used >= most:
            raise ConfigurationError(
                f"{where}: all {most} replication slots of {settings} are taken. Drop one that "
                "nobody needs (pg_drop_replication_slot), or raise max_replication_slots."
            )
        return None
    if slot.plugin != "pgoutput" or not slot.is_here:
        raise ConfigurationError(
            f"{where}: the slot {name!r} is there, but with the plugin {slot.plugin} or for "
            "another database. Choose another slot_name."
        )
    if slot.wal_status == "lost":
        raise ConfigurationError(
            f"{where}: the server has removed WAL that the slot {name!r} needs (see "
            f"max_slot_wal_keep_size). Drop it, SELECT pg_drop_replication_slot('{name}'), and "
            "begin anew with a snapshot."
        )
    return slot
