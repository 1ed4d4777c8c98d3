"""JDBC URLs as SQLAlchemy's URLs: Java's parameters are translated, left out where they change nothing here, or refused.

Source: the connection parameters of pgJDBC, MySQL Connector/J and MariaDB Connector/J; those of libpq and PyMySQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qsl

from penstock.engine.model.errors import ConfigurationError

if TYPE_CHECKING:
    import sqlalchemy as sa

Translated: TypeAlias = "Mapping[str, str] | None"
"""Parameters of the Python driver; None: there is none that does the same."""


def _seconds(*names: str, per_second: int = 1) -> Callable[[str], Translated]:
    """A timeout: 0 is none."""

    def translate(value: str) -> Translated:
        if not value.isdigit():
            return None
        seconds = -(-int(value) // per_second)
        return dict.fromkeys(names, str(seconds)) if seconds else {}

    return translate


def _same(name: str) -> Callable[[str], Translated]:
    return lambda value: {name: value}


def _one_of(**known: dict[str, str]) -> Callable[[str], Translated]:
    return lambda value: known.get(value.lower().replace("-", "_"))


_PLAIN: Final[dict[str, str]] = {"ssl_disabled": "true"}
_TLS: Final = {"ssl_check_hostname": "false"}
_POSTGRES: Final[dict[str, Callable[[str], Translated]]] = {
    # pgJDBC: ssl=true verifies the server's name, ssl=false uses TLS if the server has it.
    "ssl": _one_of(true={"sslmode": "verify-full"}, false={}),
    **{
        name: _same(name)
        for name in ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "options")
    },
    "ApplicationName": _same("application_name"),
    "currentSchema": lambda value: {"options": f"-csearch_path={value}"},
    "connectTimeout": _seconds("connect_timeout"),
    "loginTimeout": _seconds("connect_timeout"),
    "tcpKeepAlive": _one_of(true={"keepalives": "1"}, false={"keepalives": "0"}),
    "targetServerType": _one_of(
        any={},
        primary={"target_session_attrs": "primary"},
        master={"target_session_attrs": "primary"},
        secondary={"target_session_attrs": "standby"},
        prefersecondary={"target_session_attrs": "prefer-standby"},
    ),
}
_MYSQL: Final[dict[str, Callable[[str], Translated]]] = {
    "useSSL": _one_of(true=_TLS, false=_PLAIN),
    "requireSSL": _one_of(true=_TLS, false={}),
    "sslMode": _one_of(
        disabled=_PLAIN,
        disable=_PLAIN,
        preferred={},
        required=_TLS,
        trust=_TLS,
    ),
    "connectTimeout": _seconds("connect_timeout", per_second=1000),
    "socketTimeout": _seconds("read_timeout", "write_timeout", per_second=1000),
    # Both mean UTF-8; MySQL's own "utf8" has three bytes a character only.
    "characterEncoding": _one_of(
        utf_8={"charset": "utf8mb4"}, utf8={"charset": "utf8mb4"}, utf8mb4={"charset": "utf8mb4"}
    ),
}
_LEFT_OUT: Final = {
    "postgresql": frozenset({
        "reWriteBatchedInserts", "prepareThreshold", "preparedStatementCacheQueries",
        "binaryTransfer",
        "preparedStatementCacheSizeMiB", "defaultRowFetchSize", "loggerLevel", "loggerFile",
        "databaseMetadataCacheFields",
        "stringtype",
    }),
    "mysql": frozenset({
        "rewriteBatchedStatements", "useUnicode", "cachePrepStmts", "prepStmtCacheSize",
        "prepStmtCacheSqlLimit",
        "useServerPrepStmts", "useCursorFetch", "defaultFetchSize", "useLegacyDatetimeCode",
        "allowPublicKeyRetrieval",
        "autoReconnect", "zeroDateTimeBehavior", "tinyInt1isBit", "useBulkStmts",
        "useJDBCCompliantTimezoneShift",
        # Java converts times between its zone and the server's; Python's drivers send them as they are.
        "serverTimezone", "connectionTimeZone",
    }),
}  # fmt: skip
"""What only speeds Java up, or changes how Java reads: here rows are written."""
_DRIVERS: Final[dict[str, tuple[str, Any, str]]] = {
    "postgresql": ("postgresql+psycopg", _POSTGRES, "postgresql"),
    "mysql": ("mysql+pymysql", _MYSQL, "mysql"),
    "mariadb": ("mariadb+pymysql", _MYSQL, "mysql"),
}


def alchemy_url(url: str, where: str) -> str:
    """The URL for SQLAlchemy, password included.

    Raises: ConfigurationError: the database or a parameter has no counterpart here; it is named.
    """
    kind, _, rest = url.removeprefix("jdbc:").partition(":")
    place, _, query = rest.partition("?")
    if kind == "sqlite":
        for name, _value in parse_qsl(query, keep_blank_values=True):
            raise _refused(where, url, name)
        return f"sqlite:///{place}"
    if kind == "postgresql" and place and not place.startswith("/"):
        place = f"//localhost/{place}"
    if kind not in _DRIVERS or not place.startswith("//"):
        named = f"{kind}:{place.partition(':')[0]}" if kind in _DRIVERS else kind
        raise ConfigurationError(
            f"{where}: no database driver is known for {_without_user(named)!r}: expected "
            "jdbc:postgresql://, jdbc:mysql://, jdbc:mariadb://, jdbc:sqlite:, or an SQLAlchemy "
            "URL."
        )
    scheme, known, family = _DRIVERS[kind]
    made, found = _place_of(scheme, place, family, where)
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "user":
            made = made.set(username=value)
        elif name == "password":
            made = made.set(password=value)
        elif name in known:
            translated = known[name](value)
            if translated is None:
                raise _refused(where, url, name, value)
            if "options" in translated and "options" in found:
                translated = {"options": f"{found['options']} {translated['options']}"}
            found.update(translated)
        elif name not in _LEFT_OUT[family]:
            raise _refused(where, url, name)
    return made.set(query=found).render_as_string(hide_password=False)


def _place_of(
    scheme: str, place: str, family: str, where: str
) -> tuple[sa.URL, dict[str, str | tuple[str, ...]]]:
    """The URL without parameters, and those that follow from its hosts: libpq takes several hosts as a parameter."""
    import sqlalchemy

    hosts, slash, name = place.removeprefix("//").partition("/")
    user, at, hosts = hosts.rpartition("@")
    found: dict[str, str | tuple[str, ...]] = {}
    if family == "postgresql":
        if "," in hosts:
            found["host"] = tuple(hosts.split(","))
            hosts = ""
        elif not hosts:
            hosts = "localhost"  # as in Java; libpq would take a Unix socket
    refused = ConfigurationError(
        f"{where}: the place {hosts!r} in the JDBC URL is not understood. Expected one host and "
        "port, as in jdbc:mysql://db-1:3306/shop, or an SQLAlchemy URL."
    )
    if any(sign in hosts for sign in ",()="):  # several hosts, or properties of one
        raise refused
    try:
        return sqlalchemy.make_url(f"{scheme}://{user}{at}{hosts}{slash}{name}"), found
    except (ValueError, sqlalchemy.exc.ArgumentError) as error:
        raise refused from error


def _without_user(url: str) -> str:
    """A URL as it may be shown, without user, password and parameters."""
    return re.sub(r"//[^/]*@", "//", url.partition("?")[0])


def _refused(where: str, url: str, name: str, value: str = "") -> ConfigurationError:
    shown = f"{name}={value}" if value else name
    return ConfigurationError(
        f"{where}: the parameter {shown!r} of the JDBC URL {_without_user(url)!r} is Java's, "
        "and has no counterpart "
        "in Python's driver. Leave it out, or give an SQLAlchemy URL with the parameters of that "
        "driver."
    )
