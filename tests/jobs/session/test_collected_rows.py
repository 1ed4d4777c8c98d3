"""Rows of a job in a session come to the client that submitted it, and nobody else's are opened."""

import json
import pickle
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.common import WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.datastream import RuntimeExecutionMode
from penstock.engine.model.errors import ConfigurationError, JobExecutionError
from penstock.ops.remote import session_client
from penstock.ops.remote.client import RemoteError
from penstock.ops.rest import server
from tests.tools.hosting.session import remote_environment

NUMBERS = list(range(10))


class Point:
    """A class of the program."""

    def __init__(self, x):
        self.x = x


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_a_client_collects_what_its_job_gives(session, mode):
    env = remote_environment(session.client.address).set_runtime_mode(mode)
    with env.from_collection(NUMBERS).map(lambda n: Point(n * 2)).execute_and_collect() as rows:
        found = [one.x for one in rows]
    assert sorted(found) == [n * 2 for n in NUMBERS]


def test_many_rows_come_once_and_in_order(session):
    env = remote_environment(session.client.address)
    source = NumberSequenceSource(1, 50_000)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "n").set_parallelism(1)
    with numbers.map(lambda n: n).set_parallelism(1).execute_and_collect() as rows:
        assert list(rows) == list(range(1, 50_001))


def test_a_limit_cancels_the_job(session):
    env = remote_environment(session.client.address)
    source = NumberSequenceSource(0, 10**9)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "endless")
    assert len(numbers.execute_and_collect(limit=5)) == 5
    (job,) = session.client.get("/jobs/overview")["jobs"]
    assert job["state"] == "CANCELED"


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_the_error_of_the_job_comes_behind_its_rows(session, mode):
    env = remote_environment(session.client.address).set_runtime_mode(mode)
    rows = env.from_collection(NUMBERS).map(lambda n: 1 // (n - 7)).execute_and_collect()
    with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
        list(rows)


def test_a_job_whose_client_reads_nothing_has_no_rows(session):
    env = remote_environment(session.client.address)
    env.from_collection(NUMBERS).print()
    job_id = env.execute("prints").get_job_id()
    status, told = session.client.ask(f"/session/jobs/{job_id}/rows/collect-1?after=0")
    assert status == 410
    assert "did not start it for a client that reads rows" in told["errors"][0]


@pytest.mark.parametrize("rule", ["never", "others"])
def test_another_user_needs_the_token_for_rows_whatever_the_rule(session, monkeypatch, rule):
    access = server.current_server().access
    monkeypatch.setattr("penstock.engine.hosting.network.http_server.is_this_user", lambda _: False)
    object.__setattr__(access, "rule", type(access.rule)(rule))
    path = f"/session/jobs/{'a' * 32}/rows/collect-1?after=0"
    assert session.client.ask(path)[0] == 401
    shown = {"Authorization": f"Bearer {server.current_server().token}"}
    assert session.client.ask(path, **shown)[0] == 410


class Impostor(BaseHTTPRequestHandler):
    """Answers like a session, and gives pickles of its own."""

    given = pickle.dumps(["not yours"])
    about = None

    def do_GET(self):
        if "/rows/" in self.path:
            rows = b64encode(self.given).decode()
            told = {"number": 1, "rows": rows, "failure": None, "signature": "00" * 32}
        elif self.path.startswith("/session/jobs/"):
            told = {"status": {"id": "COMPLETED"}, "operation": {"job-id": "a" * 32}}
        else:
            told = self.about
        self.answer(told)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({"request-id": "b" * 32})

    def answer(self, told):
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_more):
        """Says nothing."""


@pytest.fixture
def impostor(session):
    Impostor.about = session.client.get("/session")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Impostor)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_job_that_wants_rows_is_not_submitted_where_nothing_vouches_for_them(impostor):
    env = remote_environment(impostor)
    with pytest.raises(ConfigurationError, match="nothing vouches"):
        env.from_collection(NUMBERS).execute_and_collect()


def test_rows_that_the_session_has_not_signed_are_never_opened(impostor, monkeypatch):
    """Whoever has taken the address of a session does not know its key."""
    (known,) = session_client.drivers()
    moved = type(known)(impostor, known.token, known.pid, 0.0, "session", known.rows_key)
    monkeypatch.setattr(session_client, "drivers", lambda: [moved])
    opened = []
    monkeypatch.setattr("penstock.ops.remote.rows.loads_records", opened.append)
    rows = remote_environment(impostor).from_collection(NUMBERS).execute_and_collect()
    with pytest.raises(RemoteError, match="not signed"):
        next(rows)
    assert opened == []
    rows._letting_go.detach()  # The impostor has no job to be cancelled.
