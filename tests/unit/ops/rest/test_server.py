"""Which port the server takes, and what it refuses."""

import contextlib
import datetime as dt
import os
import socket
import subprocess
import sys
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.ops.remote.client import RemoteError, RestClient
from penstock.ops.rest import server, serving
from penstock.ops.rest.server import PortsTaken, RestServer, ports_of
from penstock.ops.rest.serving import server_of
from tests.tools.waiting import wait_until


@pytest.mark.parametrize(
    ("given", "ports"),
    [
        ({}, list(range(8081, 8182))),
        ({"rest.port": "0"}, [0]),
        ({"rest.port": "9000"}, [9000]),
        ({"rest.bind-port": "50-52,99"}, [50, 51, 52, 99]),
        ({"rest.port": "9000", "rest.bind-port": "50"}, [50]),
    ],
)
def test_the_ports_that_are_tried(given, ports):
    assert ports_of(Settings(given)) == ports


@pytest.mark.parametrize("text", ["", "x", "5-", "70000", "9-5"])
def test_a_range_that_is_none_is_refused(text):
    with pytest.raises(ConfigurationError, match="rest.bind-port"):
        ports_of(Settings({"rest.bind-port": text}))


def test_a_taken_port_is_passed_over():
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        socket.create_server(("127.0.0.1", 0)) as free,
    ):
        first, second = taken.getsockname()[1], free.getsockname()[1]
        free.close()
        rest = RestServer(Settings({"rest.bind-port": f"{first},{second}"}))
        for one in rest.listening:
            one.close()
        assert rest.address == f"http://localhost:{second}"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_localhost_is_both_loopbacks(address, tmp_path, monkeypatch):
    """Whichever of them /etc/hosts has, and whichever a client takes."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(socket, "getaddrinfo", only_one("::1"))
    rest = RestServer(Settings({"rest.bind-port": "0"}))
    rest.start()
    try:
        port = int(rest.address.rpartition(":")[2])
        with socket.create_connection((address, port)) as client:
            client.sendall(b"GET /config HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in client.recv(100)
    finally:
        rest.stop()


def only_one(address):
    """As where /etc/hosts names localhost by one loopback alone."""
    ask = socket.getaddrinfo

    def found(host, *more, **named):
        return ask(address if host == "localhost" else host, *more, **named)

    return found


def test_without_a_free_port_the_job_runs_without_a_server(caplog, monkeypatch):
    monkeypatch.setattr(server.CURRENT, "server", None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = Settings({"rest.bind-port": str(taken.getsockname()[1])})
        with pytest.raises(PortsTaken, match="Set rest.bind-port"):
            RestServer(wanted)
        assert server.address_of_server(wanted) is None
    assert "rest NOT STARTED" in caplog.text


@pytest.mark.parametrize("address", ["nowhere.invalid", "203.0.113.7"])
def test_an_address_of_another_machine_is_refused(address, keystore):
    wanted = {
        "rest.bind-address": address,
        "penstock.rest.token": "always",
        "security.ssl.rest.enabled": "true",
        "security.ssl.rest.keystore": str(keystore),
    }
    with pytest.raises(ConfigurationError, match="rest.bind-address"):
        RestServer(Settings(wanted))


ASKS = """
import encodings.idna, http.client, os, sys  # That user may not read Python's files.
_, user, port, token, *requests = sys.argv
os.setuid(int(user))
asking = http.client.HTTPConnection("localhost", int(port))
for request in requests:
    headers = {"Connection": "close"} | ({"Authorization": f"Bearer {token}"} if token else {})
    asking.request(*request.split(), headers=headers)
    answer = asking.getresponse()
    answer.read()
    print(answer.status)
"""


@pytest.fixture
def running(tmp_path, monkeypatch):
    """Starts a server with these options."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with contextlib.ExitStack() as stack:

        def start(**options):
            rest = RestServer(Settings({"rest.bind-port": "0"} | options))
            rest.start()
            stack.callback(rest.stop)
            return rest

        yield start


