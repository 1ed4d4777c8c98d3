"""Reads and writes short data of a socket without giving Python's global lock away.

CPython gives the lock away for each call of the system, also where the call copies some kilobytes and
returns at once. Beside a thread that computes, the caller waits twice then: for the lock, and for a
core, which the other thread may keep until the kernel's next tick (4 ms with 250 ticks a second). Long
data are still read and written without the lock, so that other threads run meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Sequence
from typing import Final

BRIEF_BYTES: Final = 16 * 1024
"""Copied in some microseconds."""

_FLAGS: Final = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)
_LIBRARY: Final = ctypes.PyDLL(None, use_errno=True)
_SEND: Final = _LIBRARY.send
_SEND.restype, _SEND.argtypes = (
    ctypes.c_ssize_t,
    (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int),
)
_RECEIVE: Final = _LIBRARY.recv
_RECEIVE.restype, _RECEIVE.argtypes = (
    ctypes.c_ssize_t,
    (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
)


def send(sock: socket.socket, parts: Sequence[memoryview]) -> int:
    """Do what `sock.sendmsg(parts)` does on a non-blocking socket. `parts`: views of bytes."""
    if type(sock) is not socket.socket or sum(part.nbytes for part in parts) > BRIEF_BYTES:
        return sock.sendmsg(parts)
    data = b"".join(parts)
    return _checked(_SEND(sock.fileno(), data, len(data), _FLAGS))


def receive_into(sock: socket.socket, buffer: memoryview, *, is_brief: bool) -> int:
    """Do what `sock.recv_into(buffer)` does on a non-blocking socket. `buffer`: a view of bytes, not empty.

    `is_brief`: at most `BRIEF_BYTES` are read.
    """
    if not is_brief or type(sock) is not socket.socket:
        return sock.recv_into(buffer)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    size = min(buffer.nbytes, BRIEF_BYTES)
    return _checked(_RECEIVE(sock.fileno(), address, size, _FLAGS))


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
