"""JSON, a line each, over an authenticated socket: what probes and driver tell each other. Nothing is unpickled."""

from __future__ import annotations

import json
import socket
from typing import Any, Final

from penstock.hosting.wire import dialling as connections
from penstock.hosting.wire.handshake import ROLE_PROBE, Credentials
from penstock.model.errors import AuthenticationError

_MOST: Final = 1 << 20


class Lines:
    """`receive` waits as long as the socket's time-out says."""

    def __init__(self, sock: socket.socket, first: bytes) -> None:
        """`first`: what has been read already."""
        self.sock = sock
        self._received = first

    def send(self, told: Any) -> None:
        self.sock.sendall(json.dumps(told).encode() + b"\n")

    def receive(self) -> Any:
        """None: the other side has closed. Raises: OSError, AuthenticationError: no line of ours."""
        while b"\n" not in self._received:
            data = self.sock.recv(1 << 16)
            if not data:
                return None
            self._received += data
            if len(self._received) > _MOST:
                raise AuthenticationError("a line is longer than a probe's can be")
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)


def dial(address: tuple[str, int], credentials: Credentials, timeout_s: float) -> Lines:
    """Raises: OSError; AuthenticationError: somebody else listens there."""
    return Lines(*connections.dial(address, credentials, ROLE_PROBE, timeout_s))


def accepted(sock: socket.socket, credentials: Credentials) -> Lines:
    """The other side of `dial`; closes the socket when it raises OSError or AuthenticationError."""
    return Lines(sock, connections.greet(sock, credentials, ROLE_PROBE))
