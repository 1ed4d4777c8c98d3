"""What Prometheus scrapes: a small HTTP server that answers every path with all metrics.

Source: Flink PrometheusReporter; differs: it listens on a loopback address unless the settings say otherwise.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from penstock.engine.hosting.network.wire.acceptor import NO_ROOM, RETRY_S, Complaints
from penstock.engine.hosting.os.listening import listen
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.option import ports_in, refusal
from penstock.engine.model.options.reporters import PrometheusOptions
from penstock.ops.reporters.extra import collector_of
from penstock.ops.reporters.settings import ReporterSettings

_LOG: Final = logging.getLogger(__name__)
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SILENT_S: Final = 30.0
MOST_SCRAPES: Final = 16
_POLL_S: Final = 0.2
"""How long the end of the server may take."""


class PrometheusReporter:
    """A server that Prometheus scrapes. `address`: where it listens, as (host, port)."""

    def __init__(self, settings: ReporterSettings) -> None:
        """Raises: ConfigurationError: a setting cannot be used, or no port is free; ImportError: prometheus_client is missing."""
        self._collector = collector_of(settings)
        host = settings.settings.get(PrometheusOptions.BIND_ADDRESS)
        self._servers = [_Server(one, self._collector) for one in _bound(host, _ports(settings))]
        listens_at: tuple[Any, ...] = self._servers[0].server_address
        self.address: tuple[str, int] = listens_at[0], listens_at[1]
        self._threads = [
            threading.Thread(
                target=one.serve_forever, args=(_POLL_S,), name="penstock-prometheus", daemon=True
            )
            for one in self._servers
        ]
        for thread in self._threads:
            thread.start()
        _LOG.info("reporter=%s prometheus address=%s:%d", settings.name, *self.address)

    def stop(self) -> None:
        """End the server, and wait for its threads."""
        for one in self._servers:
            one.shutdown()
            one.server_close()
        for thread in self._threads:
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    timeout = _SILENT_S
    server_version = "penstock"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        names = parse_qs(urlsplit(self.path).query).get("name[]", [])
        page = self.server.collector.page(frozenset(names))
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base
        """Say nothing: a line for each scrape helps nobody."""


class _Server(ThreadingHTTPServer):
    """At most `MOST_SCRAPES` connections are open, each on a thread. For a newer one the oldest is closed."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listening: socket.socket, collector: Any) -> None:
        self.collector = collector
        self._open: dict[Any, None] = {}
        self._lock = threading.Lock()
        self._complaints = Complaints()
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in NO_ROOM:
                # Without a pause the listening socket would be ready again at once, all the time.
                _LOG.warning("prometheus ACCEPTS_NOBODY for_s=%s cause=%s", RETRY_S, error)
                threading.Event().wait(RETRY_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= MOST_SCRAPES:
                oldest = next(iter(self._open))
                del self._open[oldest]
                why = f"{MOST_SCRAPES} connections are open, this one longest"
                self._complaints.of(str(client_address[0]), why)
                with contextlib.suppress(OSError):  # It is gone already.
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log it. The usual one prints to stderr."""
        error = sys.exception()
        if isinstance(error, OSError):
            self._complaints.of(str(client_address[0]), f"its connection broke: {error}")
        else:
            _LOG.warning("prometheus client=%s ANSWER FAILED", client_address, exc_info=True)


def _ports(settings: ReporterSettings) -> list[int]:
    option = PrometheusOptions.PORT.of(settings.name)
    text = settings.settings.get(option)
    try:
        return ports_in(text)
    except ValueError as error:
        wanted = "ports and ranges of ports, for example 9249,9250-9260"
        raise refusal(option.key, text, wanted) from error


def _bound(host: str, ports: list[int]) -> list[socket.socket]:
    """Return sockets that listen at the first free port."""
    cause = ""
    for port in ports:
        try:
            return listen(host, port)
        except OSError as error:
            cause = str(error)
    raise ConfigurationError(
        f"no port of {ports[0]} to {ports[-1]} can be used at {host}: {cause}. Set other ports."
    )
