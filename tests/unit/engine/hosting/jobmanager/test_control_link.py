"""Whether the kernel at the other end of a control connection answers (`engine/hosting/jobmanager/control_server.py`)."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing

import pytest

from penstock.engine.hosting.jobmanager.control_server import ControlLink
from tests.tools.waiting import wait_until

HANG_MS = 60_000
DIALS = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as sock:
    while sock.recv(1 << 16):
        pass
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO as Linux has it")


class Writer:
    """As much of asyncio's as a link asks."""

    def __init__(self, sock):
        self._sock = sock

    def get_extra_info(self, name):
        return {"socket": self._sock}[name]

    def is_closing(self):
        return False


@pytest.fixture
def process():
    """Another process that reads what it is sent."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = str(server.getsockname()[1])
        with subprocess.Popen([sys.executable, "-c", DIALS, port]) as started:
            started.connection, _ = server.accept()
            with started.connection:
                yield started
                started.kill()


@pytest.fixture
def link(process):
    return ControlLink(Writer(process.connection))


def test_the_kernel_of_a_stopped_process_answers(link, process):
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    wait_until(lambda: not link.answers(20), "silence counts as an answer")
    process.connection.sendall(b"heartbeat")
    wait_until(lambda: link.answers(HANG_MS), "no answer")


def test_nobody_answers_for_a_process_that_has_ended(link, process):
    process.kill()
    process.wait()
    wait_until(lambda: not link.answers(HANG_MS), "the dead answer")
