"""The client library redis as the connector uses it: its settings, the checks at submit, its errors as text.

Redis Cluster is not supported: a stream and the marks of commits may lie on different nodes there.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from penstock.common.extras import extra
from penstock.connectors.api.builder import ServerBuilder, ServerSettings
from penstock.connectors.clients.tls import tls_doubt, tls_refusal
from penstock.engine.hosting.os.clock import HELP
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood

CONNECT_TIMEOUT_S: Final = 5.0
SOCKET_TIMEOUT_S: Final = 30.0
LOOK_TIMEOUT_S: Final = 3.0
RETRIES: Final = 6
FIRST_DELAY_S: Final = 0.05
LONGEST_DELAY_S: Final = 1.0
_NO_LOOK: Final = re.compile(r"run the 'type' command")


@dataclass(frozen=True, slots=True)
class RedisSettings(ServerSettings):
    """Where a server is, and who logs in."""

    ports: ClassVar = {"redis": 6379, "rediss": 6379, "unix": 0}
    secure: ClassVar = "rediss"
    takes_path: ClassVar = True


def checked_name(where: str, name: object) -> str:
    """The name of a stream. Raises: ConfigurationError."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{where}: a stream's name is a text, not empty; got {name!r}.")
    return name


class RedisBuilder(ServerBuilder):
    """What the builders of source and sink share."""

    always: ClassVar = {"urls": 'set_url("redis://host:6379/0")'}
    form = "redis://[user:password@]host:6379/0, rediss:// for TLS, or unix:///path"

    def set_url(self, url: str) -> Self:
        """Set the server: redis://host:6379/0, rediss:// for TLS, or unix:///path."""
        return self._with_urls(url)


def connect(address: RedisSettings, where: str, *, is_look: bool = False) -> Any:
    """A client, which connects when it is used. `is_look`: it gives up soon.

    Raises: ConfigurationError: redis is missing.
    """
    redis = extra("redis", "redis", where)
    backoff = extra("redis.backoff", "redis", where)
    retry = extra("redis.retry", "redis", where).Retry
    # A server that was killed is back after a while, and loads its data meanwhile, which is a
    # ConnectionError too. One that does not answer in time has been waited for.
    waits = backoff.ExponentialBackoff(cap=LONGEST_DELAY_S, base=FIRST_DELAY_S)
    options = dict(zip(("username", "password"), address.login, strict=True))
    if address.tls is not None:
        address.tls.context(where)  # whether the files can be read
        options |= {
            "ssl_ca_certs": address.tls.ca_file,
            "ssl_certfile": address.tls.certificate_file,
            "ssl_keyfile": address.tls.key_file,
        }
    try:
        return redis.Redis.from_url(
            address.urls[0],
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
def clear_errors(address: RedisSettings, where: str) -> Generator[None]:
    """Raise errors of the client with one line of text.

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
    # In a pipeline the server's words come after those of the client.
    return any(code in str(error) for code in ("WRONGTYPE", "NOAUTH", "WRONGPASS", "NOPERM"))


def check_server(address: RedisSettings, streams: Sequence[str], where: str) -> None:
    """Log in and look at the streams, if the server can be reached from here.

    A user that may do what the job does, but not look at the types of keys, is accepted.

    Raises: ConfigurationError: it refuses the login, or a key is no stream. A server that is not
    reached is not reported.
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
        if address.has_tls and (doubt := tls_doubt(error)):
            raise ConfigurationError(f"{where}: the server {address}: {doubt}.") from error
        if is_final(redis, error):
            raise ConfigurationError(
                f"{where}: the server {address} refuses the connection: {error}. Correct the user, "
                "the password (set_credentials), or the user's rights."
            ) from error
    finally:
        client.close()
