"""Asks a REST server: Penstock's, or Flink's own.

Vertices of a job, and what parallelism they may have, as REST answers and takes them.
"""

from __future__ import annotations

import contextlib
import copy
import hmac
import http.client
import json
import os
import re
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

from penstock.engine.hosting.network.wire.addresses import is_loopback
from penstock.engine.hosting.os.socket_owners import ROOT, owners_of_listeners
from penstock.engine.model.elastic import ParallelismBounds
from penstock.engine.model.errors import PenstockError
from penstock.ops.rest.address_book import proof_of

T = TypeVar("T")
_TIMEOUT_S: Final = 30.0
_NAME: Final = re.compile(r"filename\*=UTF-8''(\S+)")
_RANGE: Final = re.compile(r"bytes (\d+)-")
_NO_NEWS: Final = "Internal server error."
"""What Flink puts before the text that says what is wrong."""
_PARTIAL: Final = 206
_NEEDS_TOKEN: Final = 401
_BEHIND_THE_END: Final = 416


class RemoteError(PenstockError):
    """A driver could not be asked, or refused. `status`: of HTTP; 0: nobody answered."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class LateAnswer(RemoteError):
    """A driver took a request and did not answer in time. It may be stopped or busy; it has not ended."""


class OperationFailed(RemoteError):
    """An operation has ended without its result."""


def pauses(first_s: float = 0.01, longest_s: float = 2.0) -> Iterator[float]:
    """Yield the pauses between requests, in s: each is twice the one before."""
    while True:
        yield first_s
        first_s = min(2 * first_s, longest_s)


def polled(
    look: Callable[[], T | None], waits: Iterator[float], timeout_s: float | None
) -> T | None:
    """Look again and again until something is found. None: there is nothing after this time."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while (found := look()) is None:
        pause_s = next(waits)
        left_s = pause_s if deadline is None else deadline - time.monotonic()
        if left_s <= 0:
            break
        time.sleep(min(pause_s, left_s))
    return found


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file. `name`: "" where the server does not name it. `begin`: of the first byte of `data`."""

    name: str
    begin: int
    data: bytes


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: urllib would send the token to wherever it points."""

    def redirect_request(self, *_: object) -> None:
        return None


