"""Connections to PostgreSQL by psycopg, and its errors in one line."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from penstock.common.extras import extra
from penstock.connectors.cdc.options import CdcSettings
from penstock.connectors.cdc.postgres.columns import SETTINGS
from penstock.connectors.sql.errors import DriverError, may_pass, told
from penstock.engine.hosting.os.clock import each_within, within
from penstock.engine.model.errors import ExternalError, RefusedForGood

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
    return within(settings.limits.timeout_s, call, _unanswered(settings, where, does), _MORE)


def each_asked(
    settings: PostgresSettings, where: str, does: str, values: Generator[T]
) -> Generator[T]:
    """What the generator yields, of which each value is asked for as `asked` does."""
    return each_within(settings.limits.timeout_s, values, _unanswered(settings, where, does), _MORE)


def _unanswered(settings: PostgresSettings, where: str, does: str) -> str:
    return f"{where}: PostgreSQL at {settings}, {does}"


@contextmanager
def errors(settings: PostgresSettings, where: str, does: str = "") -> Generator[None]:
    """Tells errors of the server in one line.

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
    text = f"{where}: PostgreSQL at {settings}{what} fails: {told(error)}."
    return ExternalError(text) if may_pass(DriverError(error)) else RefusedForGood(text)
