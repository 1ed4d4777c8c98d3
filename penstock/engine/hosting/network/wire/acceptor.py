"""Acceptor: accepts connections and does their handshakes, all on one thread.

A stranger costs no thread, and one of `MAX_UNPROVEN` places for at most `LIMIT_SECONDS`. When all
places are taken, the connection that has waited longest is closed. A process of the job needs only
milliseconds. TCP connections are TLS; over a Unix socket, only processes of the same user are accepted.
The log names each refused address once.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Self

from penstock.engine.hosting.network.wire.dialling import Proven, Tickets, notice_lost_peer
from penstock.engine.hosting.network.wire.handshake import (
    LIMIT_BYTES,
    LIMIT_SECONDS,
    Credentials,
    ServerHandshake,
    Shown,
)
from penstock.engine.hosting.network.wire.tls import TlsSocket, server_context
from penstock.engine.hosting.os.socket_owners import refusal_of
from penstock.engine.model.errors import AuthenticationError, ExternalError

MAX_UNPROVEN: Final = 64
_MAX_REPORTED: Final = 256
RETRY_S: Final = 0.5
_END_S: Final = 5.0
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""What `accept` fails with if no descriptor or memory is left."""
_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Unproven:
    """A connection during its handshake."""

    sock: socket.socket
    address: str
    deadline: float
    handshake: ServerHandshake | None = None
    """None: TLS is not ready yet."""


@dataclass(slots=True)
class Complaints:
    """Logs refused connections, once for each address and for at most `_MAX_REPORTED` addresses."""

    _reported: set[str] = field(default_factory=set)

    def of(self, address: str, cause: str) -> None:
        """Log the cause, unless the address was logged before."""
        if address in self._reported or len(self._reported) >= _MAX_REPORTED:
            return
        self._reported.add(address)
        _LOG.warning("peer=%s REFUSED cause=%s (logged once for each address)", address, cause)