class RestClient:
    """Asks one REST server. One of this machine is asked directly, whatever proxy is set. Redirects are refused.

    Nothing but questions goes to a server of this machine that is another user's (and not root's) before it has proved that it has the
    token: a stranger who listens there would get the token, or the program.

    `address`: for example `http://localhost:8081`. `token`: shown with requests that change something, with all requests to other
    machines, and with those that a server of this machine does not answer without.
    """

    def __init__(
        self, address: str, token: str | None = None, certificates: str | None = None
    ) -> None:
        """`certificates`: a PEM file, for HTTPS with certificates that this machine does not trust.

        Raises RemoteError: the address is not of HTTP, or the file cannot be read.
        """
        if not address.startswith(("http://", "https://")):
            raise RemoteError(f"{address!r} is no address of a REST server: it is http or https")
        self.address = address.rstrip("/")
        self.token = token
        self._timeout_s = _TIMEOUT_S
        self._is_here = is_loopback(urlsplit(self.address).hostname or "")
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if self._is_here:
            handlers.append(urllib.request.ProxyHandler({}))
        try:
            # Not for HTTP: it reads all authorities of this machine, which takes some 20 ms.
            if certificates is not None or self.address.startswith("https://"):
                tls = ssl.create_default_context(cafile=certificates)
                handlers.append(urllib.request.HTTPSHandler(context=tls))
        except OSError as error:
            raise RemoteError(f"--cacert {certificates}: {error}") from None
        self._opener = urllib.request.build_opener(*handlers)

    def waiting(self, timeout_s: float) -> RestClient:
        """Return a client of the same server that waits no longer for it."""
        found = copy.copy(self)
        found._timeout_s = timeout_s
        return found

    def get(self, path: str, **query: object) -> Any:
        """Return the answer. Raises RemoteError."""
        return self.change("GET", path, None, **query)

    def change(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: object
    ) -> Any:
        """Send a request that changes something, and return the answer. Raises RemoteError."""
        with self._opened(method, path, query, body) as answer:
            found: bytes = answer.read()
        try:
            return json.loads(found)
        except ValueError:
            raise RemoteError(
                f"{self.address}{path} did not answer with JSON. Is a REST server there?"
            ) from None

    def send(self, path: str, data: bytes, media: str, **query: object) -> Any:
        """Send bytes of this media type, and return the answer. Raises RemoteError."""
        with self._opened("POST", path, query, data, {"Content-Type": media}) as answer:
            return json.loads(answer.read())

    def file(self, path: str, begin: int = 0, end: int | None = None) -> FilePart | None:
        """Return a part of a file; None: there is nothing from `begin` on. Raises RemoteError.

        `begin`: a negative one counts from the end. `end`: after the last byte. A server that gives whole files only, as
        Flink's does, is asked in vain for a part, so that it is cut out here.
        """
        last = "" if end is None else end - 1
        headers = {"Range": f"bytes={begin if begin < 0 else f'{begin}-{last}'}"}
        try:
            with self._opened("GET", path, {}, None, headers) as answer:
                data: bytes = answer.read()
                named = _NAME.search(answer.headers.get("Content-Disposition", ""))
                spans = _RANGE.match(answer.headers.get("Content-Range", ""))
                is_part = answer.status == _PARTIAL
        except RemoteError as error:
            if error.status == _BEHIND_THE_END:
                return None
            raise
        name = "" if named is None else unquote(named[1])
        if is_part and spans is not None:
            return FilePart(name, int(spans[1]), data)
        first = begin if begin >= 0 else max(0, len(data) + begin)
        return FilePart(name, first, data[first:end]) if first < len(data) else None

    def operation(self, path: str, body: Mapping[str, Any], status: str) -> dict[str, Any]:
        """Start an operation, wait for its end, and return its result.

        `status`: the path of the operation, with `{}` for its id. Raises RemoteError: it failed, or cannot be asked for.
        """
        started = self.change("POST", path, body)["request-id"]
        return self.result(status.format(started), pauses()) or {}

    def result(
        self, status: str, waits: Iterator[float], timeout_s: float | None = None
    ) -> dict[str, Any] | None:
        """Wait for the result of the operation at this path. None: there is none after this time.

        Raises RemoteError: it cannot be asked for; OperationFailed: it failed.
        """

        def look() -> dict[str, Any] | None:
            answer = self.get(status)
            found: dict[str, Any] = answer["operation"]
            return found if answer["status"]["id"] == "COMPLETED" else None

        result = polled(look, waits, timeout_s)
        failure = result and (result.get("failure-cause") or result.get("failureCause"))
        if failure:
            raise OperationFailed(failure.get("stack-trace") or "the operation failed")
        return result

    def _refuse_strangers(self) -> None:
        """Raises: RemoteError: another user's process listens there, and does not prove itself. OSError."""
        place = urlsplit(self.address)
        port = place.port or (443 if place.scheme == "https" else 80)
        owners = owners_of_listeners(place.hostname or "", port)
        if owners and owners <= {ROOT, os.geteuid()}:
            return
        nonce = secrets.token_hex(16)
        if self.token is not None:
            asking = copy.copy(self)
            asking.token = None
            proof = asking.get("/proof", nonce=nonce)["proof"]
            if hmac.compare_digest(proof, proof_of(self.token, nonce, port)):
                return
        who = " and ".join(f"user {one}" for one in sorted(owners)) or "somebody"
        raise RemoteError(
            f"{self.address} is listened at by {who}, not by this user, and it does not prove that "
            "it has the token. Nothing was sent to it. Name the driver that is meant with -m, and "
            "its token with --token."
        )

    def _answer_to(self, request: urllib.request.Request) -> Any:
        """A question to this machine shows the token only if it is not answered without. Raises: HTTPError, OSError, RemoteError."""
        try:
            return self._opener.open(request, timeout=self._timeout_s)
        except urllib.error.HTTPError as error:
            if error.code != _NEEDS_TOKEN or not self._is_here or self.token is None:
                raise
            if request.has_header("Authorization"):
                raise
            error.close()
        self._refuse_strangers()
        request.add_header("Authorization", f"Bearer {self.token}")
        return self._opener.open(request, timeout=self._timeout_s)

    @contextlib.contextmanager
    def _opened(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: Any,
        more: Mapping[str, str] | None = None,
    ) -> Generator[Any]:
        """Give the answer. `body`: JSON data, or bytes. `more`: headers. Raises RemoteError, also while it is read."""
        asked = {key: value for key, value in query.items() if value is not None}
        url = self.address + quote(path) + (f"?{urlencode(asked)}" if asked else "")
        headers = dict(more or {})
        data = body if isinstance(body, bytes) else None
        if body is not None and data is None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        if self.token is not None and not (self._is_here and method == "GET"):
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            if self._is_here and ("Authorization" in headers or isinstance(body, bytes)):
                self._refuse_strangers()
            request = urllib.request.Request(url, data, headers, method=method)
            with self._answer_to(request) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            with error:
                raise RemoteError(_refusal(error), error.code) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            raise (LateAnswer if isinstance(cause, TimeoutError) else RemoteError)(
                f"no driver answers at {self.address}: {cause}. `penstock list` shows those of "
                "this "
                "user."
            ) from None


