import contextlib
import ssl
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


def test_a_redirect_gets_no_token(listening):
    thief, elsewhere = listening()
    _, address = listening(elsewhere=elsewhere)
    with pytest.raises(RemoteError, match="the driver answered 302"):
        RestClient(address, "secret").change("PATCH", "/jobs/1")
    assert thief.seen == []