class Acceptor:
    """Owns the listening sockets: `close` closes them. It accepts nothing before `start`."""

    def __init__(
        self,
        servers: Iterable[socket.socket],
        credentials: Credentials,
        role: int,
        on_proven: Callable[[Proven], None],
        *,
        tickets: Tickets | None = None,
        on_broken: Callable[[], None] = lambda: None,
        name: str = "penstock-acceptor",
    ) -> None:
        """`on_proven`: takes each authenticated connection. Its socket is non-blocking. It is
        called on the acceptor's thread and must not block. `tickets`: of processes that may
        register. `on_broken`: called when an error has ended the thread, so that no connection is
        accepted any more.
        """
        self._servers = list(servers)
        self._credentials = credentials
        self._role = role
        self._on_proven = on_proven
        self._tickets = tickets
        self._context = server_context(credentials.identity, admits_tickets=tickets is not None)
        self._on_broken = on_broken
        self._complaints = Complaints()
        self._unproven: dict[_Unproven, None] = {}
        self._accepts_at: float | None = None
        self._is_closing = False
        self._selector = selectors.DefaultSelector()
        self._wake_receive, self._wake_send = socket.socketpair()
        self._selector.register(self._wake_receive, selectors.EVENT_READ, None)
        self._listen()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        self.thread.start()
        return self

    def close(self) -> None:
        """End the thread and close all connections that were not handed over. Any thread."""
        self._is_closing = True
        with contextlib.suppress(OSError):  # It is closed already.
            self._wake_send.send(b"\0")
        if self.thread.ident is not None and threading.current_thread() is not self.thread:
            self.thread.join(_END_S)
        for sock in (*self._servers, self._wake_receive, self._wake_send):
            sock.close()
        for one in list(self._unproven):
            one.sock.close()
        self._selector.close()

    def _run(self) -> None:
        try:
            self._loop()
        except Exception:  # Any error: the owner must not wait for peers that nobody accepts.
            _LOG.exception("server=BROKEN")
            self._on_broken()

    def _loop(self) -> None:
        while not self._is_closing:
            for key, _ in self._selector.select(self._wait_s(time.monotonic())):
                if isinstance(key.data, _Unproven):
                    if key.data in self._unproven:  # It was not dropped for a newer one.
                        self._read(key.data)
                elif key.data is not None:
                    self._accept(key.data)
            now = time.monotonic()
            self._give_up_late_ones(now)
            if self._accepts_at is not None and now >= self._accepts_at:
                self._listen()

    def _wait_s(self, now: float) -> float | None:
        times = [one.deadline for one in self._unproven]
        if self._accepts_at is not None:
            times.append(self._accepts_at)
        return max(0.0, min(times) - now) if times else None

    # ------------------------------------------------------------------ accepting

    def _listen(self) -> None:
        self._accepts_at = None
        for server in self._servers:
            server.setblocking(False)
            self._selector.register(server, selectors.EVENT_READ, server)

    def _accept(self, server: socket.socket) -> None:
        if self._accepts_at is not None:
            return  # Another listening socket, ready in the same turn, found no free descriptor.
        try:
            sock, address = server.accept()
        except OSError as error:
            if error.errno in NO_ROOM:
                self.pause(error)
            return  # Otherwise the peer is gone already.
        sock.setblocking(False)
        peer = address[0] if isinstance(address, tuple) else "a process of this machine"
        refusal = refusal_of(sock)
        if refusal is not None:
            self._complaints.of(peer, refusal)
            sock.close()
            return
        if len(self._unproven) >= MAX_UNPROVEN:
            oldest = next(iter(self._unproven))
            self._refuse(oldest, f"{MAX_UNPROVEN} connections are in handshakes, this one longest")
        if isinstance(address, tuple):
            sock = TlsSocket(sock.detach(), self._context, is_server=True)
            sock.setblocking(False)
        one = _Unproven(sock, peer, time.monotonic() + LIMIT_SECONDS)
        self._unproven[one] = None
        self._selector.register(sock, selectors.EVENT_READ, one)

    def pause(self, error: OSError) -> None:
        """Stop accepting for a moment: without a free descriptor, the selector would report the
        listening sockets all the time.
        """
        _LOG.warning("server=ACCEPTS_NOBODY for_s=%s cause=%s", RETRY_S, error)
        for server in self._servers:
            self._selector.unregister(server)
        self._accepts_at = time.monotonic() + RETRY_S

    # ------------------------------------------------------------------ handshakes

    def _read(self, one: _Unproven) -> None:
        try:
            handshake = self._shake_hands(one)
        except BlockingIOError:
            return
        except ssl.SSLError as error:
            self._refuse(one, f"it does not speak TLS as the job does: {error.reason or error}")
        except (OSError, ExternalError) as error:
            self._refuse(one, str(error))
        else:
            self._forget(one)
            if handshake.registers:
                one.sock.close()
            else:
                self._hand_over(Proven(one.sock, handshake.name))

    def _shake_hands(self, one: _Unproven) -> ServerHandshake:
        """Return the handshake, which is done. Raises: BlockingIOError: it is not done yet."""
        if one.handshake is None:
            one.handshake = self._begin(one.sock)
        while not one.handshake.is_done:
            data = one.sock.recv(LIMIT_BYTES)
            if not data:
                raise AuthenticationError("it closed the connection before it proved itself")
            answer = one.handshake.feed(data)
            if answer and one.sock.send(answer) != len(answer):
                raise AuthenticationError("it does not read the handshake")
        return one.handshake

    def _begin(self, sock: socket.socket) -> ServerHandshake:
        shown = Shown.USER
        if isinstance(sock, TlsSocket):
            sock.do_handshake()
            shown = Shown.CERTIFICATE if sock.has_peer_certificate else Shown.NOTHING
        return ServerHandshake(self._credentials, (self._role,), shown, self._tickets)

    def _hand_over(self, proven: Proven) -> None:
        try:
            notice_lost_peer(proven.sock)
            self._on_proven(proven)
        except Exception as error:  # Of any kind: one peer must not end the acceptor.
            _LOG.warning("peer=DROPPED cause=%r", error, exc_info=error)
            proven.sock.close()

    def _give_up_late_ones(self, now: float) -> None:
        for one in [one for one in self._unproven if one.deadline <= now]:
            self._refuse(one, f"it did not prove itself within {LIMIT_SECONDS:g} s")

    def _refuse(self, one: _Unproven, cause: str) -> None:
        self._forget(one)
        self._complaints.of(one.address, cause)
        one.sock.close()

    def _forget(self, one: _Unproven) -> None:
        del self._unproven[one]
        self._selector.unregister(one.sock)
