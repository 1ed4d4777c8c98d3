"""Asks the kernel which user is at the other end of a Unix socket."""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

_UCRED: Final = struct.Struct("3i")  # process id, user id, group id


def refusal_of(sock: socket.socket) -> str | None:
    """Return why the process at the other end must not be trusted; None: it is of this user.

    Sockets of other families give None. A process in another user namespace has another user id here.
    """
    if sock.family != getattr(socket, "AF_UNIX", None):
        return None
    if not hasattr(socket, "SO_PEERCRED"):
        return "this system does not say whose process is at the other end of a Unix socket"
    try:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    except OSError as error:
        return f"the kernel does not say whose process is at the other end: {error}"
    pid, user, _group = _UCRED.unpack(credentials)
    if user == os.geteuid():
        return None
    return (
        f"process {pid} at the other end of a Unix socket is of user {user}, not of user "
        f"{os.geteuid()}"
    )
