"""A client of Elasticsearch's bulk API, over HTTP of the standard library. Does not know any stream.

If the server is too busy for some actions (429, 503), these actions alone are sent again, with the delays of the
back-off. A whole request is sent again if no host has answered or a host failed (5xx). Any other refusal is an error
that names the document. Source: Elasticsearch's bulk API and BulkProcessor.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood

BUSY: Final = frozenset({429, 503})
PASSING: Final = frozenset({404, 408, 409, 425})
"""Of a document: an index that is not there yet, a time-out, a document that others change in this moment."""
TEXT_SHOWN: Final = 300
# Those of Elasticsearch's RestClientBuilder, which Flink keeps where nothing else is set.
CONNECTION_TIMEOUT_MS: Final = 1_000
SOCKET_TIMEOUT_MS: Final = 30_000


class FlushBackoffType(Enum):
    """How the delay before a retry grows: not at all, exponentially, or no retry at all."""

    CONSTANT = 1
    EXPONENTIAL = 2
    NONE = 3


@dataclass(frozen=True, slots=True)
class BulkBackoff:
    """The retries of a request. `delay_ms`: the delay before the first of `max_retries` retries."""

    kind: FlushBackoffType = FlushBackoffType.NONE
    max_retries: int = 0
    delay_ms: int = 0

    def delays_ms(self) -> Iterator[int]:
        """The delay before each retry."""
        if self.kind is FlushBackoffType.NONE:
            return
        grows = self.kind is FlushBackoffType.EXPONENTIAL
        for number in range(self.max_retries):
            more_ms = 10 * (int(math.exp(0.8 * number)) - 1) if grows else 0
            yield self.delay_ms + more_ms


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of the server and how to reach it; timeouts in ms, None: the operating system's default."""

    hosts: tuple[str, ...] = ()
    username: str | None = None
    password: str | None = None
    path_prefix: str = ""
    connection_timeout_ms: int | None = CONNECTION_TIMEOUT_MS
    socket_timeout_ms: int | None = SOCKET_TIMEOUT_MS

    @property
    def path(self) -> str:
        prefix = self.path_prefix.strip("/")
        return f"/{prefix}/_bulk" if prefix else "/_bulk"

    def headers(self) -> dict[str, str]:
        made = {"Content-Type": "application/x-ndjson", "Accept": "application/json"}
        if self.username is not None:
            pair = f"{self.username}:{self.password or ''}".encode()
            made["Authorization"] = f"Basic {base64.b64encode(pair).decode('ascii')}"
        return made


@dataclass(frozen=True, slots=True)
class Action:
    """One document, as lines of a bulk request. `shown`: the record as error texts show it."""

    lines: bytes
    shown: str


