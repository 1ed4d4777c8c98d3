"""Mutually authenticated TCP connections. Every wire except the data plane's begins with them."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.hosting.wire.handshake import (
    LIMIT_SECONDS,
    NONCE_BYTES,
    ROLE_DATA,
    ClientHandshake,
    Credentials,
    ServerHandshake,
)
from penstock.hosting.wire.local_peer import ends_of, is_of_this_user
from penstock.hosting.wire.sealing import Session
from penstock.hosting.wire.tls import Identity, wrapped
from penstock.model.errors import AuthenticationError

LEASE_S: Final = 10.0


class _Closeable(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Proven:
    """An authenticated connection. `early`: bytes that the other end has sent behind the handshake.
    `name`: how the dialling end calls itself; known to the accepting end.
    """

    sock: socket.socket
    session: Session
    early: bytes
    name: str = ""


def dial(address: tuple[str, int], credentials: Credentials, role: int, timeout_s: float) -> Proven:
    """Connect and authenticate. The socket has that time-out.

    Raises: OSError; AuthenticationError: another program listens there.
    """
    sock = socket.create_connection(address, timeout=timeout_s)
    return introduced(sock, credentials, role)


def introduced(sock: socket.socket, credentials: Credentials, role: int, name: str = "") -> Proven:
    """Authenticate a connection that this end has dialled; encrypt it if the job's are, unless it is a
    Unix socket. `name`: as the server knows this end. The socket is closed on any error.

    Raises: OSError; AuthenticationError.
    """
    with closed_on_error(sock):
        notice_lost_peer(sock)
        handshake = ClientHandshake(
            credentials,
            role,
            secrets.token_bytes(NONCE_BYTES),
            name,
            vouched=lambda: role == ROLE_DATA and is_of_this_user(sock),
            ends=ends_of(sock, is_client=True),
        )
        run_handshake(sock, handshake)
    if not is_encrypted(sock, handshake.identity):
        return Proven(sock, handshake.session, handshake.leftover, name)
    assert handshake.identity is not None
    if handshake.leftover:
        sock.close()
        raise AuthenticationError("the server sent data before the connection was encrypted")
    tls = wrapped(sock, handshake.identity, is_server=False)
    with closed_on_error(tls):
        limit_s = tls.gettimeout()
        tls.settimeout(LIMIT_SECONDS)
        tls.do_handshake()
        tls.settimeout(limit_s)
    return Proven(tls, handshake.session.within_tls(), b"", name)


def is_encrypted(sock: socket.socket, identity: Identity | None) -> bool:
    """Whether TLS follows the handshake. Data of a Unix socket stays in the kernel."""
    return identity is not None and sock.family in (socket.AF_INET, socket.AF_INET6)


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


def run_handshake(sock: socket.socket, handshake: ClientHandshake | ServerHandshake) -> None:
    """Run the handshake on a blocking socket, within the time limit. Raises AuthenticationError;
    the caller closes the socket.
    """
    before = sock.gettimeout()
    deadline = time.monotonic() + LIMIT_SECONDS
    sock.settimeout(LIMIT_SECONDS)
    try:
        if isinstance(handshake, ClientHandshake):
            sock.sendall(handshake.start())
        while not handshake.is_done:
            # The limit is for the whole handshake, not for each read.
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = sock.recv(4096)
            if not data:
                raise AuthenticationError("the peer closed the connection before it proved itself")
            sock.sendall(handshake.feed(data))
    except TimeoutError as error:
        raise AuthenticationError(
            f"the peer did not finish the handshake within {LIMIT_SECONDS:g} s"
        ) from error
    finally:
        sock.settimeout(before)
