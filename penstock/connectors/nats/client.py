"""The client library nats-py as the connector uses it: one connection on a thread with an event loop, and its errors as text.

The library's own reconnecting is off: it would keep what is under way for a server that may have lost it. Here a call that fails is
made again on a new connection, and callers make calls that may be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self, TypeVar

from penstock.common.extras import extra
from penstock.connectors.api.builder import ServerBuilder, ServerSettings
from penstock.connectors.clients.tls import TlsFiles, tls_doubt, tls_refusal
from penstock.engine.hosting.os.clock import HELP
from penstock.engine.hosting.os.interrupts import uninterruptible_condition
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.runtime.interruption import uninterruptible

CONNECT_TIMEOUT_S: Final = 5.0
LOOK_TIMEOUT_S: Final = 3.0
CALL_TIMEOUT_S: Final = 30.0
RETRIES: Final = 8
FIRST_DELAY_S: Final = 0.05
LONGEST_DELAY_S: Final = 1.0
_REFUSED: Final = ("authorization violation", "authentication", "permissions violation")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NatsSettings(ServerSettings):
    """Where the servers of one cluster are, and who logs in."""

    token: str | None = field(default=None, repr=False)

    ports: ClassVar = {"nats": 4222, "tls": 4222}
    secure: ClassVar = "tls"

    @property
    def has_tls(self) -> bool:
        return self.tls is not None or any(url.startswith("tls:") for url in self.urls)


def checked_subject(where: str, subject: object, *, is_filter: bool) -> str:
    """A subject, or a filter with wildcards. Raises: ConfigurationError."""
    tokens = subject.split(".") if isinstance(subject, str) else []
    is_right = bool(tokens) and all(tokens) and not any(map(_has_space, tokens))
    if not is_filter:
        is_right = is_right and not {"*", ">"} & set(tokens)
    elif ">" in tokens[:-1]:
        is_right = False
    if not is_right:
        kind = (
            "subjects, with * for a token, or > as the last one"
            if is_filter
            else "a subject, without * and >"
        )
        raise ConfigurationError(f"{where}: expected {kind}, got {subject!r:.200}.")
    return str(subject)


def _has_space(token: str) -> bool:
    return not token.isprintable() or " " in token


def checked_stream(where: str, name: object) -> str:
    """The name of a stream. Raises: ConfigurationError."""
    is_right = isinstance(name, str) and bool(name) and not set(name) & set(" .*>/\\\t\r\n")
    if not is_right:
        raise ConfigurationError(
            f"{where}: expected the name of a stream, without spaces, '.', '*', '>', '/' and "
            f"'\\', got {name!r:.200}."
        )
    return str(name)


class NatsBuilder(ServerBuilder):
    """What the builders of source and sink share."""

    always: ClassVar = {"urls": 'set_url("nats://host:4222")'}
    form = "nats://[user:password@]host:4222, or tls:// for TLS, without a path"

    def set_url(self, *urls: str) -> Self:
        """Set the server, or several of one cluster: nats://host:4222, or tls:// for TLS."""
        return self._with_urls(*urls)

    def set_token(self, token: str) -> Self:
        """Set the token, for servers that ask for one instead of a user."""
        return self._with(token=token)


