"""For all tests: how long an example takes says nothing of it, and how many there are is the run's affair."""

import os
import shutil
import signal
import sys
import tempfile

import pytest
from hypothesis import settings

from penstock.engine.model.errors import CancelSignal
from tests.tools import small_servers
from tests.tools.programs.checkpoint_programs import Stage

pytest_plugins = ["tests.spark.sessions", "tests.tools.object_store"]

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "25"))
"""Of each law that does not say so itself. New ones in every run."""

SERVERS = {
    "apache_kafka", "binlog_mariadb", "connect", "hdfs", "logical_postgres", "mariadb_url",
    "other_server", "own_mariadb", "own_postgres", "postgres_url", "rabbitmq", "shared_mosquitto",
    "shared_nats", "shared_redis", "yarn", "zookeeper",
}  # fmt: skip
"""Fixtures that start a real server. A test that asks for one has the mark `server`."""

settings.register_profile("penstock", deadline=None, max_examples=EXAMPLES)
settings.load_profile("penstock")


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """What tests make is not for their group: nothing is restored from where others may write.

    A cancel interrupts a task's thread wherever it is. In a finalizer, or in a callback of the collector, Python can only report
    it; the watchdog interrupts again. A shell starts what runs in its background deaf to Ctrl-C, and so would be the programs that
    tests interrupt. No certificate authority of the system is asked for: loading them all takes a client 20 ms for each connection.
    """
    os.umask(0o022)
    os.environ.setdefault("SSL_CERT_FILE", os.devnull)
    os.environ.setdefault("SSL_CERT_DIR", os.devnull)
    if hasattr(config, "workerinput"):  # One of several processes of tests.
        _give_it_a_folder_of_its_own()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    former = sys.unraisablehook

    def report(unraisable):
        if not isinstance(unraisable.exc_value, CancelSignal):
            former(unraisable)

    sys.unraisablehook = report


def _give_it_a_folder_of_its_own():
    """For temporary files, which the other processes of tests do not see. The path is short, for sockets."""
    os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="pt-")
    os.chmod(os.environ["TMPDIR"], 0o711)  # Servers of other users have their folders in it.
    tempfile.tempdir = None


def pytest_unconfigure(config):
    if hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Before `-m` chooses."""
    for item in items:
        if not SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("server")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    small_servers.Guard.forbids = item.get_closest_marker("server") is None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown():
    """Some end their servers with programs of those."""
    small_servers.Guard.forbids = False


@pytest.fixture
def stage(request):
    """Where the test's own program stands still, and what it tells."""
    return Stage(request.node.name)
