"""Who is at the other end of a Unix socket: the kernel says it, and no program can lie about it."""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

_UCRED: Final = struct.Struct("3i")  # process id, user id, group id


def refusal_of(sock: socket.socket) -> str | None:
    """Why this end of a Unix socket should not talk to the other; None: it may. Sockets of other families may.

    Allowed is the same effective user. The kernel gives a user of another user namespace another id, or none.
    """
    if sock.family != getattr(socket, "AF_UNIX", None):
        return None
    if not hasattr(socket, "SO_PEERCRED"):
        return "this system does not say whose process is at the other end of a Unix socket"
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, user, _group = _UCRED.unpack(credentials)
    if user == os.geteuid():
        return None
    return f"process {pid} at the other end of a Unix socket is of user {user}, not of user {os.geteuid()}"
