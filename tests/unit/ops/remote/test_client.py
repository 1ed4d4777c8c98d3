import contextlib
import os
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.ops.remote.client import RemoteError, RestClient


def test_authorities_are_read_for_https_only(monkeypatch):
    """It takes some 20 ms for each client: `penstock top` makes new ones for every look."""
    read = []
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile=None: read.append(cafile))
    RestClient("http://localhost:8081")
    assert read == []
    RestClient("https://localhost:8081")
    RestClient("https://localhost:8081", certificates="own.pem")
    assert read == [None, "own.pem"]


@pytest.mark.parametrize("address", ["http://localhost:8081", "https://localhost:8081"])
def test_certificates_that_cannot_be_read_are_told(address, tmp_path):
    path = str(tmp_path / "none.pem")
    with pytest.raises(RemoteError, match=r"--cacert .*none.pem: .*No such file"):
        RestClient(address, certificates=path)


class Remembering(BaseHTTPRequestHandler):
    """Answers with an empty object, or sends the client elsewhere; `seen` has (what was asked, the token that was shown)."""

    def log_message(self, *_args):
        """Nothing."""

    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        self.send_response(302 if self.server.elsewhere else 200)
        if self.server.elsewhere:
            self.send_header("Location", self.server.elsewhere)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_PATCH = do_GET


@pytest.fixture
def listening():
    """Starts servers of this machine: returns one and its address."""
    with contextlib.ExitStack() as stack:

        def start(elsewhere=""):
            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Remembering))
            server.seen, server.elsewhere = [], elsewhere
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return server, f"http://localhost:{server.server_port}"

        yield start


def test_a_server_of_this_machine_is_asked_without_the_proxy(listening, monkeypatch):
    (proxy, at_proxy), (driver, address) = listening(), listening()
    monkeypatch.setenv("http_proxy", at_proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    client = RestClient(address, "secret")
    assert client.get("/jobs") == client.change("PATCH", "/jobs/1") == {}
    assert proxy.seen == []
    assert driver.seen == [("/jobs", None), ("/jobs/1", "Bearer secret")]
    RestClient("http://192.0.2.7:8081").get("/jobs")
    assert proxy.seen == [("http://192.0.2.7:8081/jobs", None)]


STRANGER = """
import encodings.idna, json, os, sys  # That user may not read Python's files.
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from penstock.ops.rest.address_book import proof_of

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_args): pass
    def do_GET(self):
        print(self.path.partition("?")[0], self.headers.get("Authorization"), flush=True)
        nonce = parse_qs(urlsplit(self.path).query).get("nonce", [""])[0]
        found = json.dumps({"proof": proof_of(sys.argv[1], nonce, server.server_port)}).encode()
        self.send_response(int(sys.argv[2]))
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)
    do_POST = do_PATCH = do_GET

os.setuid(65_533)
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def stranger():
    """Starts a server of another user that knows a token; returns its address and what it prints of each request."""
    with contextlib.ExitStack() as stack:

        def start(token, status="200"):
            command = [sys.executable, "-c", STRANGER, token, status]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return f"http://127.0.0.1:{int(process.stdout.readline())}", process.stdout

        yield start


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
def test_a_stranger_who_listens_gets_neither_the_token_nor_the_program(stranger):
    address, seen = stranger("what it guesses")
    client = RestClient(address, "secret")
    assert client.get("/jobs")
    for send in (
        lambda: client.change("PATCH", "/jobs/1"),
        lambda: client.send("/session/jobs", b"program", "x"),
        lambda: RestClient(address).send("/session/jobs", b"program", "x"),
    ):
        with pytest.raises(RemoteError, match="listened at by user 65533, not by this user"):
            send()
    assert [seen.readline() for _ in range(3)] == ["/jobs None\n", "/proof None\n", "/proof None\n"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
def test_a_stranger_who_refuses_to_answer_without_the_token_does_not_get_it(stranger):
    address, seen = stranger("what it guesses", "401")
    with pytest.raises(RemoteError):
        RestClient(address, "secret").get("/jobs")
    assert [seen.readline() for _ in range(2)] == ["/jobs None\n", "/proof None\n"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
def test_a_session_of_another_user_that_has_the_token_is_asked(stranger):
    address, seen = stranger("secret")
    assert RestClient(address, "secret").change("PATCH", "/jobs/1")
    assert [seen.readline() for _ in range(2)] == ["/proof None\n", "/jobs/1 Bearer secret\n"]


def test_a_redirect_gets_no_token(listening):
    thief, elsewhere = listening()
    _, address = listening(elsewhere=elsewhere)
    with pytest.raises(RemoteError, match="the driver answered 302"):
        RestClient(address, "secret").change("PATCH", "/jobs/1")
    assert thief.seen == []
