"""What Prometheus scrapes: a small HTTP server that answers every path with all metrics.

Source: Flink PrometheusReporter; differs: it listens on a loopback address unless the settings say otherwise.
"""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.engine.hosting.network.http_access import LOOPBACK_NAMES, refusal_of_page
from penstock.engine.hosting.network.http_server import HttpServer
from penstock.engine.hosting.network.wire.addresses import is_loopback
from penstock.engine.hosting.os.listening import listen
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.option import ports_in, refusal
from penstock.engine.model.options.reporters import PrometheusOptions
from penstock.ops.reporters.extra import collector_of
from penstock.ops.reporters.settings import ReporterSettings

if TYPE_CHECKING:
    from penstock.ops.reporters.collector import MetricCollector

_LOG: Final = logging.getLogger(__name__)
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_MOST_SCRAPES: Final = 16


class PrometheusReporter:
    """A server that Prometheus scrapes. `address`: where it listens, as (host, port)."""

    def __init__(self, settings: ReporterSettings) -> None:
        """Raises: ConfigurationError: a setting cannot be used, or no port is free; ImportError: prometheus_client is missing."""
        collector = collector_of(settings)
        host = settings.settings.get(PrometheusOptions.BIND_ADDRESS)
        listening = _bound(host, _ports(settings))
        self.address: tuple[str, int] = listening[0].getsockname()[:2]
        self._server = HttpServer(_application(collector, host), most_open=_MOST_SCRAPES)
        self._thread = threading.Thread(
            target=self._server.run, args=(listening,), name="penstock-prometheus", daemon=True
        )
        self._thread.start()
        _LOG.info("reporter=%s prometheus address=%s:%d", settings.name, *self.address)

    def stop(self) -> None:
        """End the server, and wait for its thread."""
        self._server.should_exit = True
        self._thread.join()


def _application(collector: MetricCollector, host: str) -> Starlette:
    """`host`: where it listens. Whoever reaches an address of other machines reads it; a loopback address has its own names only."""

    def page(request: Request) -> Response:
        if is_loopback(host):
            remedy = f"set {PrometheusOptions.BIND_ADDRESS.key}"
            own = LOOPBACK_NAMES | {host.lower()}
            why = refusal_of_page(request.headers, own, remedy, changes=False)
            if why is not None:
                return Response(f"{why}\n", 403, media_type="text/plain")
        names = frozenset(filter(None, request.query_params.getlist("name[]")))
        return Response(collector.page(names), headers={"Content-Type": CONTENT_TYPE})

    return Starlette(routes=[Route("/{path:path}", page)])


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
