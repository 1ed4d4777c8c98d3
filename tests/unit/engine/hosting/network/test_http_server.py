"""Strangers do not take the descriptors and the memory of the driver, and do not keep its user out."""

import errno
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager

import pytest

from penstock.engine.hosting.network import http_server as module
from penstock.engine.hosting.network.http_server import HttpServer, Places
from tests.tools.certificates import Authority
from tests.tools.permissions import AS_ROOT
from tests.tools.relay import closed_by_peer
from tests.tools.waiting import wait_until

PATIENCE_S = 60
ASKED = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
HALF = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n1234"
STREAMED = b"GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n"
LARGE_BYTES = 64 << 20


async def answering(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    text = b"x" * LARGE_BYTES if scope["path"] == "/large" else b"ok"
    is_stream = scope["path"] == "/stream"
    headers = [] if is_stream else [(b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text, "more_body": is_stream})
    if is_stream:
        await receive()  # It ends when the client does.


async def refusing(_scope, _receive, send):
    """Reads no body."""
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def serving(application=answering, **settings):
    """Where a server listens."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
    at = listening.getsockname()
    server = HttpServer(application, **settings)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield at
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


def asked(sock, request=ASKED):
    sock.sendall(request)
    got = b""
    while b"ok" not in got:
        more = sock.recv(1 << 16)
        assert more, "the server closed the connection"
        got += more
    return got


def connected(stack, at, count):
    return [stack.enter_context(socket.create_connection(at, PATIENCE_S)) for _ in range(count)]


# ---------------------------------------------------------------------- places


@pytest.mark.parametrize("said", [b"", b"GET / HTTP", ASKED, HALF])
def test_the_oldest_that_waits_for_no_answer_goes_for_a_newer_one(caplog, said):
    with ExitStack() as stack:
        at = stack.enter_context(serving(most_open=8))
        strangers = connected(stack, at, 8)
        for one in strangers:
            if said is ASKED:
                asked(one)
            else:
                one.sendall(said)
        newer = connected(stack, at, 4)
        assert [asked(one)[:15] for one in newer] == [b"HTTP/1.1 200 OK"] * 4
        assert all(map(closed_by_peer, strangers[:4]))
    assert caplog.text.count("peer=127.0.0.1 REFUSED cause=8 connections are open") == 1


SOMEBODY_ELSE = """
import encodings.idna, os, socket, sys  # what it needs it has to import as root
os.setgid(65534); os.setuid(65534)
held = []
for _ in range(int(sys.argv[2])):
    held.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
    held[-1].sendall(sys.argv[3].encode())
    held[-1].recv(12)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_by_somebody_else(at, count, request):
    """That many connections of another user."""
    command = [sys.executable, "-c", SOMEBODY_ELSE, str(at[1]), str(count), request.decode()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield
        process.stdin.close()


@AS_ROOT
@pytest.mark.parametrize("request_of_all", [STREAMED, LARGE], ids=["streams", "unread"])
def test_streams_and_unread_answers_of_another_user_do_not_keep_the_drivers_user_out(
    request_of_all,
):
    with ExitStack() as stack:
        at = stack.enter_context(serving(most_open=8))
        stack.enter_context(held_by_somebody_else(at, 8, request_of_all))
        mine = connected(stack, at, 8)
        assert [asked(one, STREAMED)[:15] for one in mine] == [b"HTTP/1.1 200 OK"] * 8
        # Now none of the others is left, and they get no place of one that waits for its answer.
        newer = connected(stack, at, 1)[0]
        assert closed_by_peer(newer)


class Held:
    """A connection, and its protocol: what `Places` needs to know of them. User 0 is the driver's."""

    def __init__(self, user, *, awaits_answer=False):
        self.user = user
        self.awaits_answer = awaits_answer
        self.transport = self
        self.is_open = True

    def fileno(self):
        return id(self) if self.is_open else -1

    def abort(self):
        self.is_open = False

    close = abort


@pytest.mark.parametrize(
    ("held", "ended"),
    [
        # user, and whether it waits for an answer
        ([(0, False), (7, True)], 1),
        ([(7, False), (8, True), (8, True)], 1),
        ([(8, True), (8, False), (7, False)], 1),
        ([(7, False), (8, False)], 0),
        ([(0, True), (0, False)], 1),
        ([(0, True), (0, True)], None),
    ],
    ids=["strangers first", "of the most", "who waits not", "the oldest", "own idle", "nobody"],
)
def test_who_gives_his_place(monkeypatch, held, ended):
    monkeypatch.setattr(module, "user_of_other_end", lambda sock: sock.user)
    monkeypatch.setattr(module, "is_this_user", lambda user: user == 0)
    places = Places(len(held))
    socks = [Held(user, awaits_answer=waits) for user, waits in held]
    for sock in socks:
        places.take(sock, "127.0.0.1")
        places.of(sock).protocol = sock
    newer = Held(9)
    if ended is None:
        with pytest.raises(ConnectionAbortedError, match="connections are open"):
            places.take(newer, "127.0.0.1")
    else:
        places.take(newer, "127.0.0.1")
        assert places.of(socks[ended]) is None
    assert newer.is_open == (ended is not None)
    assert [one.is_open for one in socks] == [at != ended for at in range(len(held))]


def test_connections_that_are_reset_at_once_do_not_keep_others_waiting(caplog):
    """The server meets them when it accepts, before it knows more of them."""
    with ExitStack() as stack:
        at = stack.enter_context(serving(most_open=4))
        for _ in range(3):
            for one in connected(stack, at, 12):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.close()
            (mine,) = connected(stack, at, 1)
            assert asked(mine).startswith(b"HTTP/1.1 200 OK")
    assert "Traceback" not in caplog.text


def test_who_comes_when_no_descriptor_is_left_to_ask_with_is_not_taken_for_a_stranger(monkeypatch):
    def no_room(_sock):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(module, "user_of_other_end", no_room)
    newer = Held(0)
    with pytest.raises(OSError, match="Too many open files"):
        Places(1).take(newer, "127.0.0.1")
    assert not newer.is_open


def test_silent_strangers_before_the_handshake_keep_nobody_out(tmp_path):
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.certificate("localhost"))
    mine = ssl.create_default_context(cafile=authority.ca)
    with ExitStack() as stack:
        at = stack.enter_context(serving(context=context, most_open=4))
        silent = connected(stack, at, 20)
        plain = connected(stack, at, 1)[0]
        sock = stack.enter_context(mine.wrap_socket(plain, server_hostname="localhost"))
        assert asked(sock).startswith(b"HTTP/1.1 200 OK")
        assert all(map(closed_by_peer, silent[:17]))


# ---------------------------------------------------------------------- time


def test_who_asks_nothing_is_given_up_and_told_once(caplog):
    with serving(request_s=0.01) as at:
        for _ in range(2):
            with socket.create_connection(at, PATIENCE_S) as sock:
                assert closed_by_peer(sock)
    assert caplog.text.count("peer=127.0.0.1 REFUSED cause=it sent no whole request") == 1


def test_one_that_has_asked_is_kept():
    with serving(request_s=0.5) as at, socket.create_connection(at, PATIENCE_S) as sock:
        asked(sock)
        with socket.create_connection(at, PATIENCE_S) as silent:
            assert closed_by_peer(silent)  # So the time of the other one is over, too.
        assert asked(sock)


@pytest.mark.parametrize("begun", [b"GET / HTTP/1.1\r\n", HALF], ids=["head", "body"])
@pytest.mark.parametrize("is_pipelined", [False, True])
def test_each_request_has_a_time_limit_of_its_own(begun, is_pipelined):
    with serving(request_s=0.5) as at, socket.create_connection(at, PATIENCE_S) as sock:
        asked(sock, ASKED + begun if is_pipelined else ASKED)
        if not is_pipelined:
            sock.sendall(begun)
        assert closed_by_peer(sock)


def test_a_body_that_comes_after_its_answer_leaves_the_connection_open():
    with (
        serving(refusing, request_s=0.5) as at,
        socket.create_connection(at, PATIENCE_S) as sock,
    ):
        asked(sock, HALF)
        sock.sendall(b"56789")
        with socket.create_connection(at, PATIENCE_S) as silent:
            assert closed_by_peer(silent)  # So the time of the other one is over, too.
        assert asked(sock, HALF)


def test_requests_that_cannot_be_read_do_not_fill_the_log(caplog):
    with serving() as at:
        for _ in range(3):
            with socket.create_connection(at, PATIENCE_S) as sock:
                sock.sendall(b"\0\r\n\r\n")
                assert sock.recv(100).startswith(b"HTTP/1.1 400 ")
    assert [one.getMessage()[:30] for one in caplog.records] == ["peer=127.0.0.1 REFUSED cause=I"]


def test_a_body_that_cannot_be_read_after_its_answer_ends_the_connection_quietly(caplog):
    chunked = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    with serving(refusing) as at, socket.create_connection(at, PATIENCE_S) as sock:
        asked(sock, chunked)
        sock.sendall(b"zz\r\n")
        assert closed_by_peer(sock)
    assert "Traceback" not in caplog.text
    assert not [one for one in caplog.records if one.exc_info]


def test_an_answer_that_is_not_read_is_given_up(monkeypatch, caplog):
    monkeypatch.setattr(module, "UNREAD_S", 0.05)
    with serving() as at, socket.create_connection(at, PATIENCE_S) as sock:
        sock.sendall(LARGE)
        wait_until(lambda: "it read nothing of its answer" in caplog.text, "it is waited for")
        with pytest.raises((ConnectionError, AssertionError)):
            asked(sock, b"")


def test_a_request_that_is_not_there_does_not_hold_up_the_end():
    server = HttpServer(answering)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    with socket.create_connection(listening.getsockname(), PATIENCE_S) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
                     b"content-length: 9\r\n\r\n")  # fmt: skip
        assert sock.recv(100).startswith(b"HTTP/1.1 100")  # It is waited for.
        server.should_exit = True
        assert closed_by_peer(sock)
    thread.join(PATIENCE_S)
    assert server.ended.is_set()


# ---------------------------------------------------------------------- where a body ends


@pytest.mark.parametrize(
    "lengths",
    [
        b"content-length: 6\r\ntransfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 6\r\n",
        b"content-length: 6\r\ncontent-length: 0\r\n",
        b"content-length: 6, 0\r\n",
        b"transfer-encoding: identity\r\ncontent-length: 6\r\n",
        b"transfer-encoding : chunked\r\n",
    ],
)
def test_a_request_whose_end_can_be_seen_in_two_ways_is_refused_with_all_that_follows(lengths):
    with serving() as at, socket.create_connection(at, PATIENCE_S) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\n" + lengths + b"\r\n0\r\n\r\n" + ASKED)
        got = b""
        try:
            while more := sock.recv(1 << 16):
                got += more
        except ConnectionResetError:
            pass
    assert got.startswith(b"HTTP/1.1 400 ")
    assert got.count(b"HTTP/1.1") == 1
