"""A driver that stops answering while a command waits for an end: the command does not take its silence for the end."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.ops.remote import client as client_module
from tests.tools.hosting.commands import run

JOB = {"jid": "a" * 32, "name": "words", "state": "RUNNING", "end-time": -1}
ANSWERS = {
    ("GET", "/jobs/overview"): {"jobs": [JOB]},
    ("PATCH", f"/jobs/{'a' * 32}"): {},
    ("DELETE", "/cluster"): {},
}


@pytest.fixture
def stuck(monkeypatch):
    """The address of a driver that answers what is in ANSWERS, and nothing else."""
    monkeypatch.setattr(client_module, "_TIMEOUT_S", 0.2)
    over = threading.Event()

    class Stuck(BaseHTTPRequestHandler):
        def answer(self):
            path = self.path.partition("?")[0]
            found = ANSWERS.get((self.command, path))
            if found is None:
                over.wait()
                return
            data = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PATCH = do_DELETE = answer

        def log_message(self, *_):
            """Nothing."""

    server = ThreadingHTTPServer(("localhost", 0), Stuck)
    serves = threading.Thread(target=server.serve_forever)
    serves.start()
    yield f"localhost:{server.server_port}"
    over.set()
    server.shutdown()
    serves.join()
    server.server_close()


@pytest.mark.parametrize("command", [["cancel", "words"], ["session", "stop"]])
def test_a_late_answer_is_not_taken_for_the_end(capsys, stuck, command):
    code, told = run(capsys, *command, "-m", stuck)
    assert code == 1
    assert f"no driver answers at http://{stuck}: timed out" in told
    assert "CANCELED" not in told
    assert "stopped" not in told
