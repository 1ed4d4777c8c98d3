"""The address of a broker and the user, from single parts or an AMQP URI. Plain data; does not know any client.

Source: the AMQP URI specification of RabbitMQ, com.rabbitmq.client.ConnectionFactory.setUri.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from penstock.model.errors import ConfigurationError

PORTS: Final = {"amqp": 5672, "amqps": 5671}
QUERY: Final = ("heartbeat", "connection_timeout", "channel_max")
DEFAULT_VIRTUAL_HOST: Final = "/"
MAX_PORT: Final = 65_535
_FORM: Final = "amqp://user:password@host:5672/virtual-host"


@dataclass(frozen=True, slots=True)
class Address:
    """A broker's address and user. As text it shows host, port and virtual host, but not the user."""

    host: str
    port: int
    virtual_host: str = DEFAULT_VIRTUAL_HOST
    user_name: str = field(default="guest", repr=False)
    password: str = field(default="guest", repr=False)
    has_tls: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}, virtual host {self.virtual_host!r}"


def parsed_uri(uri: str) -> tuple[Address, Mapping[str, int]]:
    """The address in a URI, and the settings in its query: heartbeat (s), connection_timeout (ms), channel_max.

    Raises: ConfigurationError, which does not show the password.
    """
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:  # the error's text may contain the password
        raise _refused(
            "it cannot be parsed; check that the port is a number, and write a slash in the "
            "password as %2F"
        ) from None
    if (
        "@" in f"{parts.path}{parts.query}{parts.fragment}"
    ):  # this part may contain a piece of the password
        raise _refused(
            "there is an @ after the host; write /, ?, # and @ in user and password as %2F, %3F, "
            "%23 and %40"
        )
    if parts.scheme.lower() not in PORTS:
        raise _refused(f"its scheme is {parts.scheme!r}" if parts.scheme else "it has no scheme")
    if port is not None and not 0 < port <= MAX_PORT:
        raise _refused(f"its port is {port}")
    address = Address(
        unquote(parts.hostname or "localhost"),
        PORTS[parts.scheme.lower()] if port is None else port,
        _virtual_host(parts.path),
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
        parts.scheme.lower() == "amqps",
    )
    return address, _query(parts)


def _virtual_host(path: str) -> str:
    name = path.removeprefix("/")
    if "/" in name:
        raise _refused(
            f"its path {path!r} has several parts; write a slash in the virtual host as %2F"
        )
    return unquote(name) or DEFAULT_VIRTUAL_HOST


def _query(parts: SplitResult) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in QUERY:
            raise _refused(
                f"its query has {name!r}, but only {', '.join(QUERY)} are supported there"
            )
        if not value.isdecimal():
            raise _refused(f"{name!r} in its query must be a number, got {value!r}")
        found[name] = int(value)
    return found


def _refused(reason: str) -> ConfigurationError:
    return ConfigurationError(f"set_uri: {reason}. Expected {_FORM}, or amqps:// for TLS.")
