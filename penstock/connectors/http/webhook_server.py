"""The server of a WebhookSource and its queue: threads of requests put records in, the reader takes them out.

Records are numbered as they come into the queue. A request that waits for a checkpoint waits until its last number is covered.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hmac
import io
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast
from urllib.parse import urlsplit

from penstock.common.serialization import DeserializationSchema
from penstock.connectors.api.base import Batch, QueuePoller, RowBatch
from penstock.connectors.api.messaging.records import NO_RECORDS, batch_of
from penstock.connectors.clients.tls import TlsFiles
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.records.dead_letters import Malformed, MarkedRows

_ROWS: Final = 1000
_WAIT_S: Final = 0.5
_READ_TIMEOUT_S: Final = 30.0
_DRAIN_S: Final = 5.0
_DRAIN_BYTES: Final = 1 << 20
_PIECE: Final = 1 << 16
_PORT_PATIENCE_S: Final = 15.0
_PAUSE_S: Final = 0.1
_RETRY_AFTER_S: Final = 1
_SHOWN: Final = 300
_NOT_ALLOWED: Final = "the token or the signature is missing or wrong"


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """A request that has come. `path`: with its query. `headers`: names in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Signature:
    """The HMAC of a body, in a header. `encoding`: hex or base64."""

    secret: bytes = field(repr=False)
    header: str
    digest: str
    encoding: str
    prefix: str

    def fits(self, headers: Mapping[str, str], body: bytes) -> bool:
        made = hmac.new(self.secret, body, self.digest)
        text = (
            made.hexdigest() if self.encoding == "hex" else base64.b64encode(made.digest()).decode()
        )
        return _same(headers.get(self.header.lower(), ""), self.prefix + text)


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """As the builder sets them. As text neither token nor secret is shown."""

    host: str = "127.0.0.1"
    port: int = 0
    path: str = "/"
    token: str | None = field(default=None, repr=False)
    signature: Signature | None = None
    tls: TlsFiles | None = None
    refuses_malformed: bool = True
    waits_for_checkpoint: bool = False
    answer_timeout_s: float = 60.0
    queue_records: int = 10_000
    queue_bytes: int = 64 << 20
    body_bytes: int = 1 << 20
    connections: int = 200

    def __str__(self) -> str:
        scheme = "http" if self.tls is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}{self.path}"

    def has_token(self, authorization: str) -> bool:
        """Whether this header has the token that is asked for."""
        return self.token is None or _same(authorization, f"Bearer {self.token}")

    def is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether the body has the signature that is asked for."""
        return self.signature is None or self.signature.fits(headers, body)


class WebhookPoller(QueuePoller):
    """Listens while it is open. The position is the number of the last record that `poll` gave."""

    def __init__(
        self,
        settings: ListenSettings,
        body: Callable[[WebhookRequest], Sequence[Any]],
        schema: DeserializationSchema | None,
        where: str,
    ) -> None:
        super().__init__()
        self.settings = settings
        self._body = body
        self._schema = schema
        self._where = where
        self._bytes = 0
        self._came = self._given = self._covered = 0
        self._is_closed = False
        self._decoding = threading.Lock()
        self._server: _Server | None = None

    def open(self, position: int | None) -> None:
        """Take the port. Raises: ExternalError: another process keeps it."""
        self._came = self._given = self._covered = position or 0
        self._server = _Server(self, self._bound())
        threading.Thread(target=self._server.serve_forever, args=(_PAUSE_S,), daemon=True).start()

    def poll(self) -> Sequence[Any] | Batch:
        taken = self.taken(_ROWS, _WAIT_S)
        with self.changed:
            self._given += len(taken)
            self._bytes -= sum(size for _, size in taken)
        if not taken:
            return []
        values = [value for value, _ in taken]
        if self._schema is None:
            return RowBatch(values)
        return self._decoded(values) or NO_RECORDS

    def position(self) -> int:
        return self._given

    def acknowledge(self, position: int) -> None:
        with self.changed:
            self._covered = max(self._covered, position)
            self.changed.notify_all()

    def close(self) -> None:
        """Requests that wait for a checkpoint are answered with 503."""
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    # ------------------------------------------------------------------ threads of requests

    def take(self, request: WebhookRequest) -> tuple[int, str]:
        """The status and the text of the answer. It may wait for a checkpoint."""
        try:
            found = list(self._body(request))
            if self._schema is not None and self.settings.refuses_malformed:
                self._check(found)
        except Exception as error:  # the user's function, the schema, or what they were given
            return 400, f"{type(error).__name__}: {error!s:.300}"
        with self.changed:
            if self._is_closed or not self._has_room(found, request):
                return 503, "the job does not keep up"
            self._came += len(found)
            mine = self._came
            share = len(request.body) // max(len(found), 1)
            self.waiting.extend((value, share) for value in found)
            self._bytes += share * len(found)
            self.changed.notify_all()
            if not self.settings.waits_for_checkpoint:
                return 200, ""
            self.changed.wait_for(
                lambda: self._covered >= mine or self._is_closed, self.settings.answer_timeout_s
            )
            if self._covered >= mine:
                return 200, ""
        return 503, "no checkpoint was complete in time"

    def _has_room(self, found: Sequence[Any], request: WebhookRequest) -> bool:
        """One that alone is more than all that may wait has room when nothing else waits."""
        if not self.waiting:
            return True
        settings = self.settings
        return (
            len(self.waiting) + len(found) <= settings.queue_records
            and self._bytes + len(request.body) <= settings.queue_bytes
        )

    def _check(self, values: Sequence[Any]) -> None:
        """Raises: ValueError: the schema cannot read one of them."""
        with self._decoding:
            batch = self._decoded(values)
        values = batch.values if isinstance(batch, MarkedRows) else ()
        bad = next((value for value in values if isinstance(value, Malformed)), None)
        if bad is not None:
            raise ValueError(f"a record cannot be read: {bad.error!s:.{_SHOWN}}")

    def _decoded(self, values: Sequence[Any]) -> Batch | None:
        assert self._schema is not None
        return batch_of(values, None, self._schema, lambda _: "a record of a request")

    def _bound(self) -> socket.socket:
        """A former attempt of the subtask may still have the port."""
        settings = self.settings
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        deadline_s = time.monotonic() + _PORT_PATIENCE_S
        while True:
            try:
                return socket.create_server((settings.host, settings.port), family=family)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > deadline_s:
                    raise ExternalError(
                        f"{self._where}: cannot listen on {settings}: {error}. Set another port or "
                        "host with set_address."
                    ) from error
            time.sleep(_PAUSE_S)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, poller: WebhookPoller, listening: socket.socket) -> None:
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.poller = poller
        self.free = threading.BoundedSemaphore(poller.settings.connections)
        self._context = server_context(poller.settings.tls, "WebhookSource")

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        connection.settimeout(_READ_TIMEOUT_S)
        if self._context is not None:
            # Hands are shaken on the thread of the request: here a silent client would hold up all
            # others.
            connection = self._context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away or does not speak TLS is its own affair."""


