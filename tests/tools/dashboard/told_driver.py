"""A driver's REST server in this process, whose jobs are told event by event: every state of a page at will."""

import contextlib
import socket
import threading

from penstock.engine.hosting.network.http_server import HttpServer
from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.model.config import Settings
from penstock.ops.registry.job_registry import JobRegistry
from penstock.ops.rest.access import access_of
from penstock.ops.rest.application import application_of
from penstock.ops.rest.live import Live
from penstock.ops.rest.operations import Operations
from penstock.ops.rest.requests.handlers import Driver
from penstock.ops.rest.routes import ROUTES
from tests.tools.observation.job_records import ToldJob, facts

_MOST_BYTES = 1 << 20


class ToldByEvents(ToldJob):
    """A job of this driver. Its events happen now, unless they are told to have happened before."""

    def __init__(self, job_registry, known) -> None:
        self.facts = known
        self._job_registry = job_registry
        self.recorder = job_registry.watch(known)
        self.now = wall_ms()

    def tell(self, event, after_ms=0):
        self.now += after_ms
        self.recorder.entries.append((event, self.now))
        return self

    def is_seen(self):
        """The driver has taken all that was told, and keeps the figures of this moment."""
        self._job_registry.turn()
        return self

    @property
    def path(self):
        return f"#/jobs/{self.facts.job_id}"


class ToldDriver:
    """`address`: of its server, for the browser. `stop` and `start` again: the driver is lost for a while.

    `wake`: every page is told anew, at once.
    """

    def __init__(self, **settings) -> None:
        self.job_registry = JobRegistry()
        self.settings = Settings(settings)
        self.operations = Operations(60)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._port = self._listening.getsockname()[1]
        self.address = f"http://localhost:{self._port}"
        self.driver = Driver(
            self.job_registry, self.settings, self.operations, self.address, "token"
        )
        self._access = access_of("others", "t", "localhost")
        self.is_standby = False
        self.start()

    def job(self, known=None, **more):
        """A job that has been submitted."""
        return ToldByEvents(self.job_registry, known or facts(**more))

    def start(self):
        listening = self._listening or socket.create_server(("127.0.0.1", self._port))
        self._listening = None
        live = Live(self.driver, ROUTES, self.job_registry, soonest_s=0.01)
        self.wake = live.wake
        application = application_of(
            self.driver, ROUTES, self._access, _MOST_BYTES, lambda: self.is_standby, live
        )
        self._server = HttpServer(application, at_end=live.close)
        self._thread = threading.Thread(target=self._serve, args=(listening,))
        self._thread.start()

    def _serve(self, listening):
        with listening:
            self._server.run(sockets=[listening])

    def stop(self):
        """Connections that are open end."""
        self._server.should_exit = True
        self._thread.join()

    @classmethod
    @contextlib.contextmanager
    def running(cls, **settings):
        driver = cls(**settings)
        try:
            yield driver
        finally:
            driver.stop()
