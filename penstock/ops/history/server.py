"""The history server: answers the REST API for jobs that have ended, from their archives.

Source: Flink HistoryServer; differs: paths exist with `/v1` before them, too, and only its user and root can ask, on this machine.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from penstock.engine.hosting.network.wire.addresses import is_loopback
from penstock.engine.hosting.os.listening import listen
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.rest import HistoryServerOptions, RestOptions
from penstock.ops.history.library import Library
from penstock.ops.jobs.views.cluster import dashboard_config
from penstock.ops.rest.access import access_of
from penstock.ops.rest.answers import JSON, Answer, Asked, RestError
from penstock.ops.rest.routes import Route

_LOG: Final = logging.getLogger(__name__)


class HistoryServer:
    """A REST server that answers from archives.

    `address`: for people and clients. `jobs`: how many there were at the start.
    """

    def __init__(self, directories: Sequence[str], settings: Settings) -> None:
        """Read the folders and take the port. Raises ConfigurationError: a setting is wrong, or the port is taken."""
        if not directories:
            raise ConfigurationError(
                "there is no folder of archives. Name one, for example `penstock history "
                "/mnt/archive`, or set historyserver.archive.fs.dir."
            )
        host = settings.get(HistoryServerOptions.ADDRESS)
        try:
            self._access = access_of(settings.get(RestOptions.TOKEN), "", host)
        except ConfigurationError as error:
            if is_loopback(host):
                raise
            raise ConfigurationError(
                f"option 'historyserver.web.address' is '{host}', which other machines may reach, "
                "and the history server has no token. Use localhost, and an SSH tunnel."
            ) from error
        self.library = Library(directories, settings.get(HistoryServerOptions.RETAINED_JOBS))
        self._settings = settings
        self._sockets = _bound(host, settings.get(HistoryServerOptions.PORT))
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._sockets[0].getsockname()[1]}"
        self.jobs = self.library.refresh()
        self._ended = threading.Event()
        self._server: Any = None

    def run(self) -> None:
        """Serve until `stop`, or until the process is interrupted."""
        from penstock.engine.hosting.network.http_server import HttpServer
        from penstock.ops.rest.application import application_of

        routes = (
            Route("GET", "/config", self._config, "What the dashboard may do."),
            Route("GET", "/{path:path}", self._archived, "What an archive has there.", waits=True),
        )
        application = application_of(None, routes, self._access)
        self._server = HttpServer(application)
        refreshing = threading.Thread(target=self._refresh, name="penstock-history", daemon=True)
        refreshing.start()
        try:
            if not self._ended.is_set():
                self._server.run(sockets=self._sockets)
        finally:
            self._ended.set()
            refreshing.join()
            for one in self._sockets:
                one.close()

    def stop(self) -> None:
        """End `run`. Any thread."""
        self._ended.set()
        if self._server is not None:
            self._server.should_exit = True

    def _refresh(self) -> None:
        interval_s = self._settings.get(HistoryServerOptions.REFRESH) / 1000
        while not self._ended.wait(interval_s):
            try:
                self.library.refresh()
            except Exception:
                # The others are shown as they were, and looked for again.
                _LOG.exception("archives NOT REFRESHED")

    def _config(self, _driver: object, _asked: Asked) -> Any:
        zone = time.localtime()
        return dashboard_config(
            refresh_ms=self._settings.get(HistoryServerOptions.WEB_REFRESH),
            zone=(zone.tm_zone, zone.tm_gmtoff),
            may=(),
            is_history=True,
        )

    def _archived(self, _driver: object, asked: Asked) -> Answer:
        path = asked.path["path"].removeprefix("v1/")  # This route takes every path there is.
        found = self.library.answer(f"/{path}")
        if found is None:
            raise RestError(404, "File not found.")
        return Answer(found, media=JSON)


def _bound(host: str, port: int) -> list[socket.socket]:
    try:
        return listen(host, port)
    except OSError as error:
        raise ConfigurationError(
            f"the history server cannot listen at {host}:{port}: {error}. Choose another port with "
            "--port; 0 is any free one."
        ) from error