READS = ("GET /overview", "GET /proof?nonce=1")


def statuses(rest, user, token="", requests=READS):
    """Of requests of a process of this user."""
    port = rest.address.rpartition(":")[2]
    command = [sys.executable, "-c", ASKS, str(user), port, token, *requests]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [int(one) for one in told.split()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
@pytest.mark.parametrize(
    ("rule", "own", "of_others"), [("others", 200, 401), ("always", 401, 401), ("never", 200, 200)]
)
def test_other_users_of_the_machine_read_with_the_token_only(rule, own, of_others, running):
    rest = running(**{"penstock.rest.token": rule})
    assert statuses(rest, os.geteuid()) == [own, 200]
    assert statuses(rest, 65_533) == [of_others, 200]
    assert statuses(rest, 65_533, rest.token) == [200, 200]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
@pytest.mark.parametrize("rule", ["others", "never"])
def test_another_user_gives_a_session_no_job_and_gets_no_rows(rule, running):
    """Whatever the rule: a job runs as the session's user. 403: this driver is no session."""
    rest = running(**{"penstock.rest.token": rule})
    job = f"/session/jobs/{'a' * 32}"
    requests = ("POST /session/jobs", f"GET {job}/rows/1")
    assert statuses(rest, 65_533, requests=requests) == [401, 401]
    assert statuses(rest, 65_533, rest.token, requests) == [403, 403]


def test_a_client_of_ours_shows_the_token_where_reads_need_it(running):
    rest = running(**{"penstock.rest.token": "always"})
    assert "taskmanagers" in RestClient(rest.address, rest.token).get("/overview")
    with pytest.raises(RemoteError, match="needs the driver's token"):
        RestClient(rest.address).get("/overview")


@pytest.fixture
def keystore(tmp_path):
    """A key and a certificate for localhost that it has signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509
        .CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = tmp_path / "rest.pem"
    path.write_bytes(key.private_bytes(pem, *form) + certificate.public_bytes(pem))
    return path


def test_https_is_served_with_the_key_of_the_settings(keystore, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    rest = RestServer(
        Settings({
            "rest.bind-port": "0",
            "security.ssl.rest.enabled": "true",
            "security.ssl.rest.keystore": str(keystore),
        })
    )
    rest.start()
    try:
        assert rest.address.startswith("https://localhost:")
        told = RestClient(rest.address, certificates=str(keystore)).get("/config")
        assert told["flink-version"] == "2.3.0"
        with pytest.raises(RemoteError, match="CERTIFICATE_VERIFY_FAILED"):
            RestClient(rest.address).get("/config")
    finally:
        rest.stop()


@pytest.mark.parametrize("content", [None, "no key"])
def test_https_without_a_key_is_refused(content, tmp_path):
    wanted = {"security.ssl.rest.enabled": "true", "rest.bind-port": "0"}
    if content is not None:
        path = tmp_path / "rest.pem"
        path.write_text(content)
        wanted["security.ssl.rest.keystore"] = str(path)
    with pytest.raises(ConfigurationError, match="security.ssl.rest.keystore"):
        RestServer(Settings(wanted))


def test_a_server_that_is_stopped_before_it_has_begun_ends(monkeypatch):
    begins, goes_on = threading.Event(), threading.Event()

    def late(*given):
        begins.set()
        goes_on.wait()
        return server_of(*given)

    monkeypatch.setattr(serving, "server_of", late)
    made = RestServer(Settings({"rest.port": "0"}))
    made.start()
    begins.wait()
    stopper = threading.Thread(target=made.stop)
    stopper.start()
    wait_until(lambda: made.is_stopped, "nobody stops it")
    goes_on.set()
    stopper.join()
    assert not made.thread.is_alive()


def test_a_program_that_starts_no_server_loads_none_of_its_parts():
    """They take some tenths of a second to import, so only the server's own thread does."""
    program = (
        "import sys, penstock.datastream, penstock.ops.rest.server\n"
        "print(sorted({'uvicorn', 'starlette', 'anyio'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
