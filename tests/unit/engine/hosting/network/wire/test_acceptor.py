"""Who does not belong to the job costs little and hinders nobody (`engine/hosting/network/wire/acceptor.py`)."""

import errno
import logging
import os
import pickle
import queue
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, suppress
from itertools import repeat

import pytest

from penstock.engine.hosting.network.wire import acceptor as module
from penstock.engine.hosting.network.wire.acceptor import MAX_UNPROVEN, Acceptor, Complaints
from penstock.engine.hosting.network.wire.dialling import dial, introduced
from penstock.engine.hosting.network.wire.handshake import ROLE_DATA, ROLE_FEED, hello
from penstock.engine.hosting.network.wire.tls import client_context
from penstock.engine.hosting.os import socket_owners
from penstock.engine.model.errors import AuthenticationError
from tests.tools.identities import new_credentials
from tests.tools.relay import closed_by_peer

SECRET = new_credentials()
HANG_S = 60.0


@pytest.fixture
def came():
    return queue.SimpleQueue()


@pytest.fixture
def address(came):
    with closing(server := socket.create_server(("127.0.0.1", 0))):
        acceptor = Acceptor([server], SECRET, ROLE_DATA, came.put).start()
        with closing(acceptor):
            yield server.getsockname()
    while not came.empty():
        came.get().sock.close()


def test_a_peer_that_proves_itself_is_handed_over(address, came):
    theirs = dial(address, SECRET, ROLE_DATA, HANG_S)
    with theirs, came.get(timeout=HANG_S).sock as ours:
        theirs.sendall(b"hello")
        ours.setblocking(True)
        assert ours.recv(5) == b"hello"


def test_silent_strangers_take_no_thread_and_no_place_of_those_that_prove_themselves(address, came):
    threads = threading.active_count()
    with ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(address)) for _ in range(3 * MAX_UNPROVEN)
        ]
        theirs = stack.enter_context(dial(address, SECRET, ROLE_DATA, HANG_S))
        ours = stack.enter_context(came.get(timeout=HANG_S).sock)
        assert ours.getpeername() == theirs.getsockname()
        assert threading.active_count() == threads
        assert all(closed_by_peer(one) for one in strangers[:MAX_UNPROVEN])


def test_a_silent_stranger_is_given_up(address, came, monkeypatch):
    monkeypatch.setattr(module, "LIMIT_SECONDS", 0.05)
    with socket.create_connection(address) as stranger:
        assert closed_by_peer(stranger)
    assert came.empty()


def test_the_time_is_for_all_of_the_handshake_and_a_byte_now_and_then_wins_none(
    address, came, monkeypatch
):
    monkeypatch.setattr(module, "LIMIT_SECONDS", 0.2)
    with socket.create_connection(address) as stranger:
        stranger.settimeout(0.05)
        for byte in client_hello():
            try:
                stranger.send(bytes([byte]))
                with suppress(TimeoutError):
                    assert stranger.recv(1) == b"", "it was answered although it took too long"
                    break
            except ConnectionError:  # It was closed between the two.
                break
        else:
            pytest.fail("it could take as long as it wanted")
    assert came.empty()


def client_hello():
    """The first message of TLS, as a process of the job sends it."""
    outgoing = ssl.MemoryBIO()
    tls = client_context(SECRET.identity).wrap_bio(ssl.MemoryBIO(), outgoing)
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    "first",
    [
        b"\0" * 8,
        b"\xff" * 5000,
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        bytes.fromhex("1603010006010000020303"),
        client_hello()[:60] + b"\xff" * 600,
        hello(SECRET, ROLE_DATA),
        pickle.dumps(print),
    ],
    ids=["zeros", "ones", "HTTP", "no TLS", "TLS and then not", "without TLS", "pickle"],
)
def test_garbage_is_closed_at_once_and_disturbs_nobody(address, came, first):
    # It is closed in the middle.
    with socket.create_connection(address) as stranger, suppress(ConnectionError):
        stranger.sendall(first)
        while not closed_by_peer(stranger):
            pass  # TLS's alert.
    with dial(address, SECRET, ROLE_DATA, HANG_S):
        came.get(timeout=HANG_S).sock.close()


def test_a_peer_in_another_role_is_refused(address, came, caplog):
    with pytest.raises(AuthenticationError, match="closed the connection"):
        dial(address, SECRET, ROLE_FEED, HANG_S)
    assert came.empty()
    assert "connected in role 4; expected role 3" in caplog.text


def test_a_stranger_with_another_certificate_is_refused_and_told_once(address, caplog):
    for _ in range(3):
        with pytest.raises(AuthenticationError, match="did not prove"):
            dial(address, new_credentials(), ROLE_DATA, HANG_S)
    with dial(address, SECRET, ROLE_DATA, HANG_S):  # what is before it is done
        assert caplog.text.count("REFUSED") == 1
    assert "peer=127.0.0.1 REFUSED" in caplog.text


