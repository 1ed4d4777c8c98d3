"""What the server does at the end of its process, and that it leaves the process as it is."""

import logging
import socket
import sys
import threading
import urllib.request

from penstock.engine.hosting.network.http_server import HttpServer
from penstock.ops.rest.operations import Operations
from penstock.ops.rest.serving import let_clients_read

HALF = b"x" * 1000
PATIENCE_S = 60


class HalfAnswered:
    """An application whose answer waits in the middle. `is_half`: the first half is sent. `go_on`: the second half may be."""

    def __init__(self):
        self.is_half = threading.Event()
        self.go_on = threading.Event()

    async def __call__(self, scope, receive, send):
        import asyncio

        headers = [(b"content-length", b"%d" % (2 * len(HALF)))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": HALF, "more_body": True})
        self.is_half.set()
        await asyncio.get_running_loop().run_in_executor(None, self.go_on.wait, PATIENCE_S)
        await send({"type": "http.response.body", "body": HALF})


def serving(application):
    """Returns: the server, and where it listens."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(application)
    threading.Thread(target=server.run, args=([listening],), daemon=True).start()
    return server, listening


class Answers:
    """An application that answers nothing but "yes"."""

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"yes"})


def test_serving_leaves_loggers_and_switches_of_the_process_as_they_are(caplog):
    """The program may have a uvicorn of its own, whose requests it logs."""
    caplog.set_level(logging.INFO)
    access = logging.getLogger("uvicorn.access")
    before = (access.propagate, access.handlers, sys.getswitchinterval(), logging.getLevelName(5))
    server, listening = serving(Answers())
    with urllib.request.urlopen(f"http://127.0.0.1:{listening.getsockname()[1]}") as answer:
        assert answer.read() == b"yes"
    server.should_exit = True
    assert server.ended.wait(PATIENCE_S)
    after = (access.propagate, access.handlers, sys.getswitchinterval(), logging.getLevelName(5))
    assert after == before
    assert [one for one in caplog.records if one.name == "uvicorn.access"] == []


def read_operation():
    """An operation whose result was asked for, but is not sent yet."""
    operations = Operations(60)
    has_run = threading.Event()
    key = operations.start("job", lambda: has_run.set() or {"location": "here"})
    assert has_run.wait(PATIENCE_S)
    while operations.status("job", key)["operation"] is None:
        has_run.wait(0.001)
    return operations


def test_a_process_that_ends_sends_its_last_answer_to_the_last_byte():
    application = HalfAnswered()
    server, listening = serving(application)
    with socket.create_connection(listening.getsockname(), PATIENCE_S) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert application.is_half.wait(PATIENCE_S)
        ending = threading.Thread(target=let_clients_read, args=(read_operation(), server))
        ending.start()
        application.go_on.set()
        ending.join(PATIENCE_S)
        assert server.ended.is_set()
        got = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert got.endswith(2 * HALF)


def test_a_process_without_operations_does_not_wait_for_its_server():
    server, listening = serving(HalfAnswered())
    let_clients_read(Operations(60), server)
    assert not server.should_exit
    server.should_exit = True
    assert server.ended.wait(PATIENCE_S)
    listening.close()
