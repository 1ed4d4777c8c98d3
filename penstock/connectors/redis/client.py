"""The client library redis as the connector uses it: its settings, the checks at submit, its errors as text.

Redis Cluster is not supported: a stream and the marks of commits may lie on different nodes there.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from penstock.common.extras import extra
from penstock.connectors.api.builder import TlsBuilder, parts_of_url
from penstock.connectors.clients.tls import TlsFiles, tls_doubt, tls_refusal
from penstock.engine.hosting.os.clock import HELP
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood

SCHEMES: Final = ("redis", "rediss", "unix")
CONNECT_TIMEOUT_S: Final = 5.0
SOCKET_TIMEOUT_S: Final = 30.0
LOOK_TIMEOUT_S: Final = 3.0
RETRIES: Final = 6
FIRST_DELAY_S: Final = 0.05
LONGEST_DELAY_S: Final = 1.0
_NO_LOOK: Final = re.compile(r"run the 'type' command")


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where a server is. As text it shows neither user nor password."""

    url: str = field(repr=False)
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    tls: TlsFiles | None = None

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        return f"{parts.scheme}://{parts.hostname}:{parts.port or 6379}{parts.path}"


def checked_url(where: str, url: object) -> str:
    """The URL. Raises: ConfigurationError, which does not show the password."""
    form = "redis://[user:password@]host:6379/0, rediss:// for TLS, or unix:///path"
    if not isinstance(url, str):
        raise ConfigurationError(f"{where}.set_url: got {type(url).__name__}, expected {form}.")
    parts = parts_of_url(f"{where}.set_url", url, form)
    if parts.scheme not in SCHEMES or parts.port == 0:
        raise ConfigurationError(
            f"{where}.set_url: got a URL with the scheme {parts.scheme!r} and the port "
            f"{parts.port}, expected {form}."
        )
    if parts.scheme == "unix" and not parts.path:
        raise ConfigurationError(f"{where}.set_url: a unix:// URL has no path, expected {form}.")
    if parts.scheme != "unix" and not parts.hostname:
        raise ConfigurationError(f"{where}.set_url: the URL has no host, expected {form}.")
    return url


def checked_name(where: str, name: object) -> str:
    """The name of a stream. Raises: ConfigurationError."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{where}: a stream's name is a text, not empty; got {name!r}.")
    return name


class RedisBuilder(TlsBuilder):
    """What the builders of source and sink share. `settings`: a dataclass with `url`, `login` and `tls`."""

    always: ClassVar = {"url": 'set_url("redis://host:6379/0")'}

    def set_url(self, url: str) -> Self:
        """Set the server: redis://host:6379/0, rediss:// for TLS, or unix:///path."""
        return self._with(url=checked_url(self.name, url))

    def set_credentials(self, username: str | None, password: str) -> Self:
        """Set user (None: the default one) and password, instead of writing them into the URL."""
        return self._with(login=(username, password))

    def _address(self, settings: Any) -> RedisAddress:
        """Raises: ConfigurationError: files of TLS for a URL without TLS."""
        if settings.tls is not None and not settings.url.startswith("rediss:"):
            raise ConfigurationError(
                f"{self.name}.set_tls: the URL is without TLS. Write rediss:// instead of redis://."
            )
        username, password = settings.login
        return RedisAddress(settings.url, username, password, settings.tls)