def test_as_many_addresses_are_told_of_as_can_be_remembered(caplog):
    complaints = Complaints()
    for number in range(1000):
        complaints.of(f"10.0.0.{number}", "a reason")
    assert caplog.text.count("REFUSED") == 256


class Full:
    """A listening socket of a process that has no file descriptor left, until it has one."""

    def __init__(self, server, looks):
        self._server, self._looks = server, looks
        self.fileno, self.setblocking, self.close = server.fileno, server.setblocking, server.close

    def accept(self):
        if next(self._looks):
            return self._server.accept()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_without_a_descriptor_it_waits_and_says_so(came, caplog, monkeypatch):
    """Else the socket would be ready again and again, and the thread would turn without a pause."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    looks = iter([False, True])
    server = socket.create_server(("127.0.0.1", 0))
    with (
        closing(Acceptor([Full(server, looks)], SECRET, ROLE_DATA, came.put).start()),
        dial(server.getsockname(), SECRET, ROLE_DATA, HANG_S),
    ):
        came.get(timeout=HANG_S).sock.close()
    assert "ACCEPTS_NOBODY" in caplog.text
    assert list(looks) == []


def test_two_servers_without_a_descriptor_in_one_turn_do_not_end_it(came):
    """As those of a data plane: TCP and a Unix socket."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    acceptor = Acceptor([Full(one, repeat(False)) for one in servers], SECRET, ROLE_DATA, came.put)
    with closing(acceptor), ExitStack() as stack:
        for one in servers:  # Both are ready when the thread looks for the first time.
            stack.enter_context(socket.create_connection(one.getsockname()))
        turns = queue.SimpleQueue()
        pause = acceptor.pause
        acceptor.pause = lambda error: (pause(error), turns.put(error))
        acceptor.start()
        for _ in range(3):
            assert turns.get(timeout=HANG_S).errno == errno.EMFILE
        assert acceptor.thread.is_alive()


def test_one_that_cannot_be_taken_does_not_end_the_acceptor(caplog):
    came, failures = queue.SimpleQueue(), iter([ValueError("not now"), None])

    def take(proven):
        failure = next(failures)
        if failure is not None:
            raise failure
        came.put(proven)

    server = socket.create_server(("127.0.0.1", 0))
    with closing(Acceptor([server], SECRET, ROLE_DATA, take).start()):
        with dial(server.getsockname(), SECRET, ROLE_DATA, HANG_S) as first:
            assert closed_by_peer(first)
        with dial(server.getsockname(), SECRET, ROLE_DATA, HANG_S):
            came.get(timeout=HANG_S).sock.close()
    assert "not now" in caplog.text


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="Linux's")
def test_over_a_unix_socket_only_processes_of_this_user_are_accepted(tmp_path, monkeypatch, caplog):
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket"))
    server.listen()
    monkeypatch.setattr(socket_owners.os, "geteuid", lambda: os.getuid() + 1)
    with (
        closing(Acceptor([server], SECRET, ROLE_DATA, lambda _: None).start()),
        socket.socket(socket.AF_UNIX) as theirs,
    ):
        theirs.connect(str(tmp_path / "socket"))
        assert closed_by_peer(theirs)
    assert f"is of user {os.getuid()}, not of user {os.getuid() + 1}" in caplog.text


def test_an_error_of_ours_is_told_to_the_owner(came, monkeypatch):
    broken = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        acceptor = Acceptor([server], SECRET, ROLE_DATA, came.put, on_broken=broken.set)
        monkeypatch.setattr(acceptor, "_accept", lambda _server: 1 // 0)
        with closing(acceptor.start()), socket.create_connection(server.getsockname()):
            assert broken.wait(HANG_S)


DIALS_AS = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect("\\0" + sys.argv[1])
    print(os.getuid(), sock.recv(1) == b"", flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
def test_another_user_who_knows_the_name_is_refused_before_it_says_anything(came, caplog):
    name = f"penstock-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        with closing(Acceptor([server], SECRET, ROLE_DATA, came.put).start()):
            done = subprocess.run(
                [sys.executable, "-S", "-c", DIALS_AS, name],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
    assert done.stdout.split() == ["65534", "True"]
    assert "is of user 65534, not of user 0" in caplog.text
    assert came.empty()


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
@pytest.mark.parametrize("is_member", [True, False])
def test_over_a_unix_socket_a_process_of_another_job_is_refused(came, caplog, is_member):
    """It is of this user, so the kernel lets it pass."""
    name = f"\0penstock-test-{os.getpid()}"
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    server.listen()
    theirs = socket.socket(socket.AF_UNIX)
    theirs.connect(name)
    with closing(Acceptor([server], SECRET, ROLE_DATA, came.put).start()):
        if is_member:
            with introduced(theirs, SECRET, ROLE_DATA, "tm-2"):
                taken = came.get(timeout=HANG_S)
                taken.sock.close()
                assert taken.name == "tm-2"
            return
        with pytest.raises(AuthenticationError, match="closed the connection"):
            introduced(theirs, new_credentials(), ROLE_DATA, "tm-2")
    assert "of another job" in caplog.text
    assert came.empty()
