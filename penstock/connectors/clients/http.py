"""A small HTTP client of the standard library: time limits on whole requests, retries with back-off, Retry-After.

Does not know streams. Source: RFC 9110 (statuses, Retry-After).
"""

from __future__ import annotations

import http.client
import io
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.connectors.clients.tls import SettingNames, TlsFiles, tls_refusal
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood

AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which another try may succeed: the server, or one that it depends on, is busy."""
FIRST_DELAY_S: Final = 0.25
LONGEST_DELAY_S: Final = 30.0
MOST_BYTES: Final = 64 << 20
_SENT: Final = re.compile(r"[!-~]*")
"""Signs of a URL: ASCII that is seen."""
_SLICE_S: Final = 0.25
_NAMES: Final = SettingNames()
_PIECE: Final = 1 << 16
_SHOWN: Final = 300
_FORM: Final = (
    "http://host:port/path or https://..., with a token in set_bearer_token or set_header"
)
PLAIN: Final = "the URL is without TLS. Write https:// instead of http://."


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. As text it shows neither headers nor the query, which may have secrets."""

    url: str = field(repr=False)
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{self.method} {parts.scheme}://{parts.hostname}{port}{parts.path}"


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer with a 2xx status. `headers`: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """`timeout_s`: for one try. `retries`: after the first try."""

    timeout_s: float = 30.0
    retries: int = 8


class _TimedReads(io.RawIOBase):
    """What comes on a connection until a time: a server that sends byte by byte meets it, too, within the head of its answer."""

    def __init__(self, inner: Any, connection: Any, deadline_s: float) -> None:
        """`inner`: what it reads; it keeps the connection open until it is closed."""
        self._inner = inner
        self._connection = connection
        self._deadline_s = deadline_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Raises: TimeoutError."""
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer takes too long")
        self._connection.settimeout(left_s)
        count: int | None = self._inner.raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._inner.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, deadline_s: float, connection: Any, *args: Any, **more: Any) -> None:
        super().__init__(connection, *args, **more)
        self.fp = io.BufferedReader(_TimedReads(self.fp, connection, deadline_s))


def is_plain(url: str) -> bool:
    return urlsplit(url).scheme != "https"


def checked_url(where: str, url: object, form: str = _FORM) -> str:
    """The URL. `form`: what is expected. Raises: ConfigurationError, which does not show it."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        is_right = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        is_right = is_right and parts.username is None and bool(_SENT.fullmatch(str(url)))
    except ValueError:
        is_right = False
    if not is_right:
        raise ConfigurationError(
            f"{where}: expected {form}; got {type(url).__name__} that has another form, or a user "
            "before its host, or a sign that is to be written as %XX (urllib.parse.quote): spaces, "
            "and all beyond ASCII."
        )
    return str(url)


def _without_query(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "something that is no URL"
    place = f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else ""
    return f"{place}{parts.path}"


class HttpRefused(RefusedForGood):
    """A status that another try gets again. `body`: of the answer."""

    def __init__(self, text: str, status: int, body: bytes) -> None:
        super().__init__(text)
        self.status = status
        self.body = body

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.status, self.body)


