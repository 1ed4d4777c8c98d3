"""Silent clients do not take the descriptors of the driver, and do not keep others out."""

import socket
import threading
from contextlib import ExitStack, contextmanager

import pytest

from penstock.engine.hosting.network.wire.acceptor import Complaints
from penstock.ops.rest import serving as module
from penstock.ops.rest.serving import BoundedListener, BoundedProtocol, uvicorn_server
from tests.tools.relay import closed_by_peer

PATIENCE_S = 60
ASKED = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
HALF = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n1234"


async def answering(_scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def serving():
    """Where a server listens."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
    at = listening.getsockname()
    server = uvicorn_server(answering)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield at
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


def asked(sock):
    sock.sendall(ASKED)
    got = b""
    while not got.endswith(b"ok"):
        more = sock.recv(1 << 16)
        assert more, "the server closed the connection"
        got += more
    return got


@pytest.mark.parametrize("said", [b"", b"GET / HTTP", ASKED, HALF])
def test_the_oldest_that_waits_for_no_answer_goes_for_a_newer_one(monkeypatch, caplog, said):
    monkeypatch.setattr(BoundedProtocol, "complaints", Complaints())
    monkeypatch.setattr(module, "MOST_OPEN", 8)
    with ExitStack() as stack:
        at = stack.enter_context(serving())
        strangers = [
            stack.enter_context(socket.create_connection(at, PATIENCE_S)) for _ in range(8)
        ]
        for one in strangers:
            if said is ASKED:
                asked(one)
            else:
                one.sendall(said)
        newer = [stack.enter_context(socket.create_connection(at, PATIENCE_S)) for _ in range(4)]
        assert [asked(one)[:15] for one in newer] == [b"HTTP/1.1 200 OK"] * 4
        assert all(map(closed_by_peer, strangers[:4]))
    assert caplog.text.count("peer=127.0.0.1 REFUSED cause=8 connections are open") == 1


def test_who_asks_nothing_is_given_up_and_told_once(monkeypatch, caplog):
    monkeypatch.setattr(BoundedProtocol, "complaints", Complaints())
    monkeypatch.setattr(module, "SILENT_S", 0.01)
    with serving() as at:
        for _ in range(2):
            with socket.create_connection(at, PATIENCE_S) as sock:
                assert closed_by_peer(sock)
    assert caplog.text.count("peer=127.0.0.1 REFUSED cause=it asked nothing") == 1


def test_one_that_has_asked_is_kept(monkeypatch):
    monkeypatch.setattr(module, "SILENT_S", 0.01)
    with serving() as at, socket.create_connection(at, PATIENCE_S) as sock:
        asked(sock)
        with socket.create_connection(at, PATIENCE_S) as silent:
            assert closed_by_peer(silent)  # So the time of the other one is over, too.
        assert asked(sock)


def test_those_whose_protocol_has_not_begun_are_bounded_too(monkeypatch):
    """As with HTTPS, before the handshake."""
    monkeypatch.setattr(module, "MOST_ACCEPTED", 3)
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        bounded = stack.enter_context(BoundedListener(listening))
        clients = [
            stack.enter_context(socket.create_connection(bounded.getsockname())) for _ in range(5)
        ]
        taken = [stack.enter_context(bounded.accept()[0]) for _ in range(3)]
        with pytest.raises(ConnectionAbortedError, match="3 connections are open"):
            bounded.accept()
        assert closed_by_peer(clients[3])
        taken[0].close()
        stack.enter_context(bounded.accept()[0])
