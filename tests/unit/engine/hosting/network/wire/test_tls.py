"""TLS between the processes of a job (`engine/hosting/network/wire/tls.py`): who has no certificate of the job gets nothing, and nobody reads along."""

import queue
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from penstock.engine.hosting.network.wire.acceptor import Acceptor
from penstock.engine.hosting.network.wire.dialling import dial
from penstock.engine.hosting.network.wire.handshake import ROLE_DATA, hello
from penstock.engine.hosting.network.wire.tls import TlsSocket, client_context, new_identity
from penstock.engine.model.errors import AuthenticationError
from tests.tools.identities import new_credentials
from tests.tools.relay import Relay, closed_by_peer, flipped

HANG_S = 60.0
SECRET = new_credentials()
IDENTITY = SECRET.identity
MEGABYTE = bytes(range(256)) * 4096


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


@pytest.fixture
def ends(address, came):
    """Client and server, both blocking."""
    theirs = dial(address, SECRET, ROLE_DATA, HANG_S)
    with theirs, came.get(timeout=HANG_S).sock as ours:
        ours.settimeout(HANG_S)
        yield theirs, ours


def received(sock, size):
    data = b""
    while len(data) < size:
        part = sock.recv(1 << 20)
        assert part, "closed"
        data += part
    return data


def test_a_connection_is_tls_1_3_and_both_ends_have_shown_the_certificate(ends):
    certificate = ssl.PEM_cert_to_DER_cert(IDENTITY.certificate)
    for end in ends:
        assert isinstance(end, TlsSocket)
        assert end.tls.version() == "TLSv1.3"
        assert end.tls.getpeercert(binary_form=True) == certificate


def test_both_ends_read_what_was_sent(ends):
    theirs, ours = ends
    theirs.sendall(b"hello")
    ours.sendall(b"you too")
    assert (received(ours, 5), received(theirs, 7)) == (b"hello", b"you too")


def test_a_listener_sees_nothing_of_it(address, came):
    seen = []

    def recorded(_at, data):
        seen.append(data)
        return data

    with Relay(address, recorded, recorded) as relay:
        theirs = dial(relay.address, SECRET, ROLE_DATA, HANG_S)
        with theirs, came.get(timeout=HANG_S).sock as ours:
            ours.settimeout(HANG_S)
            theirs.sendall(b"a record of the user")
            assert received(ours, 20) == b"a record of the user"
    assert seen
    assert b"a record" not in b"".join(seen)


def test_a_changed_byte_is_an_error(address, came):
    with Relay(address, flipped(20_000)) as relay:
        theirs = dial(relay.address, SECRET, ROLE_DATA, HANG_S)
        with theirs, came.get(timeout=HANG_S).sock as ours:
            ours.settimeout(HANG_S)
            theirs.sendall(MEGABYTE[:40_000])
            with pytest.raises(ssl.SSLError):
                received(ours, 40_000)


def test_who_has_another_certificate_is_refused(address, came):
    other = replace(SECRET, identity=new_identity())
    with pytest.raises(AuthenticationError, match="CERTIFICATE_VERIFY_FAILED"):
        dial(address, other, ROLE_DATA, HANG_S)
    assert came.empty()


def test_a_client_with_another_certificate_that_does_not_look_at_the_servers_is_refused(
    address, came
):
    context = client_context(new_identity())
    context.verify_mode = ssl.CERT_NONE
    assert _is_refused(address, context)
    assert came.empty()


def test_who_shows_no_certificate_is_refused(address, came):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    assert _is_refused(address, context)
    assert came.empty()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2])
def test_an_older_version_is_refused(address, came, version):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version
    with pytest.raises(ssl.SSLError), socket.create_connection(address) as sock:
        context.wrap_socket(sock)
    assert came.empty()


def _is_refused(address, context):
    """Whether a client with this context is told nothing but TLS's alert."""
    with socket.create_connection(address) as plain, context.wrap_socket(plain) as sock:
        try:
            sock.sendall(hello(SECRET, ROLE_DATA, "tm-1"))
            return sock.recv(1) == b""
        except (ssl.SSLError, ConnectionError):  # In TLS 1.3 a client learns it when it reads.
            return True


