"""Mutually authenticated connections, the dialling side. Every wire begins with them."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.engine.hosting.network.wire.handshake import (
    LIMIT_SECONDS,
    WELCOME,
    Credentials,
    hello,
)
from penstock.engine.hosting.network.wire.tls import TlsSocket, client_context
from penstock.engine.model.errors import AuthenticationError

LEASE_S: Final = 10.0


class _Closeable(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Proven:
    """An authenticated connection. `name`: of the other end."""

    sock: socket.socket
    name: str = ""


def dial(
    address: tuple[str, int], credentials: Credentials, role: int, timeout_s: float
) -> TlsSocket:
    """Connect and authenticate. The socket has that time-out.

    Raises: OSError; AuthenticationError: another program listens there.
    """
    sock = socket.create_connection(address, timeout=timeout_s)
    return welcomed(sock, client_context(credentials.identity), hello(credentials, role))


def introduced(
    sock: socket.socket, credentials: Credentials, role: int, name: str = ""
) -> socket.socket:
    """Authenticate a connection that this end has dialled: by TLS, or by the kernel's word if it is a Unix
    socket. `name`: as the server knows this end. Returns the socket's successor; closed on any error.

    Raises: OSError; AuthenticationError.
    """
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        context = client_context(credentials.identity)
        return welcomed(sock, context, hello(credentials, role, name))
    with closed_on_error(sock), _within_limit(sock) as deadline:
        _greet(sock, hello(credentials, role, name, is_local=True), deadline)
    return sock


def welcomed(sock: socket.socket, context: ssl.SSLContext, first: bytes) -> TlsSocket:
    """Return the socket's successor, which the server has welcomed. `first`: the HELLO. The socket is closed on
    any error. Raises: OSError; AuthenticationError.
    """
    with closed_on_error(sock):
        notice_lost_peer(sock)
        limit_s = sock.gettimeout()
    tls = TlsSocket(sock.detach(), context, is_server=False)
    tls.settimeout(limit_s)
    with closed_on_error(tls), _within_limit(tls) as deadline:
        try:
            tls.do_handshake()
            _greet(tls, first, deadline)
        except ssl.SSLError as error:
            raise AuthenticationError(
                "the peer did not prove that it belongs to this job, or did not accept our proof "
                f"({error.reason or error}); nothing it sent was read. Is another application on "
                "this port?"
            ) from error
    return tls


def received(sock: socket.socket, size: int) -> bytes:
    """Read exactly so many bytes. Raises: OSError; AuthenticationError: the other end closes before."""
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise AuthenticationError("the peer closed the connection before it accepted us")
        data += more
    return data


def _greet(sock: socket.socket, first: bytes, deadline: float) -> None:
    sock.sendall(first)
    # The limit is for the whole handshake, not for each step.
    sock.settimeout(max(0.001, deadline - time.monotonic()))
    if received(sock, len(WELCOME)) != WELCOME:
        raise AuthenticationError("the peer does not use Penstock's protocol")


@contextlib.contextmanager
def _within_limit(sock: socket.socket) -> Generator[float, None, None]:
    """Give the peer `LIMIT_SECONDS`. Yields when they are over, on the monotonic clock."""
    before = sock.gettimeout()
    sock.settimeout(LIMIT_SECONDS)
    try:
        yield time.monotonic() + LIMIT_SECONDS
    except TimeoutError as error:
        raise AuthenticationError(
            f"the peer did not finish the handshake within {LIMIT_SECONDS:g} s"
        ) from error
    sock.settimeout(before)


@contextlib.contextmanager
def closed_on_error(connection: _Closeable) -> Generator[None, None, None]:
    """Close the socket on any error, until it is handed on."""
    try:
        yield
    except BaseException:  # Also when this thread is interrupted.
        connection.close()
        raise


def notice_lost_peer(sock: socket.socket) -> None:
    """Break the connection if sent data stays unanswered for `LEASE_S`.

    A peer whose machine or network is gone sends no end, and heartbeats flow all the time. Does
    nothing on a Unix socket, whose peer is on this machine.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(LEASE_S * 1000))
