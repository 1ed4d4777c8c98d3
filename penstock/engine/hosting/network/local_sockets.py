"""Unix sockets between TaskManagers of one machine. For a megabyte they need half the system time
of loopback TCP.

A TaskManager has a TCP port, and also listens under a name in Linux's abstract namespace. A process
that finds the name is in the same network namespace, so TaskManagers need not know which hosts are
one machine. Only processes of the job can tell the name in advance. Both ends ask the kernel whether the
other one is of the same user (`wire.local_peer`). What they send stays in the kernel, so it is not encrypted.
Without such a namespace (macOS), or without the name, TCP is used.
"""

from __future__ import annotations

import logging
import socket
import sys
from typing import Final

from penstock.engine.hosting.network.wire.handshake import Credentials
from penstock.engine.hosting.network.wire.local_peer import refusal_of
from penstock.engine.model.ids import ResourceId

_HAS_ABSTRACT_NAMES: Final = sys.platform.startswith("linux")
_LOG: Final = logging.getLogger(__name__)


def listen(credentials: Credentials, resource_id: ResourceId, port: int) -> list[socket.socket]:
    """Listen next to TCP port `port`. Returns: one socket, or none if that is not possible here."""
    if not _HAS_ABSTRACT_NAMES:
        return []
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(_name(credentials, resource_id, port))
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
        sock.connect(_name(credentials, resource_id, port))
    except OSError:
        sock.close()
        return None
    refusal = refusal_of(sock)
    if refusal is None:
        return sock
    sock.close()
    _LOG.warning("peer=%s REFUSED cause=%s; TCP is used", resource_id, refusal)
    return None


def _name(credentials: Credentials, resource_id: ResourceId, port: int) -> bytes:
    """The port differs between the TaskManagers of several jobs, which may have the same ids."""
    secret = credentials.local_secret(f"local socket {port} {resource_id}")
    return b"\0penstock-" + secret.hex()[:32].encode()
