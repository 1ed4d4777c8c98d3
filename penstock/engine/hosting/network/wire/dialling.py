"""Mutually authenticated connections, the dialling side. Every wire begins with them.

Registration: how a process that Spark has started gets the certificate and key of its job.

    Spark task                                    driver
    TLS 1.3; the task expects the certificate in its ticket, and shows none
    HELLO with the one-time token       ->
                                        <-        WELCOME, the job's certificate and key; then it closes

Spark may send a task in clear, so a task carries a ticket and no secret. Whoever only reads the ticket
learns nothing from it: the certificate is public, and the token is sent inside TLS. Somebody who also
connects must be faster than the task. Then the task is refused, and the driver logs why.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from penstock.engine.hosting.network.wire import handshake, tls
from penstock.engine.hosting.network.wire.handshake import (
    LIMIT_SECONDS,
    ROLE_REGISTRATION,
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
    """Connect and authenticate. The socket has that time-out, and so has the handshake: a driver that hundreds dial at once
    answers one after the other.

    Raises: OSError; AuthenticationError: another program listens there.
    """
    sock = socket.create_connection(address, timeout=timeout_s)
    context = client_context(credentials.identity)
    return welcomed(sock, context, hello(credentials, role), timeout_s)


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


def welcomed(
    sock: socket.socket,
    context: ssl.SSLContext,
    first: bytes,
    handshake_s: float = LIMIT_SECONDS,
) -> TlsSocket:
    """Return the socket's successor, which the server has welcomed. `first`: the HELLO. `handshake_s`: how long the server may
    take. The socket is closed on any error. Raises: OSError; AuthenticationError.
    """
    with closed_on_error(sock):
        notice_lost_peer(sock)
        limit_s = sock.gettimeout()
    tls = TlsSocket(sock.detach(), context, is_server=False)
    tls.settimeout(limit_s)
    with closed_on_error(tls), _within_limit(tls, handshake_s) as deadline:
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
    """Read exactly `size` bytes. Raises: OSError; AuthenticationError: the other end
    closes before.
    """
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
def _within_limit(
    sock: socket.socket, limit_s: float = LIMIT_SECONDS
) -> Generator[float, None, None]:
    """Give the peer so much time. Yields when it is over, on the monotonic clock."""
    before = sock.gettimeout()
    sock.settimeout(limit_s)
    try:
        yield time.monotonic() + limit_s
    except TimeoutError as error:
        raise AuthenticationError(
            f"the peer did not finish the handshake within {limit_s:g} s"
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


_TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Ticket:
    """Lets a process register. `certificate`: the driver's, as PEM. `token`, `cluster_id`: as in `Credentials`."""

    certificate: str
    one_time_token: bytes = field(repr=False)
    token: str
    cluster_id: str

    def to_plain(self) -> dict[str, str]:
        """Return plain data for a Spark task, which does not have our classes."""
        return {
            "certificate": self.certificate,
            "one_time_token": self.one_time_token.hex(),
            "token": self.token,
            "cluster_id": self.cluster_id,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        return cls(
            plain["certificate"],
            bytes.fromhex(plain["one_time_token"]),
            plain["token"],
            plain["cluster_id"],
        )


class Tickets:
    """The tickets of one job. Safe for any thread."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()
        self._open: dict[bytes, int | None] = {}
        self._used: set[bytes] = set()

    def new(self, admits: int | None = 1) -> Ticket:
        """`admits`: how many may register with it; None: all until `withdraw`."""
        own, one_time_token = self._credentials, secrets.token_bytes(_TOKEN_BYTES)
        with self._lock:
            self._open[_digest(one_time_token)] = admits
        return Ticket(own.identity.certificate, one_time_token, own.token, own.cluster_id)

    def use(self, one_time_token: bytes) -> None:
        """As `handshake.TicketOffice`."""
        digest = _digest(one_time_token)
        with self._lock:
            if digest in self._used:
                raise AuthenticationError(
                    "a peer came with a ticket that was used before. If a TaskManager was refused "
                    "because of this, somebody reads what Spark sends to its executors: set "
                    "spark.authenticate and spark.network.crypto.enabled"
                )
            if digest not in self._open:
                raise AuthenticationError("a peer came with a ticket that is not known here")
            admits = self._open[digest]
            if admits == 1:
                del self._open[digest]
                self._used.add(digest)
            elif admits is not None:
                self._open[digest] = admits - 1

    def withdraw(self, ticket: Ticket) -> None:
        """Admit nobody any more with this ticket."""
        with self._lock:
            self._open.pop(_digest(ticket.one_time_token), None)


def register(address: tuple[str, int], ticket: Ticket, timeout_s: float) -> Credentials:
    """Return the job's credentials. Raises: OSError; AuthenticationError: another program listens there, or
    the ticket is not valid.
    """
    sock = socket.create_connection(address, timeout=timeout_s)
    first = handshake.packed(
        ROLE_REGISTRATION, ticket.token, ticket.cluster_id, "", ticket.one_time_token
    )
    context = tls.registering_context(ticket.certificate)
    with welcomed(sock, context, first, timeout_s) as answering:
        (size,) = handshake.IDENTITY_LENGTH.unpack(
            received(answering, handshake.IDENTITY_LENGTH.size)
        )
        identity = tls.Identity(received(answering, size))
    return Credentials(identity, ticket.token, ticket.cluster_id)


def _digest(one_time_token: bytes) -> bytes:
    """The key under which a token is looked up: how long that takes says nothing about other tokens."""
    return hashlib.sha256(one_time_token).digest()
