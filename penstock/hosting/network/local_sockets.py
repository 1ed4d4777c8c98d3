"""Unix sockets between TaskManagers of one machine. For a megabyte they need half the system time
of loopback TCP.

Beside its TCP port, a TaskManager listens under a name in Linux's abstract namespace. A process
that finds the name is in the same network namespace, so TaskManagers need not know which hosts are
one machine. The name proves nothing; the handshake authenticates the peer, as on TCP. Without such
a namespace (macOS), or without the name, TCP is used.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from typing import Final

from penstock.model.ids import ResourceId

_HAS_ABSTRACT_NAMES: Final = sys.platform.startswith("linux")


def listen(resource_id: ResourceId, port: int) -> list[socket.socket]:
    """Listen beside TCP port `port`; None where the system has no such sockets."""
    if not _HAS_ABSTRACT_NAMES:
        return []
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.bind(_name(resource_id, port))
        server.listen()
    except OSError:
        server.close()
        return []
    return [server]


def connect(resource_id: ResourceId, port: int, timeout_s: float) -> socket.socket | None:
    """Connect to a TaskManager of this machine; None if it is on another one."""
    if not _HAS_ABSTRACT_NAMES:
        return None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout_s)
    with contextlib.suppress(OSError):
        sock.connect(_name(resource_id, port))
        return sock
    sock.close()
    return None


def _name(resource_id: ResourceId, port: int) -> bytes:
    """Return the socket's name. It contains the port, because TaskManagers of several jobs have equal ids."""
    return f"\0penstock-{port}-{resource_id}".encode()