class NatsLink:
    """A connection with a thread of its own. One thread makes calls; `close` may come from another one."""

    def __init__(
        self, address: NatsSettings, where: str, *, retries: int = RETRIES, is_look: bool = False
    ) -> None:
        """`where`: begins errors. `is_look`: it gives up soon."""
        self.address = address
        self._where = where
        self._retries = 0 if is_look else retries
        self._timeout_s = LOOK_TIMEOUT_S if is_look else CONNECT_TIMEOUT_S
        extra("nats", "nats", where)
        self._client: Any = None
        self._lost: asyncio.Future[None]
        self._loop = asyncio.new_event_loop()
        self._is_closed = False
        self._changed = uninterruptible_condition()
        self._thread = threading.Thread(target=self._run, name="nats", daemon=True)
        with uninterruptible():
            self._thread.start()

    def call(self, make: Callable[[Any], Awaitable[T]], timeout_s: float = CALL_TIMEOUT_S) -> T:
        """What `make(client)` gives on the event loop, made again on a new connection if that breaks.

        Raises: RefusedForGood: another try would get the same. ExternalError: no tries or no time are left.
        """
        tries, began_s = 0, time.monotonic()
        while True:
            try:
                return self._result(self._once(make, timeout_s), timeout_s)
            except Exception as error:
                waited_s = time.monotonic() - began_s
                failure = self.failure(error, waited_s)
                tries += 1
                self._result(self._drop(), CONNECT_TIMEOUT_S)
                is_over = isinstance(error, TimeoutError) and waited_s >= CALL_TIMEOUT_S
                is_last = tries > self._retries or is_over or self._is_closed
                if isinstance(failure, RefusedForGood) or is_last:
                    raise failure from error
            time.sleep(min(FIRST_DELAY_S * 2**tries, LONGEST_DELAY_S))

    def is_up(self) -> bool:
        """Whether there is a connection."""
        return self._client is not None and self._client.is_connected

    def drop(self) -> None:
        """Give the connection up. The next call makes another one."""
        self._result(self._drop(), CONNECT_TIMEOUT_S)

    def failure(self, error: BaseException, waited_s: float) -> ExternalError:
        """The error to raise for one of the library's, which came after this time."""
        if isinstance(error, ExternalError):
            return error
        if isinstance(error, TimeoutError):
            return ExternalError(
                f"{self._where}: {self.address} does not answer: waited {waited_s:.0f} s. {HELP}"
            )
        text = f"{self._where}: {self.address} fails: {type(error).__name__}: {error}"
        if refusal := tls_refusal(error):
            return RefusedForGood(f"{self._where}: {self.address}: {refusal}.")
        if is_final(error):
            return RefusedForGood(
                f"{self._where}: {self.address} refuses: {error}. Correct user, password, rights, "
                "the name of the stream or subject, or the stream's limits."
            )
        return ExternalError(text)

    def close(self) -> None:
        """End the connection and its thread."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(Exception):  # what is not there any more needs no end
            self._result(self._drop(), 1.0)
        with uninterruptible():
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CONNECT_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(_cancel_all())
        self._loop.close()

    def _result(self, running: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """What this gives on the event loop. A cancel of the task interrupts the wait, and leaves no lock of the future taken."""
        with uninterruptible():
            future = asyncio.run_coroutine_threadsafe(running, self._loop)
            future.add_done_callback(self._notify)
        try:
            with self._changed:
                self._changed.wait_for(future.done, timeout_s + 2 * CONNECT_TIMEOUT_S)
                return future.result(0)
        except BaseException:
            with uninterruptible():
                future.cancel()
            raise

    def _notify(self, _future: object) -> None:
        with self._changed:
            self._changed.notify_all()

    async def _once(self, make: Callable[[Any], Awaitable[T]], timeout_s: float) -> T:
        if self._client is None or not self._client.is_connected:
            await self._drop()
            self._client = await self._connected()
        call, lost = asyncio.ensure_future(make(self._client)), self._lost
        try:
            await asyncio.wait((call, lost), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
        finally:
            call.cancel()
        if lost.done():  # what was asked on this connection is never answered
            raise ConnectionError("the connection was lost")
        raise TimeoutError(f"no answer within {timeout_s} s")

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await _closed(client)

    async def _connected(self) -> Any:
        address = self.address
        client = _client_class(self._where, wants_tls=address.has_tls)()
        errors: list[Exception] = []

        async def note(error: Exception) -> None:  # noqa: RUF029 - the library awaits it
            errors.append(error)

        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def note_end() -> None:  # noqa: RUF029
            if not lost.done():
                lost.set_result(None)

        user, password = address.credentials
        options: dict[str, Any] = {"user": user, "password": password, "token": address.token}
        if address.has_tls:
            options["tls"] = (address.tls or TlsFiles()).context(self._where)
        try:
            await client.connect(
                list(address.urls),
                name="penstock",
                error_cb=note,
                closed_cb=note_end,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=FIRST_DELAY_S,
                connect_timeout=self._timeout_s,
                **{name: value for name, value in options.items() if value is not None},
            )
        except Exception as error:
            # "No servers" hides what each of them said. What another try gets again is reported
            # first.
            chosen = sorted((*errors, error), key=lambda one: not _is_refusal(one))[0]
            await _closed(client, 0.1)  # the library waits for an end that TLS may never report
            raise chosen from (None if chosen is error else error)
        self._lost = lost
        return client


def most_bytes_of(link: NatsLink) -> int:
    """What the server takes as a message, with its headers. Raises: ExternalError."""

    async def ask(client: Any) -> int:  # noqa: RUF029 - it is awaited
        return int(client.max_payload)

    return link.call(ask)


async def _closed(client: Any, timeout_s: float = 1.0) -> None:
    with contextlib.suppress(Exception):  # it may be broken
        await asyncio.wait_for(client.close(), timeout_s)
    # A library that ran out of time has not closed its socket. Below TLS, which would wait for the server's goodbye.
    transport = client._transport  # noqa: SLF001 - nothing public has it
    writer = getattr(transport, "_bare_io_writer", None)
    if writer is not None:
        writer.transport.abort()


async def _cancel_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.sleep(0)  # transports that were closed get the notice


def _client_class(where: str, *, wants_tls: bool) -> Any:
    """The library's class; if TLS is wanted, one that sends nothing to a server without it."""
    base: Any = extra("nats.aio.client", "nats", where).Client
    if not wants_tls:
        return base
    wanted = extra("nats.errors", "nats", where).SecureConnWantedError

    class TlsClient(base):  # type: ignore[misc] # the library is imported late
        async def _process_info(self, info: Any, initial_connection: bool = False) -> None:
            if initial_connection and not info.get("tls_required"):
                raise wanted
            await super()._process_info(info, initial_connection=initial_connection)

    return TlsClient


