"""Unix sockets between TaskManagers of one machine: half the system time of loopback TCP for a megabyte.

A TaskManager listens under a name in Linux's abstract namespace beside its TCP port. Whoever finds the name shares the
network namespace with it, so nobody has to know which hosts are one machine. The name proves nothing: the handshake
does, as it does on TCP. Where there is no such namespace (macOS), or no such name, TCP is used.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from typing import Final

from penstock.model.ids import ResourceId

_HAS_ABSTRACT_NAMES: Final = sys.platform.startswith("linux")


def listen(resource_id: ResourceId, port: int) -> list[socket.socket]:
    """One beside TCP port `port`; none where it cannot be."""
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
    """To a TaskManager of this machine; None if it is elsewhere."""
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
    """The port tells apart the TaskManagers of several jobs, who count theirs alike."""
    return f"\0penstock-{port}-{resource_id}".encode()
