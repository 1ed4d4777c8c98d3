"""A session in this process, on a MiniCluster, with its REST server; and environments whose jobs go there."""

import contextlib
import threading

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.program.settings import HOST_DEFAULTS
from penstock.ops.registry.job_registry import JOB_REGISTRY
from penstock.ops.rest import server
from penstock.ops.session.session import Session, session_settings
from tests.tools.hosting.rest import Client
from tests.tools.waiting import wait_until


class SessionHost(MiniCluster):
    """A MiniCluster that is asked over REST. `settings`: the command line of the session."""

    serves_rest = True

    def __init__(self, settings, **more):
        super().__init__(4, **more)
        self.settings = {"rest.bind-port": "0", **settings}

    def command_line(self):
        return self.settings


class ServedSession:
    """`lines`: what it says. `trouble`: why it ended by itself."""

    def __init__(self, settings=None, host=None):
        self.host = host or SessionHost(settings or {})
        self.lines = []
        self.trouble = None
        self.error = None
        self.session = Session(
            self.host, session_settings(self.host, HOST_DEFAULTS), self.lines.append
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            self.trouble = self.session.run()
        except BaseException as error:
            self.error = error

    def start(self):
        self._thread.start()
        return self

    @property
    def is_running(self):
        return self._thread.is_alive()

    def await_ready(self):
        wait_until(
            lambda: not self.session.is_standby or not self.is_running, "the session does not lead"
        )
        assert self.error is None, self.error

    def end(self):
        self.session.stop()
        self.await_end()

    def await_end(self):
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def rest_of_its_own():
    """The process gets a REST server anew, which is ended with the block."""
    former = server.CURRENT.server
    for job_id in list(JOB_REGISTRY.observed):
        JOB_REGISTRY.forget(job_id)
    server.CURRENT.server = None
    try:
        yield
    finally:
        if server.current_server() is not None:
            server.current_server().stop()
        server.CURRENT.server = former


@contextlib.contextmanager
def session(settings=None, host=None):
    """Gives a session that takes jobs, with a client of its REST server as `client`."""
    with rest_of_its_own():
        made = ServedSession(settings, host).start()
        try:
            made.await_ready()
            made.client = Client(server.current_server().address)
            yield made
        finally:
            made.end()


def remote_environment(address, settings=None):
    """An environment whose jobs go to the session at this address."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    configuration = Configuration()
    remote = {"execution.target": "remote", "rest.address": host, "rest.port": port}
    for key, value in (remote | (settings or {})).items():
        configuration.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(configuration)