def test_who_talks_without_tls_is_refused(address, came):
    with socket.create_connection(address) as sock:
        sock.sendall(hello(SECRET, ROLE_DATA, "tm-1"))
        while not closed_by_peer(sock):
            pass  # TLS's alert.
    assert came.empty()


def test_who_dials_waits_for_the_handshake_as_long_as_it_says():
    with closing(server := socket.create_server(("127.0.0.1", 0))):  # Nobody accepts.
        expected = "did not finish the handshake within 0.05 s"
        with pytest.raises(AuthenticationError, match=expected):
            dial(server.getsockname(), SECRET, ROLE_DATA, 0.05)


def test_one_thread_reads_while_another_writes(ends):
    """Both directions are full at once, which ends only if neither holds the other up."""
    times = 20

    def talk(sock, got):
        writer = threading.Thread(target=lambda: [sock.sendall(MEGABYTE) for _ in range(times)])
        writer.start()
        got.append(received(sock, times * len(MEGABYTE)))
        writer.join()

    heard = [], []
    threads = [
        threading.Thread(target=talk, args=(end, got)) for end, got in zip(ends, heard, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert heard == ([MEGABYTE * times], [MEGABYTE * times])


def test_a_full_socket_is_told_and_the_rest_sent_later(ends):
    theirs, ours = ends
    theirs.setblocking(False)
    expected = rest = MEGABYTE * 16
    got, met_full = b"", False
    while rest:
        try:
            sent = theirs.sendmsg([rest[:100], rest[100:200], rest[200:]])
            rest = rest[sent:]
        except BlockingIOError:
            met_full = True
            got += ours.recv(1 << 16)
    assert met_full
    assert got + received(ours, len(expected) - len(got)) == expected


def test_what_is_decrypted_already_is_told(ends):
    theirs, ours = ends
    theirs.sendall(b"0123456789")
    assert ours.recv(4) == b"0123"
    assert ours.has_unread
    assert ours.recv(100) == b"456789"
    assert not ours.has_unread


def test_a_buffer_is_filled_across_records(ends):
    theirs, ours = ends
    theirs.sendall(MEGABYTE[:100_000])
    buffer = bytearray(100_000)
    at = 0
    while at < len(buffer):
        at += ours.recv_into(memoryview(buffer)[at:])
    assert bytes(buffer) == MEGABYTE[:100_000]


def test_waiting_ends_with_the_time_out(ends):
    _, ours = ends
    ours.settimeout(0.01)
    with pytest.raises(TimeoutError):
        ours.recv(1)
    ours.setblocking(False)
    with pytest.raises(BlockingIOError):
        ours.recv(1)


def test_another_thread_wakes_the_reader(ends):
    theirs, _ = ends
    began = threading.Event()
    ended = []

    def read():
        began.set()
        ended.append(theirs.recv(1))

    thread = threading.Thread(target=read)
    thread.start()
    began.wait(HANG_S)
    theirs.shutdown(socket.SHUT_RDWR)
    thread.join(HANG_S)
    assert ended == [b""]


def test_an_executor_needs_nothing_but_the_standard_library(address, came):
    """The driver makes the certificate; whoever shows it has no package for that."""
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from penstock.engine.hosting.network.wire import dialling, handshake, tls\n"
        "own = handshake.Credentials(tls.Identity(sys.stdin.buffer.read()), 'token', 'cluster')\n"
        f"dialling.dial({address!r}, own, {ROLE_DATA}, {HANG_S}).sendall(b'hello')\n"
    )
    subprocess.run([sys.executable, "-c", program], input=IDENTITY.pem, check=True)
    with came.get(timeout=HANG_S).sock as ours:
        ours.settimeout(HANG_S)
        assert received(ours, 5) == b"hello"


def test_each_job_has_a_certificate_of_its_own():
    assert new_identity() != new_identity()
    assert "PRIVATE" not in IDENTITY.certificate


def test_the_key_is_not_shown():
    assert b"PRIVATE KEY" in IDENTITY.pem
    assert "PRIVATE" not in f"{IDENTITY!r} {SECRET!r}"