class HttpClient:
    """Keeps one connection. Used by one thread at a time; `close` may come from another one."""

    def __init__(
        self,
        where: str,
        limits: HttpLimits,
        tls: TlsFiles | None = None,
        *,
        names: SettingNames = _NAMES,
        sleep_s: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`where`: begins errors. `names`: the settings that they name. Raises: ConfigurationError:
        a file of `tls` cannot be read.
        """
        self._where = where
        self._limits = limits
        self._names = names
        self._tls = None if tls is None else tls.context(where)
        self._sleep_s = sleep_s
        self._now_s = now_s
        self._connection: http.client.HTTPConnection | None = None
        self._target: tuple[str, str] | None = None
        self._is_closed = False

    def send(self, request: HttpRequest) -> HttpResponse:
        """The answer.

        Raises: HttpRefused: a status that another try gets again.
        RefusedForGood: TLS does not fit, or the answer is too long. ExternalError: no tries are left, or it is closed.
        ConfigurationError: the URL is none, or is without TLS although there are files of TLS.
        """
        checked_url(f"{self._where}: the URL of a request", request.url)
        if self._tls is not None and is_plain(request.url):
            raise ConfigurationError(f"{self._where}: {request}: {PLAIN}")
        delays_s = self._delays_s()
        while True:
            answer, after_s, why = self._try(request)
            if answer is not None:
                return answer
            delay_s = next(delays_s, None)
            if delay_s is None or self._is_closed:
                raise ExternalError(
                    f"{self._where}: {request} has failed {self._limits.retries + 1} times, the "
                    f"last time with {why}. {self._names.retries} allow more."
                )
            self._wait(delay_s if after_s is None else min(after_s, LONGEST_DELAY_S))

    def close(self) -> None:
        """Also ends a request under way."""
        self._is_closed = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            try:
                connection.sock.shutdown(2)
            except OSError:  # it is closed already
                pass

    def _try(self, request: HttpRequest) -> tuple[HttpResponse | None, float | None, str]:
        """The answer; or None, how long the server wants us to wait, and what was wrong."""
        try:
            answer = self._fresh(request)
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            if refusal := tls_refusal(error, self._names.remedies):
                raise RefusedForGood(f"{self._where}: {request}: {refusal}.") from error
            return None, None, f"{type(error).__name__}: {error}"
        if 200 <= answer.status < 300:
            return answer, None, ""
        text = answer.body[:_SHOWN].decode("utf-8", "replace")
        why = f"status {answer.status}: {text!r}"
        if answer.status in AGAIN:
            return None, self._retry_after_s(answer.headers.get("retry-after")), why
        location = answer.headers.get("location")
        if 300 <= answer.status < 400 and location:
            # As in HttpRequest's text: a query may have secrets.
            why += f", a redirect to {_without_query(location)!r:.200}, which is not followed"
        raise HttpRefused(
            f"{self._where}: {request} is refused with {why}. Correct the address, the rights of "
            "the token, or what is sent.",
            answer.status,
            answer.body,
        )

    def _fresh(self, request: HttpRequest) -> HttpResponse:
        """Once; and again if the server had closed a connection that was idle."""
        was_used = self._connection is not None
        try:
            return self._once(request)
        except ConnectionError:
            if not was_used or self._is_closed:
                raise
            self._drop()
            return self._once(request)

    def _once(self, request: HttpRequest) -> HttpResponse:
        deadline_s = time.monotonic() + self._limits.timeout_s
        parts = urlsplit(request.url)
        target = (parts.scheme, parts.netloc)
        if self._connection is None or self._target != target:
            self._drop()
            host = parts.hostname or ""
            self._connection = (
                http.client.HTTPSConnection(host, parts.port, context=self._tls)
                if parts.scheme == "https"
                else http.client.HTTPConnection(host, parts.port)
            )
            self._target = target
        connection = self._connection
        made = partial(_TimedResponse, deadline_s)
        connection.response_class = made  # type: ignore[assignment] # it is only called
        connection.timeout = self._limits.timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(self._limits.timeout_s)
        query = f"?{parts.query}" if parts.query else ""
        connection.request(
            request.method, f"{parts.path or '/'}{query}", request.body, dict(request.headers)
        )
        answer = connection.getresponse()
        body = bytearray()
        while piece := answer.read1(_PIECE):
            body += piece
            if len(body) > MOST_BYTES:
                self._drop()
                raise RefusedForGood(
                    f"{self._where}: the answer of {request} has more than {MOST_BYTES} bytes. Ask "
                    "for smaller pages."
                )
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the answer is not there after {self._limits.timeout_s} s")
        if answer.length:
            raise http.client.IncompleteRead(bytes(body), answer.length)
        answer.close()  # or the connection would not be free for the next request
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return HttpResponse(answer.status, headers, bytes(body))

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _delays_s(self) -> Iterator[float]:
        """Half of each delay is by chance, so that many writers do not come back at once."""
        for number in range(self._limits.retries):
            delay_s = min(FIRST_DELAY_S * 2**number, LONGEST_DELAY_S)
            yield delay_s * (0.5 + random.random() / 2)

    def _retry_after_s(self, value: str | None) -> float | None:
        """Seconds, or until a date; None: the server does not say."""
        if value is None:
            return None
        if value.strip().isdecimal():
            return float(value)
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - self._now_s())
        except ValueError:
            return None

    def _wait(self, delay_s: float) -> None:
        """In slices, so that a task that is cancelled does not wait for all of it."""
        while delay_s > 0 and not self._is_closed:
            self._sleep_s(min(delay_s, _SLICE_S))
            delay_s -= _SLICE_S

    def release(self) -> None:
        """Close the connection. No request is under way."""
        self.close()
        self._drop()
