"""Connections to other TaskManagers: dialled, authenticated, and one for each pair.

If both dial at once, the connection of the smaller resource id is kept; the other side gets a
notice and waits for it. Handshakes block, so they run on short-lived threads, never on the network
thread.

TaskManagers of one machine use Unix sockets. For a megabyte these need half the system time of
loopback TCP.

A TaskManager has a TCP port, and also listens under a name in Linux's abstract namespace. A process
that finds the name is in the same network namespace, so TaskManagers need not know which hosts are
one machine. Only processes of the job can compute the name in advance. Both ends ask the kernel
whether the other one is of the same user (`wire.local_peer`). What they send stays in the kernel,
so it is not encrypted. Without such a namespace (macOS), or without the name, TCP is used.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.engine.hosting.network.connection import DataConnection, WriteLoop
from penstock.engine.hosting.network.wire.dialling import (
    Proven,
    closed_on_error,
    introduced,
    received,
)
from penstock.engine.hosting.network.wire.handshake import ROLE_DATA, Credentials
from penstock.engine.hosting.os.socket_owners import refusal_of
from penstock.engine.model.errors import AuthenticationError, PartitionConnectionError
from penstock.engine.model.ids import ResourceId, TaskManagerLocation

_HAS_ABSTRACT_NAMES: Final = sys.platform.startswith("linux")
_LOG: Final = logging.getLogger(__name__)


def listen(credentials: Credentials, resource_id: ResourceId, port: int) -> list[socket.socket]:
    """Listen next to TCP port `port`. Returns: one socket, or none if that is not possible here."""
    if not _HAS_ABSTRACT_NAMES:
        return []
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(local_name(credentials, resource_id, port))
        server.listen()
    except OSError as error:
        server.close()
        _LOG.warning(
            "taskmanager=%s LOCAL_SOCKET_REFUSED port=%s cause=%s: another process may hold its "
            "name; TCP is used",
            resource_id,
            port,
            error,
        )
        return []
    return [server]


def connect(
    credentials: Credentials, resource_id: ResourceId, port: int, timeout_s: float
) -> socket.socket | None:
    """Connect to a TaskManager of this machine and user; None if it is elsewhere."""
    if not _HAS_ABSTRACT_NAMES:
        return None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout_s)
    try:
        sock.connect(local_name(credentials, resource_id, port))
    except OSError:
        sock.close()
        return None
    refusal = refusal_of(sock)
    if refusal is None:
        return sock
    sock.close()
    _LOG.warning("peer=%s REFUSED cause=%s; TCP is used", resource_id, refusal)
    return None


def local_name(credentials: Credentials, resource_id: ResourceId, port: int) -> bytes:
    """The port differs between the TaskManagers of several jobs, which may have the same ids."""
    secret = credentials.local_secret(f"local socket {port} {resource_id}")
    return b"\0penstock-" + secret.hex()[:32].encode()


_DIAL_TIMEOUT_S: Final = 5.0
_SOCKET_BUFFER: Final = 1 << 20
_ACCEPTED: Final = b"\x01"
_USE_OTHER: Final = b"\x00"


class Peers:
    """`adopted` is called with each new connection, on the thread that made it."""

    def __init__(
        self,
        resource_id: ResourceId,
        credentials: Credentials,
        loop: WriteLoop,
        adopted: Callable[[DataConnection], None],
        *,
        tries_local: bool = True,
    ) -> None:
        self.resource_id = resource_id
        self._credentials = credentials
        self._loop = loop
        self._adopted = adopted
        self._tries_local = tries_local
        self._connections: dict[ResourceId, DataConnection] = {}
        self._open: set[DataConnection] = set()
        self._is_closed = False
        self._dialling: set[ResourceId] = set()
        self._changed = threading.Condition()

    def known(self, peer: ResourceId) -> DataConnection | None:
        with self._changed:
            return self._connections.get(peer)

    def everybody(self) -> list[DataConnection]:
        with self._changed:
            return list(self._connections.values())

    def close(self) -> None:
        """Close all connections, also one that is still being made, and a surplus second one of a pair."""
        with self._changed:
            self._is_closed = True
            connections, self._open = list(self._open), set()
            self._connections.clear()
        for connection in connections:
            connection.is_closed = True
            connection.sock.close()
            connection.drop_views()

    def forget(self, connection: DataConnection) -> None:
        """Forget a broken connection, so that the next request dials again."""
        with self._changed:
            self._open.discard(connection)
            if self._connections.get(connection.peer) is connection:
                del self._connections[connection.peer]

    def connection_to(self, location: TaskManagerLocation) -> DataConnection:
        """Return the connection to a peer; dials and blocks if there is none. Raises OSError, ExternalError."""
        peer = location.resource_id
        with self._changed:
            while peer in self._dialling:
                self._changed.wait(_DIAL_TIMEOUT_S)
            if peer in self._connections:
                return self._connections[peer]
            self._dialling.add(peer)
        try:
            return self._dial(location)
        finally:
            with self._changed:
                self._dialling.discard(peer)
                self._changed.notify_all()

    def _dial(self, location: TaskManagerLocation) -> DataConnection:
        """Dial over a Unix socket if the peer listens on one here and authenticates itself, else over TCP."""
        if self._tries_local:
            sock = connect(
                self._credentials, location.resource_id, location.data_port, _DIAL_TIMEOUT_S
            )
            if sock is not None:
                with contextlib.suppress(OSError, AuthenticationError):
                    return self._introduce(sock, location.resource_id)
        address = (location.host, location.data_port)
        sock = socket.create_connection(address, timeout=_DIAL_TIMEOUT_S)
        return self._introduce(sock, location.resource_id)

    def _introduce(self, sock: socket.socket, peer: ResourceId) -> DataConnection:
        proven = introduced(sock, self._credentials, ROLE_DATA, self.resource_id)
        with closed_on_error(proven):
            answer = received(proven, len(_ACCEPTED))
        if answer == _ACCEPTED:
            return self._adopt(proven, peer)
        proven.close()
        return self._await_incoming(peer)

    def _await_incoming(self, peer: ResourceId) -> DataConnection:
        deadline = time.monotonic() + _DIAL_TIMEOUT_S
        with self._changed:
            while peer not in self._connections:
                rest = deadline - time.monotonic()
                if rest <= 0:
                    raise PartitionConnectionError(
                        f"{peer} refused our connection, and did not dial in time itself"
                    )
                self._changed.wait(rest)
            return self._connections[peer]

    def accepted(self, proven: Proven) -> None:
        """Take a connection that another TaskManager has dialled. Does not block."""
        sock, peer = proven.sock, ResourceId(proven.name)
        answer = _USE_OTHER if self._must_use_other(peer) else _ACCEPTED
        if sock.send(answer) != len(answer):
            raise PartitionConnectionError(f"{peer} does not read the answer to its handshake")
        if answer == _ACCEPTED:
            self._adopt(sock, peer)
        else:
            sock.close()

    def _must_use_other(self, peer: ResourceId) -> bool:
        with self._changed:
            return peer in self._connections or (peer in self._dialling and self.resource_id < peer)

    def _adopt(self, sock: socket.socket, peer: ResourceId) -> DataConnection:
        if sock.family != socket.AF_UNIX:
            # Linux finds the sizes of TCP's buffers itself, up to larger ones than we may ask for.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                sock.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER)
        sock.setblocking(False)
        connection = DataConnection(sock, peer, self._loop)
        with self._changed:
            if self._is_closed:
                sock.close()
                raise PartitionConnectionError("this TaskManager is ending")
            self._open.add(connection)
            self._connections.setdefault(peer, connection)
            self._changed.notify_all()
        self._adopted(connection)
        return connection