def is_final(error: BaseException) -> bool:
    """Whether the server has refused user, rights, TLS, or a request that can never succeed."""
    if type(error).__name__ in {
        "SecureConnWantedError",
        "AuthorizationError",
        "MaxPayloadError",
        "BadSubjectError",
    }:
        return True
    code = getattr(error, "code", None)
    if isinstance(code, int):
        return 400 <= code < 500 and code != 408
    return any(text in str(error).lower() for text in _REFUSED)


def _is_refusal(error: BaseException) -> bool:
    return is_final(error) or tls_refusal(error) is not None


def look(address: NatsSettings, where: str, check: Callable[[Any], Awaitable[None]]) -> None:
    """Log in and check, if a server can be reached from here.

    Raises: ConfigurationError: the server refuses, or `check` does. A server that is not reached is
    not reported.
    """
    link = NatsLink(address, where, is_look=True)
    try:
        link.call(check, LOOK_TIMEOUT_S)
    except RefusedForGood as error:
        raise ConfigurationError(str(error)) from error
    except ExternalError as error:
        if isinstance(error.__cause__, ConfigurationError):
            raise error.__cause__ from None
        if address.has_tls and (doubt := tls_doubt(error)):
            raise ConfigurationError(f"{where}: {address}: {doubt}.") from error
    finally:
        link.close()


def overlap(filters: Sequence[str]) -> tuple[str, str] | None:
    """Two filters that have a subject in common; None: there are none."""
    for number, one in enumerate(filters):
        for other in filters[number + 1 :]:
            if _overlaps(one.split("."), other.split(".")):
                return one, other
    return None


def _overlaps(one: Sequence[str], other: Sequence[str]) -> bool:
    for mine, theirs in zip(one, other, strict=False):
        if ">" in {mine, theirs}:
            return True
        if mine != theirs and "*" not in {mine, theirs}:
            return False
    return len(one) == len(other)