def connect(address: RedisAddress, where: str, *, is_look: bool = False) -> Any:
    """A client, which connects when it is used. `is_look`: it gives up soon.

    Raises: ConfigurationError: redis is missing.
    """
    redis = extra("redis", "redis", where)
    backoff = extra("redis.backoff", "redis", where)
    retry = extra("redis.retry", "redis", where).Retry
    # A server that was killed is back after a while, and loads its data meanwhile, which is a
    # ConnectionError too. One that does not answer in time has been waited for.
    waits = backoff.ExponentialBackoff(cap=LONGEST_DELAY_S, base=FIRST_DELAY_S)
    options = {"username": address.username, "password": address.password}
    if address.tls is not None:
        address.tls.context(where)  # whether the files can be read
        options |= {
            "ssl_ca_certs": address.tls.ca_file,
            "ssl_certfile": address.tls.certificate_file,
            "ssl_keyfile": address.tls.key_file,
        }
    try:
        return redis.Redis.from_url(
            address.url,
            protocol=2,
            client_name="penstock",
            socket_connect_timeout=LOOK_TIMEOUT_S if is_look else CONNECT_TIMEOUT_S,
            socket_timeout=LOOK_TIMEOUT_S if is_look else SOCKET_TIMEOUT_S,
            retry=retry(backoff.NoBackoff(), 0)
            if is_look
            else retry(waits, RETRIES, (redis.exceptions.ConnectionError,)),
            **{name: value for name, value in options.items() if value is not None},
        )
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{where}: redis refuses the URL {address}: {type(error).__name__}. Check its database "
            "and its parameters."
        ) from error


@contextmanager
def told(address: RedisAddress, where: str) -> Generator[None]:
    """Tells errors of the client in one line.

    Raises: RefusedForGood: what another try cannot change. ExternalError: all else.
    """
    redis = extra("redis", "redis", where)
    try:
        yield
    except redis.exceptions.RedisError as error:
        if refusal := tls_refusal(error):
            raise RefusedForGood(f"{where}: the server {address}: {refusal}.") from error
        if is_final(redis, error):
            raise RefusedForGood(
                f"{where}: the server {address} refuses: {error}. Correct the user, its rights "
                "(ACL), or the name of the stream."
            ) from error
        if isinstance(error, redis.exceptions.TimeoutError):
            limits = f"{CONNECT_TIMEOUT_S:g} s to connect, or {SOCKET_TIMEOUT_S:g} s for an answer"
            raise ExternalError(
                f"{where}: the server {address} does not answer: {error}. "
                f"Waited for {limits}. {HELP}"
            ) from error
        raise ExternalError(
            f"{where}: the server {address} fails: {type(error).__name__}: {error}"
        ) from error


def is_final(redis: Any, error: BaseException) -> bool:
    """Whether the server has refused user, password, rights or the kind of a key."""
    known = redis.exceptions
    if isinstance(error, known.AuthenticationError | known.NoPermissionError):
        return True
    if not isinstance(error, known.ResponseError):
        return False
    # In a pipeline the server's words come behind those of the client.
    return any(code in str(error) for code in ("WRONGTYPE", "NOAUTH", "WRONGPASS", "NOPERM"))


def check_server(address: RedisAddress, streams: Sequence[str], where: str) -> None:
    """Logs in and looks at the streams, if the server can be reached from here.

    A user that may do what the job does, but not look at the types of keys, is right.

    Raises: ConfigurationError: it refuses the login, or a key is no stream. A server that is not reached is not told.
    """
    redis = extra("redis", "redis", where)
    client = connect(address, where, is_look=True)
    try:
        for name in streams:
            kind = client.type(name)
            if kind not in {b"stream", b"none"}:
                raise ConfigurationError(
                    f"{where}: the key {name!r} on {address} is a {kind.decode()}, expected a "
                    "stream, or a key that is not there yet. Correct the name."
                )
    except redis.exceptions.RedisError as error:
        may_not_look = isinstance(error, redis.exceptions.NoPermissionError)
        if may_not_look and _NO_LOOK.search(str(error)):
            return
        if address.url.startswith("rediss:") and (doubt := tls_doubt(error)):
            raise ConfigurationError(f"{where}: the server {address}: {doubt}.") from error
        if is_final(redis, error):
            raise ConfigurationError(
                f"{where}: the server {address} refuses the connection: {error}. Correct the user, "
                "the password (set_credentials), or the user's rights."
            ) from error
    finally:
        client.close()