class _TimedReads(io.RawIOBase):
    """What comes on a connection. All of a request has one time limit: else a client that sends byte by byte could stay for ever.

    It begins with the first byte, for the first request with the connection. A client may be silent as long between two requests.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline_s: float | None = time.monotonic() + _READ_TIMEOUT_S

    def begin(self) -> None:
        """The next request is waited for."""
        self._deadline_s = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises: TimeoutError: the request took too long."""
        deadline_s = self._deadline_s
        wait_s = _READ_TIMEOUT_S if deadline_s is None else deadline_s - time.monotonic()
        if wait_s <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(wait_s)
        count = self._connection.recv_into(buffer)
        if deadline_s is None:
            self._deadline_s = time.monotonic() + _READ_TIMEOUT_S
        return count


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "penstock"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._reads = _TimedReads(self.connection)
        self.rfile = io.BufferedReader(self._reads)

    def handle_one_request(self) -> None:
        super().handle_one_request()
        self._reads.begin()

    def handle_expect_100(self) -> bool:
        """Who is refused is not asked for the body."""
        if self.command == "POST" and (refusal := self._refusal()):
            self._answer(*refusal, closes=True)
            return False
        return super().handle_expect_100()

    def do_POST(self) -> None:
        if refusal := self._refusal():
            self._answer(*refusal, closes=True)
            return
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        poller = self._poller
        headers = {name.lower(): value for name, value in self.headers.items()}
        if not poller.settings.is_signed(headers, body):
            self._answer(401, _NOT_ALLOWED)
            return
        self._answer(*poller.take(WebhookRequest(self.path, headers, body)))

    @property
    def _poller(self) -> WebhookPoller:
        return cast("_Server", self.server).poller

    def _refusal(self) -> tuple[int, str] | None:
        """What is wrong before the body is read, which costs time and memory: status and text."""
        settings = self._poller.settings
        if urlsplit(self.path).path != settings.path:
            return 404, "no such path"
        if not settings.has_token(self.headers.get("Authorization", "")):
            return 401, _NOT_ALLOWED
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            return 411, "a body has a Content-Length"
        if int(length) > settings.body_bytes:
            return 413, f"a body has {settings.body_bytes} bytes at most"
        return None

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """In plain text, without the client's words."""
        self._answer(405 if code == 501 else int(code), "send a POST", closes=True)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line for each request would fill the log."""

    def _answer(self, status: int, text: str, *, closes: bool = False) -> None:
        body = f"{text}\n".encode() if text else b""
        self.connection.settimeout(_READ_TIMEOUT_S)  # reads have left what was left to them
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if status == 503:
            self.send_header("Retry-After", str(_RETRY_AFTER_S))
        if status == 405:
            self.send_header("Allow", "POST")
        if closes:
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        if closes:
            self._drain()

    def _drain(self) -> None:
        """Drops what the client still sends, within bounds.

        A connection that is closed with unread bytes is reset, and a client that still sends its body then loses the answer
        (RFC 9112, 9.6).
        """
        connection = self.connection
        left = max(_DRAIN_BYTES, self._poller.settings.body_bytes)
        deadline_s = time.monotonic() + _DRAIN_S
        with contextlib.suppress(OSError):  # it may have gone away
            connection.shutdown(socket.SHUT_WR)
            while left > 0 and (wait_s := deadline_s - time.monotonic()) > 0:
                connection.settimeout(wait_s)
                dropped = len(connection.recv(_PIECE))
                if not dropped:
                    return
                left -= dropped


def server_context(tls: TlsFiles | None, where: str) -> ssl.SSLContext | None:
    """None: no TLS. Raises: ConfigurationError: a file cannot be read."""
    if tls is None:
        return None
    assert tls.certificate_file is not None
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.ca_file)
        context.load_cert_chain(tls.certificate_file, tls.key_file)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigurationError(
            f"{where}: the files of set_tls cannot be used here: {error}. certificate_file is "
            f"{tls.certificate_file!r}, key_file {tls.key_file!r}, client_ca_file "
            f"{tls.ca_file!r}: PEM files that the driver and all executors can read."
        ) from error
    if tls.ca_file is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _same(one: str, other: str) -> bool:
    """Compare in a time that does not depend on where the texts differ."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