def _refusal(error: urllib.error.HTTPError) -> str:
    """Return what the server says, without a stack trace of Java."""
    try:
        texts = json.loads(error.read())["errors"]
    except (ValueError, KeyError, TypeError):
        return f"the driver answered {error.code} {error.reason}"
    errors = [str(text).partition("\n\tat ")[0] for text in texts]
    return "; ".join(errors[1:] if errors[:1] == [_NO_NEWS] and errors[1:] else errors)


def vertex_of(details: Mapping[str, Any], wanted: str) -> dict[str, Any]:
    """Return the one vertex that is meant: by its id, the beginning of its id, its name, or a part of its name.

    `details`: the job, as `/jobs/:jobid` answers it. Raises RemoteError: there is none, or more than one.
    """
    vertices: list[dict[str, Any]] = details["vertices"]
    text = wanted.lower()
    ways: tuple[Callable[[Mapping[str, Any]], bool], ...] = (
        lambda one: one["name"] == wanted,
        lambda one: one["id"].startswith(text),
        lambda one: text in one["name"].lower(),
    )
    for way in ways:
        meant = [one for one in vertices if way(one)]
        if len(meant) == 1:
            return meant[0]
        if meant:
            break
    names = ", ".join(f"{one['id'][:8]} '{one['name']}'" for one in meant or vertices)
    if not meant:
        raise RemoteError(f"the job has no vertex {wanted!r}. Vertices: {names}")
    raise RemoteError(f"{len(meant)} vertices are meant by {wanted!r}: {names}. Name one.")


def requirements_with(
    details: Mapping[str, Any],
    now: Mapping[str, ParallelismBounds],
    asked: Mapping[str, int | tuple[int, int]],
) -> dict[str, ParallelismBounds]:
    """Return the bounds of all vertices, by id. A vertex that is not asked for keeps what it has (`now`, by id).

    A number is the upper bound; the lower one is then as it is, or less. `details`: the job, as `/jobs/:jobid` answers it.
    Raises RemoteError: there is no such vertex, or more than one.
    """
    found = dict(now)
    for name, wanted in asked.items():
        key = vertex_of(details, name)["id"]
        if isinstance(wanted, tuple):
            found[key] = ParallelismBounds(*wanted)
        else:
            found[key] = ParallelismBounds(min(found[key].lower, wanted), wanted)
    return found