class BulkClient:
    """Sends actions, and returns when all are written. `sleep_s`: the function that waits."""

    def __init__(
        self,
        connection: Connection,
        backoff: BulkBackoff,
        where: str,
        sleep_s: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = connection
        self._backoff = backoff
        self._where = where
        self._sleep_s = sleep_s
        self._next_host = 0

    def send(self, actions: Sequence[Action]) -> None:
        """Raises: ExternalError: the server refuses an action, or there are no retries left."""
        left = list(actions)
        delays_ms = self._backoff.delays_ms()
        while left:
            try:
                left, why = self._refused(left)
            except _Unanswered as error:
                why = str(error)
            if not left:
                return
            delay_ms = next(delays_ms, None)
            if delay_ms is None:
                raise ExternalError(
                    f"{self._where}: {len(left)} of {len(actions)} documents could not be written: {why}. The first: "
                    f"{left[0].shown}. Back-off: {self._backoff.kind.name}, {self._backoff.max_retries} retries "
                    "(set_bulk_flush_backoff_strategy allows more)."
                )
            self._sleep_s(delay_ms / 1000)

    def _refused(self, actions: Sequence[Action]) -> tuple[list[Action], str]:
        """The actions to send again, and why.

        Raises: _Unanswered: no action is known to be written. RefusedForGood: the server would refuse again. ExternalError: it may not.
        """
        status, body = self._post(b"".join(action.lines for action in actions))
        if status != 200:
            text = f"status {status}: {body[:TEXT_SHOWN].decode('utf-8', 'replace')}"
            if status in BUSY or status >= 500:
                raise _Unanswered(text)
            raise RefusedForGood(
                f"{self._where}: the server refuses the request with {text}. Check user, password, "
                "path prefix, and what it allows (set_bulk_flush_max_size_mb limits a request). "
                f"The first document: {actions[0].shown}"
            )
        again: list[Action] = []
        why = ""
        for action, item in zip(actions, self._items(body, len(actions)), strict=True):
            (result,) = item.values()
            if result["status"] in BUSY:
                again.append(action)
                why = why or f"status {result['status']}: {_reason(result)}"
            elif "error" in result:
                may_pass = result["status"] in PASSING or result["status"] >= 500
                error = ExternalError if may_pass else RefusedForGood
                raise error(
                    f"{self._where}: a document is refused with status {result['status']}: {_reason(result)}. The record: {action.shown}"
                )
        return again, why

    def _items(self, body: bytes, expected: int) -> list[Any]:
        try:
            items = json.loads(body)["items"]
        except (ValueError, KeyError, TypeError) as error:
            raise ExternalError(
                f"{self._where}: the answer is not one of Elasticsearch's bulk API ({error!r}): "
                f"{body[:TEXT_SHOWN]!r}. Check the host and the path prefix."
            ) from error
        if len(items) != expected:
            raise ExternalError(
                f"{self._where}: {expected} actions were sent, but {len(items)} are answered."
            )
        return list(items)

    def _post(self, body: bytes) -> tuple[int, bytes]:
        """The answer of the first host that answers, beginning with the host that answered last."""
        hosts = self._connection.hosts
        errors = []
        is_untrusted = True
        for _ in hosts:
            host = hosts[self._next_host]
            try:
                return self._post_to(parsed_host(host), body)
            except (OSError, http.client.HTTPException) as error:
                errors.append(f"{host}: {type(error).__name__}: {error}")
                is_untrusted = is_untrusted and isinstance(error, ssl.SSLCertVerificationError)
                self._next_host = (self._next_host + 1) % len(hosts)
        text = f"no host answers ({'; '.join(errors)})"
        if is_untrusted:
            raise RefusedForGood(
                f"{self._where}: {text}. Correct the host's name, or have this Python trust the "
                "authority that has signed the certificate: SSL_CERT_FILE names its file."
            )
        raise _Unanswered(text)

    def _post_to(self, host: SplitResult, body: bytes) -> tuple[int, bytes]:
        settings = self._connection
        kind = http.client.HTTPSConnection if host.scheme == "https" else http.client.HTTPConnection
        connection = kind(host.hostname or "", host.port)
        if settings.connection_timeout_ms is not None:
            connection.timeout = settings.connection_timeout_ms / 1000
        try:
            connection.connect()
            socket_ms = settings.socket_timeout_ms
            connection.sock.settimeout(None if socket_ms is None else socket_ms / 1000)
            connection.request("POST", settings.path, body, settings.headers())
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


class _Unanswered(Exception):
    """It is not known whether the actions were written."""


def parsed_host(host: str) -> SplitResult:
    """The connection to `host:port` or a URL. Raises: ConfigurationError."""
    try:
        parts = urlsplit(host if "://" in host else f"http://{host}")
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return parts
    except ValueError:  # reported below
        pass
    raise ConfigurationError(
        f"Elasticsearch: {host!r} is not a host. Expected a text such as 'localhost:9200' or "
        "'https://search:9200'."
    )


def _reason(result: Any) -> str:
    error = result.get("error", "")
    if isinstance(error, dict):
        return f"{error.get('type')}: {error.get('reason')}"
    return str(error)
