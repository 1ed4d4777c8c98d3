"""Asks the kernel whose process has a socket of this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Final

_UCRED: Final = struct.Struct("3i")  # process id, user id, group id
# Linux's sock_diag: a request for one TCP socket, and the answer up to the user id.
_MESSAGE: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port id
_QUERY: Final = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_ENDS: Final = struct.Struct("!HH16s16s")
_FOUND: Final = struct.Struct("=xB2x48x12xII")  # state; ends; expiry, queues; user id, inode
_INTERFACE_AND_COOKIE: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_NETLINK_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_IS_REQUEST: Final = 1
_ANY_STATE: Final = 0xFFFFFFFF
_ESTABLISHED: Final = 1
_LISTENS: Final = 10
_ANY_IPV4: Final = "0.0.0.0"  # ruff: ignore[hardcoded-bind-all-interfaces]
_ANSWER_S: Final = 1.0
ROOT: Final = 0
"""Nothing is hidden from it."""
_NOBODY: Final = 65534
"""How Linux shows a user of another user namespace by default."""


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
    if user == os.geteuid() != _overflow_user():
        return None
    if user == os.geteuid():
        return (
            f"process {pid} at the other end of a Unix socket is of user {user}, which stands for "
            "every user of other namespaces"
        )
    return (
        f"process {pid} at the other end of a Unix socket is of user {user}, not of user "
        f"{os.geteuid()}"
    )


def is_of_this_user(sock: socket.socket) -> bool:
    """Whether the kernel says that a process of this machine and user is at the other end, or over TCP one of root's.

    Also over TCP: the kernel knows the owner of each socket in this network namespace, and a
    connection to itself has both ends there. False where nobody says so: Linux only.
    """
    if sock.family == getattr(socket, "AF_UNIX", None):
        return refusal_of(sock) is None
    with contextlib.suppress(OSError):
        return is_this_user(user_of_other_end(sock))
    return False


def is_this_user(user: int | None) -> bool:
    """Whether this is the user of this process or root, and of no other namespace. None is nobody."""
    return user in {ROOT, os.geteuid()} - {_overflow_user()}


def user_of_other_end(sock: socket.socket) -> int | None:
    """Return the user at the other end of a TCP connection. None: it is no socket of this network namespace, or nobody says so.

    Raises: OSError: no descriptor is left to ask with.
    """
    try:
        return _owner(sock.family, sock.getpeername()[:2], sock.getsockname()[:2], _ESTABLISHED)
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise
        return None
    except struct.error:
        return None


def owners_of_listeners(host: str, port: int) -> set[int]:
    """Return the users whose processes listen at this port of this machine, at any address that `host` has. Empty: nobody listens, or
    nobody says whose they are: Linux only. Raises: OSError: the kernel is not asked, or the name has no address.
    """
    found: set[int] = set()
    for family, *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        nobody = "::" if family == socket.AF_INET6 else _ANY_IPV4
        user = _owner(family, (str(place[0]), port), (nobody, 0), _LISTENS)
        found |= set() if user is None else {user}
    return found


def _owner(family: int, of: tuple[str, int], to: tuple[str, int], wanted_state: int) -> int | None:
    """Return the user of the TCP socket at the address `of`, connected to `to`. None: there is none in this state.

    Source: Linux, `linux/sock_diag.h` and `linux/inet_diag.h`; manual page sock_diag(7).
    """
    if not sys.platform.startswith("linux"):
        return None
    addresses = [socket.inet_pton(family, address) for address, _ in (of, to)]
    ends = _ENDS.pack(of[1], to[1], *addresses) + _INTERFACE_AND_COOKIE
    query = _QUERY.pack(family, socket.IPPROTO_TCP, 0, _ANY_STATE) + ends
    head = _MESSAGE.pack(_MESSAGE.size + len(query), _BY_FAMILY, _IS_REQUEST, 0, 0)
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
    with netlink:
        netlink.settimeout(_ANSWER_S)
        netlink.send(head + query)
        answer = netlink.recv(4096)
    if _MESSAGE.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    state, user, inode = _FOUND.unpack_from(answer, _MESSAGE.size)
    # A socket that its process has closed has no inode, and seems to be root's.
    return int(user) if state == wanted_state and inode else None


def _overflow_user() -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
    return _NOBODY
