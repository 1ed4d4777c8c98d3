"""An HTTP server of the standard library, in a process of its own, that has a log and takes records, and fails as it is told.

GET /log?since=N: a page of five records behind N. GET /list: all of them. POST /ingest...: takes a body, unless it knows
its Idempotency-Key at this path. POST /faults: what the next requests meet. What it has taken is in a file, so it outlives `kill -9`.
"""

import contextlib
import http.client
import json
import sys
import threading
import time
from collections.abc import Generator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

PAGE = 5
HANG_S = 3600


class Peer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port, folder):
        super().__init__(("127.0.0.1", port), Handler)
        self.lock = threading.Lock()
        self.faults = []
        self.files = {name: Path(folder, f"{name}.rows") for name in ("log", "taken")}
        self.rows = {name: self._read(name) for name in self.files}
        self.requests = []

    def _read(self, name):
        path = self.files[name]
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def add(self, name, row):
        with self.files[name].open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.rows[name].append(row)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        """Nothing."""

    def do_GET(self):
        parts = urlsplit(self.path)
        peer = self.server
        if parts.path in {"/log", "/list"} and self._fails():
            return
        with peer.lock:
            log = peer.rows["log"]
            since = int(parse_qs(parts.query).get("since", ["0"])[0])
            page = log[since : since + PAGE]
            answers = {
                "/log": {"items": page, "next": since + len(page)},
                "/list": log,
                "/taken": peer.rows["taken"],
                "/requests": peer.requests,
            }
        self._answer(200 if parts.path in answers else 404, answers.get(parts.path, "no such"))

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        peer = self.server
        if self.path == "/faults":
            peer.faults += json.loads(body)
        elif self.path == "/log":
            with peer.lock:
                for row in json.loads(body):
                    peer.add("log", row)
        elif self.path.startswith("/ingest"):
            fault = peer.faults[0] if peer.faults else None
            if fault != "lost answer" and self._fails():
                return
            key = self.headers["Idempotency-Key"]
            with peer.lock:
                peer.requests.append([key, self.headers["Content-Type"]])
                if (self.path, key) not in {tuple(one[:2]) for one in peer.rows["taken"]}:
                    peer.add("taken", [self.path, key, body])
            if fault == "lost answer":
                peer.faults.pop(0)
                self.close_connection = True
                return
        self._answer(200, "ok")

    def _fails(self):
        """Meets the next fault."""
        faults = self.server.faults
        fault = faults.pop(0) if faults else None
        if fault is None:
            return False
        if fault == "hang":
            threading.Event().wait(HANG_S)
        elif fault == "drip":
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b" ")
                    threading.Event().wait(0.02)
        elif fault == "drip the head":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"x")
                    threading.Event().wait(0.02)
        elif fault == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b"[]")
            self.close_connection = True
        elif fault == "date":
            self._answer(503, "later", {"Retry-After": formatdate(time.time() + 1, usegmt=True)})
        elif fault in ("drop", "lost answer"):
            self.close_connection = True
        elif isinstance(fault, dict):
            self._answer(200, fault["page"])
        else:
            status, headers = fault if isinstance(fault, list) else (fault, {})
            self._answer(status, "a fault", headers)
        return True

    def _answer(self, status, value, headers=()):
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in dict(headers).items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def http_peer() -> Generator:
    """The server, as a SmallServer."""
    from tests.tools.small_servers import running

    def command(server):
        return [sys.executable, __file__, str(server.port), str(server.folder)]

    with running("http", command) as server:
        yield server


def ask(server, path, value=None):
    """What the server answers. `value`: is posted."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, 30)
    with contextlib.closing(connection):
        body = None if value is None else json.dumps(value)
        connection.request("GET" if value is None else "POST", path, body)
        return json.loads(connection.getresponse().read())


def url(server, path):
    return f"http://127.0.0.1:{server.port}{path}"


if __name__ == "__main__":
    Peer(int(sys.argv[1]), sys.argv[2]).serve_forever()
