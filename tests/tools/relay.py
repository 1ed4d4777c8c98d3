"""A TCP relay that may change what it passes on, as somebody on the network can."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

_HANG_S = 60.0
Change = Callable[[int, bytes], bytes]
"""From the number of bytes of this direction that came before, and the next bytes, to what is passed on."""


def as_it_is(_at: int, data: bytes) -> bytes:
    return data


def flipped(place: int) -> Change:
    """The byte at this place has another lowest bit."""

    def change(at: int, data: bytes) -> bytes:
        if not at <= place < at + len(data):
            return data
        changed = bytearray(data)
        changed[place - at] ^= 1
        return bytes(changed)

    return change


def without(place: int) -> Change:
    """The byte at this place is missing."""

    def change(at: int, data: bytes) -> bytes:
        inside = place - at
        return data[:inside] + data[inside + 1 :] if 0 <= inside < len(data) else data

    return change


def twice(place: int) -> Change:
    """The byte at this place comes twice."""

    def change(at: int, data: bytes) -> bytes:
        inside = place - at
        return data[: inside + 1] + data[inside:] if 0 <= inside < len(data) else data

    return change


def closed_by_peer(sock: socket.socket) -> bool:
    """Wait for the other end's next word: whether it is that it has closed."""
    sock.settimeout(_HANG_S)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


class Relay:
    """Passes connections on to `target`, a port or a Unix socket. A context manager; both ends of all connections are closed at its end."""

    def __init__(
        self, target: tuple[str, int] | str, to_target: Change = as_it_is, back: Change = as_it_is
    ) -> None:
        self._target = target
        self._changes = (to_target, back)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._server.getsockname()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_exception: object) -> None:
        for sock in (self._server, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for sock in (self._server, *self._sockets):
            sock.close()

    def _start(self, call: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=call, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = self._connect()
                self._sockets += [near, far]
                self._start(self._pass_on, near, far, self._changes[0])
                self._start(self._pass_on, far, near, self._changes[1])

    def _connect(self) -> socket.socket:
        if not isinstance(self._target, str):
            return socket.create_connection(self._target)
        far = socket.socket(socket.AF_UNIX)
        far.connect(self._target)
        return far

    def _pass_on(self, source: socket.socket, target: socket.socket, change: Change) -> None:
        at = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(change(at, data))
                at += len(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
